"""Captures of conversations that never were, and what tshark makes of them."""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.daemons import DEADLINE, ROOT, tool

DISSECTOR = ROOT / "contrib" / "wireshark" / "pubsub.lua"

_CLIENT, _DAEMON = b"\x0a\0\0\1", b"\x0a\0\0\2"
_FIN, _SYN, _PSH, _ACK = 0x01, 0x02, 0x08, 0x10
_MOST = 32 * 1024  # bytes in a segment, far below what fits


@dataclass(frozen=True)
class Segment:
    """What one side sends in one segment.

    Attributes:
        data: its bytes.
        client: whether the client sends it, or the daemon.
        captured: how many of the bytes the capture has; None for all.
    """

    data: bytes
    client: bool = True
    captured: int | None = None


def write(path: Path, streams: Iterable[Sequence[Segment]], port: int = 9014) -> None:
    """Write a capture, pcap of Ethernet, with a connection for each of ``streams``."""
    packets: list[bytes] = []

    def add(client_port: int, segment: Segment, flags: int, numbers: dict[bool, int]) -> None:
        ports = (client_port, port) if segment.client else (port, client_port)
        mine = numbers[segment.client]
        other = numbers[not segment.client] if flags & _ACK else 0
        tcp = struct.pack("!HHIIBBHHH", *ports, mine, other, 5 << 4, flags, 65_535, 0, 0)
        numbers[segment.client] += len(segment.data) + bool(flags & (_SYN | _FIN))
        hosts = _CLIENT + _DAEMON if segment.client else _DAEMON + _CLIENT
        size = 20 + len(tcp) + len(segment.data)
        ip = struct.pack("!BBHHHBBH", 0x45, 0, size, 0, 0, 64, 6, 0) + hosts
        packet = bytes(12) + b"\x08\0" + ip + tcp + segment.data
        kept = packet
        if segment.captured is not None:
            kept = packet[: len(packet) - len(segment.data) + segment.captured]
        count = len(packets)
        head = struct.pack("<IIII", 1_764_300_000 + count, 0, len(kept), len(packet))
        packets.append(head + kept)

    for number, stream in enumerate(streams):
        client_port = 10_000 + number
        assert client_port < 65_536
        numbers = {True: 1_000, False: 2_000_000_000}
        add(client_port, Segment(b""), _SYN, numbers)
        add(client_port, Segment(b"", client=False), _SYN | _ACK, numbers)
        for segment in stream:
            assert len(segment.data) <= _MOST
            add(client_port, segment, _PSH | _ACK, numbers)
        add(client_port, Segment(b""), _FIN | _ACK, numbers)
        add(client_port, Segment(b"", client=False), _FIN | _ACK, numbers)
    header = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262_144, 1)
    path.write_bytes(header + b"".join(packets))


def in_segments(data: bytes, size: int, *, client: bool = True) -> list[Segment]:
    """Cut ``data`` into segments of ``size`` bytes."""
    return [Segment(data[at : at + size], client) for at in range(0, len(data), size)]


def tshark(capture: Path, *arguments: str) -> str:
    """Return what tshark prints of a capture; the test fails if it complains of the dissector."""
    home = capture.parent / "tshark"
    home.mkdir(exist_ok=True)
    found = subprocess.run(
        [tool("tshark"), "-X", f"lua_script:{DISSECTOR}", "-r", capture, *arguments],
        capture_output=True,
        check=False,
        text=True,
        timeout=DEADLINE,
        # Nobody's preferences, and no plugins but this one.
        env=os.environ | {"HOME": str(home), "WIRESHARK_CONFIG_DIR": str(home)},
    )
    assert found.returncode == 0, found.stderr
    assert "Lua" not in found.stderr, found.stderr
    assert "Lua Error" not in found.stdout, found.stdout
    return found.stdout


def fields(capture: Path, names: Sequence[str], *arguments: str) -> list[dict[str, list[str]]]:
    """Return for each connection of a capture all values of some fields, in order."""
    wanted = [word for name in names for word in ("-e", name)]
    shape = ["-T", "fields", "-E", "separator=/t", "-E", "occurrence=a", "-E", "aggregator=\x1e"]
    told = tshark(capture, *arguments, *shape, "-e", "tcp.stream", *wanted)
    streams: dict[int, dict[str, list[str]]] = {}
    for line in told.split("\n")[:-1]:  # splitlines() would cut at the aggregator, too
        stream, *values = line.split("\t")
        found = streams.setdefault(int(stream), {name: [] for name in names})
        for name, value in zip(names, values, strict=True):
            if value:
                found[name] += value.split("\x1e")
    return [streams[number] for number in range(len(streams))]
