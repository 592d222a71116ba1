"""What people type, by hand, through telnet and through nc: the real daemon, real sockets."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.daemons import (
    DEADLINE,
    Daemon,
    Dial,
    Line,
    Start,
    error_codes,
    frame,
    frames,
    program,
    tool,
    wait_until,
)

# Line ends


@pytest.mark.parametrize(
    "typed",
    [
        b"sub a\npub a 1 x\npub a 2 yz\nunsub a\npub a 3 not\n",
        b"sub a\r\npub a 1 x\r\npub a 2 yz\r\nunsub a\r\npub a 3 not\r\n",
        b"sub a\r\npub a 1 x\npub a 2 yz\r\nunsub a\npub a 3 not\r\n",
        b"\n\r\nsub a\n\n\npub a 1 x\n\r\n\r\npub a 2 yz\n\nunsub a\r\n\npub a 3 not\n\n",
        b"Sub a\nPUB a 1 x\npUb a 2 yz\r\nUNSUB a\nPub a 3 not\n",
    ],
    ids=["LF", "CR LF", "mixed", "with empty lines", "in any case"],
)
@pytest.mark.parametrize("size", [1, 1000], ids=["key by key", "at once"])
def test_lines_end_in_any_usual_way(shared: Daemon, dial: Dial, typed: bytes, size: int) -> None:
    line = dial(shared)
    for at in range(0, len(typed), size):
        line.say(typed[at : at + size])
    assert line.ping() == b"pub a 1 x\npub a 2 yz\n"


def test_a_typing_mistake_costs_nothing_but_an_error_line(shared: Daemon, dial: Dial) -> None:
    line = dial(shared)
    line.say(b"sub typo\n")
    line.say(b"pub typo 1 a\nsubb typo\nbup typo 1 x\npub typo one b\npub typo 1 c\nunsub tipo\n")
    line.say(b"pub typo 1 d\n")
    heard = line.ping()
    assert [data for name, data in frames(heard) if name == "typo"] == [b"a", b"c", b"d"]
    assert error_codes(heard) == [
        "unknown-command",
        "unknown-command",
        "bad-length",
        "not-subscribed",
    ]


# What is refused

STAYS = [
    (b"pub x -5 a\n", "bad-length"),
    (b"pub x abc a\n", "bad-length"),
    (b"pub x 99999999999999999999 a\n", "bad-length"),
    (b"pub x 12345678901 a\n", "bad-length"),
    (b"pub x 1_0 0123456789\n", "bad-length"),
    (b"pub x +5 hello\n", "bad-length"),
    (b"pub x 0x5 hello\n", "bad-length"),
    (b"pub x 5.0 hello\n", "bad-length"),
    (b"pub x  5 hello\n", "bad-length"),
    (b"pub x \xd9\xa5 hello\n", "bad-length"),  # ARABIC-INDIC DIGIT FIVE
    (b"pub x \xc2\xb2 ab\n", "bad-length"),  # SUPERSCRIPT TWO, which str.isdigit() takes
    (b"pub x\n", "bad-length"),
    (b"pub x \n", "bad-length"),
    (b"pub x 5\n", "bad-length"),
    (b"pub x hello\n", "bad-length"),
    (b"pub\n", "bad-name"),
    (b"pub \n", "bad-name"),
    (b"pub  5 hello\n", "bad-name"),
    (b"pub \xff\xfe 1 a\n", "bad-name"),
    (b"pub a\rb 1 a\n", "bad-name"),
    (b"pub " + b"n" * 1025 + b" 1 a\n", "name-too-long"),
    (b"sub \n", "bad-name"),
    (b"sub a b\n", "bad-name"),
    (b"sub  a\n", "bad-name"),
    (b"sub a \n", "bad-name"),
    (b"sub a\rb\n", "bad-name"),
    (b"sub \xc3\n", "bad-name"),
    (b"sub \xed\xa0\x80\n", "bad-name"),  # a surrogate
    (b"sub " + b"n" * 1025 + b"\n", "name-too-long"),
    (b"unsub\n", "not-subscribed"),
    (b"unsub \n", "bad-name"),
    (b"unsub a\n", "not-subscribed"),
    (b"unsub \xff\n", "bad-name"),
    (b"hello\n", "unknown-command"),
    (b"hello world\n", "unknown-command"),
    (b" sub a\n", "unknown-command"),
    (b"\tsub a\n", "unknown-command"),
    (b"pub\tx 1 a\n", "unknown-command"),
    (b"publish x 1 a\n", "unknown-command"),
    (b"\x00\n", "unknown-command"),
    (b"help me\n", "unknown-command"),
    (b"quit now\n", "unknown-command"),
    (b"pub x -- a\n", "bad-length"),
    (b"pub x -\n", "bad-length"),
    (b'{"type":"hub:connect"}\n', "unknown-command"),
    (b"\xef\xbb\xbfsub a\n", "unknown-command"),  # a byte order mark
    (b"pub //pubsubd/nonsense 1 a\n", "unknown-request"),
    (b"pub //pubsubd/error 1 a\n", "unknown-request"),
    (b"pub //pubsubd/ 1 a\n", "unknown-request"),
    (b"pub //pubsubd/explain 0 \n", "bad-request"),
    (b"pub //pubsubd/explain 3 a b\n", "bad-request"),
]

CLOSES = [
    (b"pub x 3 hello\n", "wrong-length"),
    (b"pub x 4 hello\n", "wrong-length"),
    (b"pub x 0 hello\n", "wrong-length"),
    (b"pub x 3 abc\rdef\n", "wrong-length"),
    (b"PUB x 3 hello\n", "wrong-length"),
    (b"pub x 7 hello\npub x 1 a\n", "wrong-length"),  # too short: it eats into what follows
    (b"pub //pubsubd/ping 3 hello\n", "wrong-length"),
    (b"pub x 1048577 ", "payload-too-large"),
    (b"pub x 1073741824 ", "payload-too-large"),
    (b"pub x 9999999999 ", "payload-too-large"),
    (b"PUB x 1048577 ", "payload-too-large"),
    (b"s" * 1089, "line-too-long"),
    (b"sub " + b"n" * 1085, "line-too-long"),
    (b"pub " + b"n" * 1085, "line-too-long"),
    (b"pub x 1_0 " + b"d" * 1100, "line-too-long"),
    (b"pub x - " + b"d" * 65_537 + b"\n", "payload-too-large"),
    (b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03", "no-tls"),
    (b"GET / HTTP/1.1\r\nHost: 127.0.0.1:9014\r\n\r\n", "http-request"),
    (b"POST /x HTTP/1.0\r\n\r\npub x 1 a\n", "http-request"),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "http-request"),
]


def _shown(said: object) -> str | None:
    return ascii(said)[:40] if isinstance(said, bytes) else None


@pytest.mark.parametrize(("said", "code"), STAYS, ids=_shown)
def test_a_mistake_has_one_stated_reason_and_the_connection_stays(
    shared: Daemon, dial: Dial, said: bytes, code: str
) -> None:
    line = dial(shared)
    line.say(b"sub ok/%d\n" % id(line))
    line.say(b"pub ok/%d 1 1\n" % id(line) + said + b"pub ok/%d 1 2\n" % id(line))
    heard = line.ping()
    assert error_codes(heard) == [code]
    assert [data for name, data in frames(heard) if name.startswith("ok/")] == [b"1", b"2"]


@pytest.mark.parametrize(("said", "code"), CLOSES, ids=_shown)
def test_what_cannot_be_repaired_has_one_stated_reason_and_is_closed(
    shared: Daemon, dial: Dial, said: bytes, code: str
) -> None:
    line, other = dial(shared), dial(shared)
    other.say(b"sub x\n")
    other.ping()
    line.say(
        b"sub ok/%d\npub ok/%d 1 1\n" % (id(line), id(line)) + said + b"pub ok/%d 1 2\n" % id(line)
    )
    heard = line.hear_end()
    assert error_codes(heard) == [code]
    assert [data for name, data in frames(heard) if name.startswith("ok/")] == [b"1"]
    assert heard.startswith(b"pub ok/")
    assert other.ping() == b"", "something of it was carried out"
    shared.wait_log(f'peer={line.label} listener="line" reason={code}')


def test_the_wrong_length_says_which_byte_was_found_and_that_bytes_count(
    shared: Daemon, dial: Dial
) -> None:
    line = dial(shared)
    line.say(b"pub x 3 hello\n")
    [(_, text)] = frames(line.hear_end())
    assert b'108, "l"' in text
    assert b"bytes" in text


@pytest.mark.parametrize("method", [b"GET", b"POST", b"PUT", b"OPTIONS"])
def test_an_http_request_with_commands_in_its_body_runs_none_of_them(
    shared: Daemon, dial: Dial, method: bytes
) -> None:
    victim, browser = dial(shared), dial(shared)
    victim.say(b"sub victim\n")
    victim.ping()
    body = b"pub victim 5 owned\npub victim 5 owned\r\n"
    head = b"%b /pub HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n"
    browser.say(head % (method, len(body)) + body)
    assert error_codes(browser.hear_end()) == ["http-request"]
    assert victim.ping() == b""


def test_half_a_command_and_then_silence_is_told_and_closed_but_silence_between_is_not(
    start: Start, dial: Dial
) -> None:
    daemon = start("--command-timeout", "0.3")
    silent, listener, halfway, header = (dial(daemon) for _ in range(4))
    listener.say(b"sub half\n")
    listener.ping()
    silent.ping()
    halfway.say(b"pub half 1 a\npub half 5 hel")
    header.say(b"pub ha")
    assert error_codes(halfway.hear_end()) == ["command-timeout"]
    assert error_codes(header.hear_end()) == ["command-timeout"]
    assert silent.ping() == b""
    assert listener.ping() == b"pub half 1 a\n"
    assert silent.stats()["closed"] == {"command-timeout": 2}


def test_half_a_command_and_then_the_end_is_dropped_and_counted(daemon: Daemon, dial: Dial) -> None:
    listener, halfway = dial(daemon), dial(daemon)
    listener.say(b"sub half\n")
    listener.ping()
    halfway.say(b"pub half 1 a\npub half 5 hel")
    halfway.shut()
    assert halfway.hear_end() == b""
    assert listener.ping() == b"pub half 1 a\n"
    assert listener.stats()["half_frames"] == 1


# Overlaps


def test_overlapping_substrings_bring_one_copy(shared: Daemon, dial: Dial) -> None:
    line, other = dial(shared), dial(shared)
    line.say(b"sub over\nsub lap\nsub overlap/on\nsub ver\nsub e\n")
    line.ping()
    other.say(b"pub overlap/one 1 x\n" * 3)
    other.ping()
    assert line.ping() == b"pub overlap/one 1 x\n" * 3


def test_the_same_sub_twice_brings_one_copy_and_one_unsub_ends_it(
    shared: Daemon, dial: Dial
) -> None:
    line, other = dial(shared), dial(shared)
    line.say(b"sub twice\nsub twice\n")
    assert line.ping() == b""
    other.say(b"pub twice 1 x\n")
    other.ping()
    assert line.ping() == b"pub twice 1 x\n"
    line.say(b"unsub twice\n")
    assert line.ping() == b""
    other.say(b"pub twice 1 y\n")
    other.ping()
    assert line.ping() == b""
    line.say(b"unsub twice\n")
    assert error_codes(line.ping()) == ["not-subscribed"]


# Forwarding, events, the daemon's own names


def test_a_forwarded_copy_goes_to_those_who_do_not_get_the_direct_message(
    shared: Daemon, dial: Dial
) -> None:
    direct, copies, both, everything, publisher = (dial(shared) for _ in range(5))
    direct.say(b"sub //org/chat\n")
    copies.say(b"sub //fwd/org/chat\n")
    both.say(b"sub //fwd/org/chat\nsub //org/chat\n")
    everything.say(b"sub org/chat\n")
    for line in (direct, copies, both, everything):
        line.ping()
    publisher.say(b"pub //org/chat/a 2 hi\npub //org/chat/bb 3 you\npub //org/chat/a 2 ho\n")
    publisher.ping()
    said = b"pub //org/chat/a 2 hi\npub //org/chat/bb 3 you\npub //org/chat/a 2 ho\n"
    assert direct.ping() == said
    assert copies.ping() == said.replace(b"//", b"//fwd/")
    assert both.ping() == said
    assert everything.ping() == said


def test_a_name_under_fwd_and_a_local_name_are_not_wrapped(shared: Daemon, dial: Dial) -> None:
    line, publisher = dial(shared), dial(shared)
    line.say(b"sub //fwd/\n")
    line.ping()
    publisher.say(b"pub //fwd/mesh/a 1 a\npub local/a 1 b\npub //mesh/a 1 c\npub /mesh/a 1 d\n")
    publisher.ping()
    assert line.ping() == b"pub //fwd/mesh/a 1 a\npub //fwd/mesh/a 1 c\n"


def test_changed_subscriptions_change_who_gets_the_copy(shared: Daemon, dial: Dial) -> None:
    line, publisher = dial(shared), dial(shared)
    said = b"pub //turn/a 1 x\n"
    for typed, expected in (
        (b"sub //fwd/turn/\n", b"pub //fwd/turn/a 1 x\n"),
        (b"sub //turn/\n", b"pub //turn/a 1 x\n"),
        (b"unsub //fwd/turn/\n", b"pub //turn/a 1 x\n"),
        (b"sub //fwd/turn/\nunsub //turn/\n", b"pub //fwd/turn/a 1 x\n"),
        (b"unsub //fwd/turn/\n", b""),
    ):
        line.say(typed)
        line.ping()
        publisher.say(said)
        publisher.ping()
        assert line.ping() == expected, typed


def test_events_tell_which_connection_was_cut_and_why(daemon: Daemon, dial: Dial) -> None:
    watcher, nosy, culprit = dial(daemon), dial(daemon), dial(daemon)
    watcher.say(b"sub //pubsubd/events\n")
    nosy.say(b"sub s\nsub events\nsub //pub\n")
    watcher.ping()
    nosy.ping()
    culprit.say(b"pub x 3 hello\n")
    culprit.hear_end()
    name, data = watcher.hear_frame()
    event = json.loads(data)
    assert name == "//pubsubd/events"
    assert event["event"] == "closed"
    assert event["peer"] == culprit.label
    assert event["reason"] == "wrong-length"
    assert nosy.ping() == b"", "what is the daemon's own went to a substring that is not"


def test_sub_s_is_not_flooded_with_statistics_and_those_who_ask_get_them(
    daemon: Daemon, dial: Dial
) -> None:
    watcher, nosy = dial(daemon), dial(daemon)
    watcher.say(b"sub //pubsubd/stats\n")
    nosy.say(b"sub s\nsub stats\nsub /\n")
    watcher.ping()
    nosy.ping()
    name, data = watcher.hear_frame()  # the next one is due within 10 s
    assert name == "//pubsubd/stats"
    assert json.loads(data)["subscriptions"] == 4
    assert nosy.ping() == b""


def test_explain_answers_who_would_receive_a_name_and_why(daemon: Daemon, dial: Dial) -> None:
    direct, copies, asker = dial(daemon), dial(daemon), dial(daemon)
    direct.say(b"sub chat\nsub //org\nsub else\n")
    copies.say(b"sub //fwd/org\n")
    direct.ping()
    copies.ping()
    asker.say(frame("//pubsubd/explain", b"//org/chat"))
    name, data = asker.hear_frame()
    answer = json.loads(data)
    assert name == "//pubsubd/explain"
    assert (answer["name"], answer["count"]) == ("//org/chat", 2)
    told = {receiver["peer"]: receiver for receiver in answer["receivers"]}
    assert sorted(told[direct.label]["substrings"]) == ["//org", "chat"]
    assert told[direct.label]["as"] == "//org/chat"
    assert told[copies.label]["substrings"] == ["//fwd/org"]
    assert told[copies.label]["as"] == "//fwd/org/chat"


def test_a_client_cannot_publish_under_the_daemons_own_names(daemon: Daemon, dial: Dial) -> None:
    watcher, liar = dial(daemon), dial(daemon)
    watcher.say(b"sub //pubsubd/\nsub pubsubd\n")
    watcher.ping()
    liar.say(b"pub //pubsubd/events 2 {}\npub //pubsubd/stats 0 \n")
    assert error_codes(liar.ping()) == ["unknown-request"]
    assert watcher.ping() == b""


def test_one_connection_too_many_is_told_so_and_the_others_go_on(start: Start, dial: Dial) -> None:
    daemon = start("--max-connections", "3")
    lines = [dial(daemon) for _ in range(3)]
    for line in lines:
        line.ping()
    extra = dial(daemon)
    assert error_codes(extra.hear_end()) == ["too-many-connections"]
    daemon.wait_log("reason=too-many-connections")
    lines[0].say(b"sub room\n")
    lines[0].ping()
    lines[2].close()
    wait_until(lambda: lines[1].stats()["connections"] == 2, "the place is free again")
    late = dial(daemon)
    late.say(b"pub room 1 x\n")
    assert late.ping() == b""
    assert lines[0].ping() == b"pub room 1 x\n"


def test_one_subscription_too_many_is_told_so_and_nothing_is_lost(start: Start, dial: Dial) -> None:
    daemon = start("--max-subscriptions", "2")
    line = dial(daemon)
    line.say(b"sub a\nsub b\nsub a\nsub c\nunsub a\nsub d\npub c 1 x\npub d 1 y\n")
    heard = line.ping()
    assert error_codes(heard) == ["too-many-subscriptions"]
    assert frames(heard)[-1] == ("d", b"y")
    assert len(frames(heard)) == 2


# Unix socket


def test_the_unix_socket_speaks_the_same_and_is_removed_at_the_end(
    start: Start, dial: Dial, tmp_path: Path
) -> None:
    path = tmp_path / "sock"
    daemon = start("--unix", str(path))
    assert daemon.ports["unix"] == str(path)
    tcp, unix = dial(daemon), Line(str(path))
    try:
        unix.say(b"sub a\nhello\n")
        assert error_codes(unix.ping()) == ["unknown-command"]
        tcp.say(b"pub a 1 x\n")
        tcp.ping()
        assert unix.ping() == b"pub a 1 x\n"
    finally:
        unix.close()
        tcp.close()
    daemon.stop()
    assert not path.exists()
    assert not daemon.ports_file.exists()


def test_a_socket_that_a_killed_daemon_left_behind_is_taken_over(
    start: Start, tmp_path: Path
) -> None:
    path = tmp_path / "sock"
    start("--unix", str(path)).kill()
    assert path.exists()
    start("--unix", str(path))
    line = Line(str(path))
    try:
        assert line.ping() == b""
    finally:
        line.close()


# Half-close


def test_a_peer_that_shuts_its_sending_side_gets_what_is_due_and_is_closed(
    shared: Daemon, dial: Dial
) -> None:
    line, other = dial(shared), dial(shared)
    other.say(b"sub shut\n")
    other.ping()
    line.say(b"sub shut\npub shut 1 x\nbogus\nunsub shut\npub shut 1 y\n")
    line.shut()
    heard = line.hear_end()
    assert heard.startswith(b"pub shut 1 x\n")
    assert error_codes(heard) == ["unknown-command"]
    assert other.ping() == b"pub shut 1 x\npub shut 1 y\n"


@pytest.mark.parametrize("how", ["close", "vanish"])
def test_a_half_closed_listener_goes_on_hearing_and_is_missed_when_it_is_gone(
    daemon: Daemon, dial: Dial, how: str
) -> None:
    listener, publisher = dial(daemon), dial(daemon)
    listener.say(b"sub half\n")
    listener.ping()
    listener.shut()
    publisher.say(b"pub half 1 a\n")
    assert listener.hear(13) == b"pub half 1 a\n"
    publisher.say(b"pub half 1 b\n")
    assert listener.hear(13) == b"pub half 1 b\n"
    getattr(listener, how)()

    def gone() -> bool:
        if how == "close":  # TCP tells this to nobody until something is sent
            publisher.say(b"pub half 1 c\n")
        return bool(publisher.stats()["connections"] == 1)

    wait_until(gone, "the daemon notices that the listener is gone")
    assert publisher.stats()["subscriptions"] == 0


# nc


def _nc(daemon: Daemon, *options: str) -> list[str]:
    host, port = daemon.address
    return [tool("nc"), *options, host, str(port)]


def test_printf_into_nc_is_carried_out_and_nc_ends(daemon: Daemon, dial: Dial) -> None:
    listener = dial(daemon)
    listener.say(b"sub chat\n")
    listener.ping()
    command = "printf 'pub chat/main 5 hello\\nwhat\\npub chat/main 3 you\\n' | " + " ".join(
        _nc(daemon, "-N")
    )
    done = subprocess.run(
        ["/bin/sh", "-c", command], capture_output=True, timeout=DEADLINE, check=True
    )
    assert error_codes(done.stdout) == ["unknown-command"]
    assert listener.ping() == b"pub chat/main 5 hello\npub chat/main 3 you\n"


def test_nc_with_a_subscription_and_its_input_at_an_end_goes_on_listening(
    daemon: Daemon, dial: Dial
) -> None:
    publisher = dial(daemon)
    with program(*_nc(daemon, "-N")) as nc:
        assert nc.stdin is not None
        assert nc.stdout is not None
        nc.stdin.write(b"sub news\n")
        nc.stdin.close()
        wait_until(lambda: publisher.stats()["subscriptions"] == 1, "nc has subscribed")
        for number in range(3):
            said = b"pub news 1 %d\n" % number
            publisher.say(said)
            assert nc.stdout.read(len(said)) == said
        nc.send_signal(signal.SIGTERM)
        nc.wait(DEADLINE)

        def gone() -> bool:
            publisher.say(b"pub news 1 x\n")
            return bool(publisher.stats()["connections"] == 1)

        wait_until(gone, "the daemon notices that nc has gone")


def test_two_terminals_with_nc(daemon: Daemon) -> None:
    with program(*_nc(daemon)) as reader, program(*_nc(daemon)) as writer:
        assert reader.stdin is not None
        assert reader.stdout is not None
        assert writer.stdin is not None
        reader.stdin.write(b"sub chat\nsubscribe chat\n")
        reader.stdin.flush()
        assert reader.stdout.readline().startswith(b"pub //pubsubd/error ")
        writer.stdin.write(b"pub chat/main 5 hello\n")
        writer.stdin.flush()
        assert reader.stdout.readline() == b"pub chat/main 5 hello\n"


# telnet


class Terminal:
    """A program of the system on a terminal, and somebody who types."""

    def __init__(self, *command: str) -> None:
        self._fd, slave = pty.openpty()
        try:
            self.process = subprocess.Popen(
                command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
            )
        finally:
            os.close(slave)
        self._seen = b""

    def type(self, keys: bytes) -> None:
        """Type."""
        os.write(self._fd, keys)

    def see(self, text: bytes) -> bytes:
        """Wait until ``text`` is shown, and return what was shown up to there."""
        end = time.monotonic() + DEADLINE
        while text not in self._seen:
            ready, _, _ = select.select([self._fd], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"{text!r} is never shown after {self._seen!r}"
            self._seen += os.read(self._fd, 4096)
        stop = self._seen.index(text) + len(text)
        shown, self._seen = self._seen[:stop], self._seen[stop:]
        return shown

    def close(self) -> None:
        """End the program."""
        self.process.kill()
        self.process.wait()
        os.close(self._fd)


def test_a_telnet_session(daemon: Daemon, dial: Dial) -> None:
    other = dial(daemon)
    other.say(b"sub tel/\n")
    other.ping()
    host, port = daemon.address
    telnet = Terminal(tool("telnet"), host, str(port))
    try:
        telnet.see(b"Escape character is")
        telnet.see(b"\n")
        telnet.type(b"sub chat\n")
        telnet.see(b"sub chat\r\n")  # the terminal's echo
        telnet.type(b"\n")
        telnet.type(b"bub chat\n")
        telnet.see(b'unknown-command "bub" is not pub, sub or unsub; try help\r\n')
        telnet.type(b"\x03")  # Ctrl-C: it shows nothing until the daemon has answered
        telnet.type(b"pub tel/a - hello\n")
        telnet.type(b"pub chat - seen\n")
        telnet.see(b"pub chat 4 seen\r\n")
        telnet.type(b"\x04pub chat - too\n")
        telnet.see(b"pub chat 3 too\r\n")
        telnet.type(b"pub tel/b 0 \n")
        telnet.type(b"pub tel/c 3 hello\n")
        shown = telnet.see(b"closed by foreign host")
        assert b"wrong-length" in shown
    finally:
        telnet.close()
    assert other.ping() == b"pub tel/a 5 hello\npub tel/b 0 \n"


@pytest.mark.parametrize("word", [b"quit", b"EXIT"])
def test_quit_ends_the_connection_when_all_is_sent(daemon: Daemon, dial: Dial, word: bytes) -> None:
    line = dial(daemon)
    line.say(b"sub chat\npub chat - x\n" + word + b"\npub chat - y\n")
    assert line.hear_end() == b"pub chat 1 x\n"
    other = dial(daemon)
    assert other.stats()["errors"] == other.stats()["closed"] == {}
    assert other.stats()["connections"] == 1


def test_telnet_shows_what_others_say(daemon: Daemon, dial: Dial) -> None:
    publisher = dial(daemon)
    host, port = daemon.address
    telnet = Terminal(tool("telnet"), host, str(port))
    try:
        telnet.see(b"Escape character is")
        telnet.type(b"sub chat\n")
        wait_until(lambda: publisher.stats()["subscriptions"] == 1, "telnet has subscribed")
        publisher.say(b"pub chat/main 5 hello\n")
        telnet.see(b"pub chat/main 5 hello\r\n")
    finally:
        telnet.close()
