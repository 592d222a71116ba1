"""What telnet sends besides what is typed, without I/O (RFC 854).

At Ctrl-C it sends an interrupt and asks for a timing mark, and shows nothing more until that is
answered; Ctrl-D comes as a byte of its own, before the next line. All options are refused.
"""

from __future__ import annotations

STARTS = (b"\xff", b"\x04")
"""The first byte of a read that begins with something of telnet's. No command begins so."""

MOST = 256
"""Bytes of a read that are looked through: a person sends a few, and each costs half a µs."""

_EOT, _SE, _SB, _WILL, _WONT, _DO, _DONT, _IAC = 0x04, 240, 250, 251, 252, 253, 254, 255
_REFUSALS = {_DO: _WONT, _WILL: _DONT}


def strip_telnet(data: bytes) -> tuple[bytes, bytes]:
    """Return ``data`` without the commands of telnet's that it begins with, and the answers.

    An answer has 3 bytes. What is cut off within a command stays, as does what comes after
    :data:`MOST` bytes.
    """
    at, answers = 0, bytearray()
    while at < min(len(data), MOST):
        if data[at] == _EOT:
            at += 1
            continue
        command = data[at + 1] if data[at] == _IAC and at + 1 < len(data) else 0
        if command == _SB:
            end = data.find(bytes((_IAC, _SE)), at, MOST)
            stop = end + 2 if end >= 0 else len(data) + 1
        else:
            stop = at + (3 if command >= _WILL else 2)
        if command < _SE or command == _IAC or stop > len(data):
            break
        if command in _REFUSALS:
            answers += bytes((_IAC, _REFUSALS[command], data[at + 2]))
        at = stop
    return data[at:], bytes(answers)
