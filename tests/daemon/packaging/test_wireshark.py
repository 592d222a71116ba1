"""Does Wireshark see what the daemon sees?"""

from __future__ import annotations

import itertools
import re
import ssl
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pubsubd.protocol.limits import MIB
from pubsubd.protocol.wire import is_utf8
from tests.captures import DISSECTOR, Segment, fields, in_segments, tshark, write
from tests.daemons import frame
from tests.examples import examples
from tests.tables import Table
from tests.unit.broker.test_broker_model import speeches

ADVERT = (
    b"127.0.0.1 9014\nnode 1764300000000 7 1764300000001\n"
    b"version 0.1.0\nsite ulm\nrack r7\n"
    b"link b out 1764300000 0.142 1520 40217\nlink c in 1764300001 - 12 1004\n"
    b"later line\nwant //fwd/chat/"
)
NONCE = b"00112233445566778899aabbccddeeff"
HELLO = b"1 org a 1764300000000 1764300000001 " + NONCE
BATCH = b"a@1764300000000 12 255 2 vouched\npub //fwd/chat/main 2 hi\npub //fwd/x 3 a\nb\n"
REFUSED = {
    "unknown-command",
    "bad-name",
    "name-too-long",
    "bad-length",
    "wrong-length",
    "payload-too-large",
    "line-too-long",
    "http-request",
}
"""The codes of what can be seen in the bytes alone."""

EVERYTHING = b"".join(
    [
        b"sub chat\nUNSUB chat\r\n\n\r\nPub chat/m\xc3\xa9 7 h\xc3\xa9llo\n\r\n",
        b"pub //x/y 000 \npub x 3 \x00\xff\n\nhello\nsub\npub x -5 sub y\npub  3 bad\n",
        frame("//pubsubd/error", b'unknown-command "hello" is not pub, sub or unsub'),
        frame("//pubsubd/hello", HELLO),
        frame("//pubsubd/hello", HELLO + b" -"),
        frame("//pubsubd/hello", b"proof abcdef"),
        frame("//pubsubd/hello", b"welcome"),
        frame("//pubsubd/heartbeat", b"ping 7"),
        frame("//pubsubd/auth", b"alice secret"),
        frame("//pubsubd/auth", b"t0ken"),
        frame("//pubsubd/auth", b"ok alice"),
        frame("//pubsubd/relay", BATCH),
        frame("//peers/org/a", ADVERT),
        frame("//fwd/peers/org/a", ADVERT),
    ]
)
FIELDS = [
    f"pubsub.{name}"
    for name in re.findall(r'^field\("([a-z.]+)"', DISSECTOR.read_text("ascii"), re.MULTILINE)
]
"""All that the script says there is."""


def test_all_that_there_is_has_a_field(tmp_path: Path) -> None:
    write(tmp_path / "a.pcap", [[Segment(EVERYTHING)]])
    (found,) = fields(tmp_path / "a.pcap", FIELDS)
    assert {name.removeprefix("pubsub."): values for name, values in found.items() if values} == {
        "verb": ["sub", "unsub", *["pub"] * 3, "sub", *["pub"] * 15],
        "name": [
            *("chat/mé", "//x/y", "x", "//pubsubd/error", *["//pubsubd/hello"] * 4),
            *("//pubsubd/heartbeat", *["//pubsubd/auth"] * 3, "//pubsubd/relay"),
            *("//fwd/chat/main", "//fwd/x", "//peers/org/a", "//fwd/peers/org/a"),
        ],
        "length": [
            *("7", "0", "3", "3", "48", "68", "70", "12", "7", "6", "12", "5", "8"),
            *(str(len(BATCH)), "2", "3", str(len(ADVERT)), str(len(ADVERT))),
        ],
        "data": found["pubsub.data"],  # compared below
        "text": found["pubsub.text"],
        "substring": ["chat", "chat"],
        "line": ["hello", "pub x -5 sub y"],
        "request": ["error", *["hello"] * 4, "heartbeat", *["auth"] * 3, "relay"],
        "violation": ["unknown-command", "bad-length", "bad-name"],
        "error.code": ["unknown-command"],
        "error.text": ['"hello" is not pub, sub or unsub'],
        "auth.name": ["alice"],
        "auth.secret": ["secret"],
        "auth.token": ["t0ken"],
        "auth.identity": ["alice"],
        "hello.version": ["1", "1"],
        "hello.mesh": ["org", "org"],
        "hello.node": ["a", "a"],
        "hello.life": ["1764300000000"] * 2,
        "hello.start": ["1764300000001"] * 2,
        "hello.nonce": [NONCE.decode()] * 2,
        "hello.proof": ["-", "abcdef"],
        "hello.welcome": ["welcome"],
        "heartbeat.kind": ["ping"],
        "heartbeat.number": ["7"],
        "relay.origin": ["a"],
        "relay.life": ["1764300000000"],
        "relay.sequence": ["12"],
        "relay.ttl": ["255"],
        "relay.count": ["2"],
        "relay.vouched": ["vouched"],
        "advert.mesh": ["org", "org"],
        "advert.node": ["a", "a"],
        "advert.host": ["127.0.0.1"] * 2,
        "advert.port": ["9014"] * 2,
        "advert.life": ["1764300000000"] * 2,
        "advert.sequence": ["7"] * 2,
        "advert.start": ["1764300000001"] * 2,
        "advert.link": ["b out 1764300000 0.142 1520 40217", "c in 1764300001 - 12 1004"] * 2,
        "advert.want": ["//fwd/chat/"] * 2,
        "advert.version": ["0.1.0"] * 2,
        "advert.site": ["ulm"] * 2,
        "advert.rack": ["r7"] * 2,
        "advert.other": ["later line"] * 2,
    }
    data = [bytes.fromhex(text) for text in found["pubsub.data"]]
    assert data[:3] == ["héllo\n".encode(), b"\x00\xff\n", b"bad"]
    assert data[-5:] == [BATCH, b"hi", b"a\nb", ADVERT, ADVERT]
    assert found["pubsub.text"][:2] == ["héllo\\n", "bad"]  # and none of what is not text


def test_commands_cut_at_any_byte_are_the_same(tmp_path: Path) -> None:
    streams = [[Segment(EVERYTHING)], in_segments(EVERYTHING, 1), in_segments(EVERYTHING, 7)]
    streams += [
        [Segment(EVERYTHING[:cut]), Segment(EVERYTHING[cut:])] for cut in range(1, len(EVERYTHING))
    ]
    write(tmp_path / "a.pcap", streams)
    whole, *others = fields(tmp_path / "a.pcap", FIELDS)
    for cuts, found in zip(itertools.count(-1), others, strict=False):
        assert found == whole, f"cut at {cuts}"
    assert len(others) == len(EVERYTHING) + 1
    assert whole["pubsub.incomplete"] == []


def test_a_large_message_is_put_together_from_its_segments(tmp_path: Path) -> None:
    data = bytes(range(256)) * 1024
    write(tmp_path / "a.pcap", [in_segments(frame("big", data) + b"sub x\n", 1448, client=False)])
    (found,) = fields(tmp_path / "a.pcap", ["pubsub.length", "pubsub.data", "pubsub.substring"])
    assert found["pubsub.length"] == [str(len(data))]
    assert bytes.fromhex(found["pubsub.data"][0]) == data
    assert found["pubsub.substring"] == ["x"]


@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")  # of a long repr
@settings(
    max_examples=examples(8),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],  # to find a smaller example would take hundreds of tsharks
)
@given(st.lists(speeches, min_size=20, max_size=40))
def test_what_the_daemon_refuses_is_marked_with_its_code(
    tmp_path_factory: pytest.TempPathFactory, said: list[bytes]
) -> None:
    capture = tmp_path_factory.mktemp("any") / "a.pcap"
    said = [speech[: 30 * 1024] or b"\n" for speech in said]
    write(capture, [[Segment(speech)] for speech in said])
    wanted = ["pubsub.violation", "pubsub.name", "pubsub.substring"]
    found = fields(capture, wanted, "-o", f"pubsub.max_payload:{MIB}")
    for speech, one in zip(said, found, strict=True):
        table = Table("a")
        table.say("a", speech)
        told = [code for kind, code in table.messages("a") if kind == "error" and code in REFUSED]
        assert one["pubsub.violation"] == told, speech


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (b"pub x 3 hello\n", "wrong-length"),
        (b"pub x 3 abc\rx\n", "wrong-length"),
        (b"pub x 9999999999 hello\n", "payload-too-large"),
        (b"x" * 1089, "line-too-long"),
        (b"POST / HTTP/1.1\r\n", "http-request"),
    ],
)
def test_nothing_is_read_after_what_closes_the_connection(
    tmp_path: Path, said: bytes, code: str
) -> None:
    stream = [
        Segment(b"sub a\n" + said),
        Segment(frame("//pubsubd/error", code.encode()), client=False),
        Segment(b"sub b\n"),
        Segment(b"pub c 9 half"),
    ]
    write(tmp_path / "a.pcap", [stream, [Segment(b"sub d\n")]])
    wanted = ["pubsub.violation", "pubsub.substring", "pubsub.unread", "pubsub.error.code"]
    for passes in ([], ["-2"]):
        found, other = fields(tmp_path / "a.pcap", wanted, *passes)
        assert found["pubsub.violation"] == [code]
        assert found["pubsub.error.code"] == [code]
        assert found["pubsub.substring"] == ["a"]
        assert found["pubsub.unread"][-2:] == [b"sub b\n".hex(), b"pub c 9 half".hex()]
        assert other["pubsub.substring"] == ["d"]


NOT_SAID = [
    ("hello", b"", "a hello is"),
    ("hello", b"2 org a 1 1 " + NONCE, "a hello is"),
    ("hello", b"1 org a x 1 " + NONCE, "is no number"),
    ("hello", b"1 org a  1 " + NONCE, "an empty word"),
    ("hello", b"proof ", "a hello is"),
    ("heartbeat", b"pang 1", "a heartbeat is"),
    ("heartbeat", b"ping x", "number of a heartbeat"),
    ("auth", b"a b c", "a login is"),
    ("auth", b"", "a login is"),
    ("auth", b"alice ", "a login is"),
    ("error", b"", "an error without"),
    ("relay", b"a@1 1 255 1", "begins with a line"),
    ("relay", b"a 1 255 1\npub x 1 x\n", "does not begin with"),
    ("relay", b"a@1 1 255 1 true\npub x 1 x\n", "does not begin with"),
    ("relay", b"a@1 1 99999999999 1\npub x 1 x\n", "is no number"),
    ("relay", b"a@1 1 255 2\npub x 1 x\n", "1 messages, not 2"),
    ("relay", b"a@1 1 255 1\npub x 1 x\nsub y\n", "something else"),
    ("relay", b"a@1 1 255 1\npub x 9 x\n", "something else"),
    ("relay", b"a@1 1 255 1\npub x 1 xy\n", "something else"),
    ("relay", b"a@1 1 255 1\npub x 1 x", "something else"),
    ("//fwd/peers/org/a", b"", "the first line"),
    ("//fwd/peers/org/a", b"localhost 9014", "begins with node"),
    ("//fwd/peers/org/a", b"localhost 99999999999\n", "the second line"),
    ("//fwd/peers/org/a", b"localhost 1\nnode 1 2", "the second line"),
    ("//peers/org/a", b"localhost 1\nnode 1 2 3\nlink b up 1 - 0 0", "a link of an advert"),
]
"""Name, data, and what is told of it."""


def test_what_daemons_do_not_say_to_each_other_is_marked(tmp_path: Path) -> None:
    streams = []
    for name, data, _ in NOT_SAID:
        name = name if name.startswith("//") else f"//pubsubd/{name}"  # noqa: PLW2901
        streams.append([Segment(frame(name, data) + b"sub after\n")])
    write(tmp_path / "a.pcap", streams)
    found = fields(tmp_path / "a.pcap", ["_ws.expert.message", "pubsub.substring"])
    for (name, data, what), one in zip(NOT_SAID, found, strict=True):
        assert any(what in told for told in one["_ws.expert.message"]), (name, data, one)
        assert one["pubsub.substring"] == ["after"]


def test_what_telnet_sends_by_itself_is_told_apart_from_commands(tmp_path: Path) -> None:
    ctrl_c, refusal = b"\xff\xf4\xff\xfd\x06", b"\xff\xfc\x06"
    size = b"\xff\xfb\x1f\xff\xfa\x1f\0\x50\0\x18\xff\xf0"
    stream = [
        Segment(ctrl_c + b"\x04sub a\r\n"),
        Segment(refusal + frame("a", b"x") + refusal, client=False),
        Segment(size),
        Segment(b"unsub a\r\n"),
        Segment(b"\xffa\n"),
    ]
    write(tmp_path / "a.pcap", [stream])
    wanted = ["pubsub.telnet", "pubsub.verb", "pubsub.violation"]
    (found,) = fields(tmp_path / "a.pcap", wanted)
    telnet = [ctrl_c + b"\x04", refusal, refusal, size]
    assert found["pubsub.telnet"] == [part.hex() for part in telnet]
    assert found["pubsub.verb"] == ["sub", "pub", "unsub"]
    assert found["pubsub.violation"] == ["unknown-command"]


def test_names_are_utf8_where_the_daemon_says_so(tmp_path: Path) -> None:
    names = [
        *(b"\xc3\xa9", b"\xe0\xa0\x80", b"\xed\x9f\xbf", b"\xf0\x90\x80\x80", b"\xf4\x8f\xbf\xbf"),
        *(b"\xc3", b"\xc3x", b"\x80", b"\xc0\xaf", b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xe2\x82"),
        *(b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xff"),
    ]
    write(tmp_path / "a.pcap", [[Segment(b"sub " + name + b"\n")] for name in names])
    for name, found in zip(names, fields(tmp_path / "a.pcap", ["pubsub.violation"]), strict=True):
        assert found["pubsub.violation"] == ([] if is_utf8(name) else ["bad-name"]), name


def test_what_the_capture_has_cut_off_is_marked_as_a_part(tmp_path: Path) -> None:
    said = frame("chat", b"hello") + frame("chat", b"hello again")
    write(tmp_path / "a.pcap", [[Segment(said, captured=len(said) - 5)]])
    (found,) = fields(tmp_path / "a.pcap", ["pubsub.name", "pubsub.incomplete"])
    assert found["pubsub.name"] == ["chat"]
    assert found["pubsub.incomplete"] == [said[len(frame("chat", b"hello")) : -5].hex()]


def test_the_list_of_packets_says_what_each_one_is_about(tmp_path: Path) -> None:
    stream = [
        Segment(b"sub chat\npub chat/main 5 hel"),
        Segment(b"lo\npub chat/main 5 hello\n"),
        Segment(frame("//pubsubd/relay", BATCH), client=False),
        Segment(b"pub x 1 y\n" * 9),
        Segment(b"pub \x1b[31m 1 y\n"),
    ]
    write(tmp_path / "a.pcap", [stream])
    told = tshark(tmp_path / "a.pcap", "-Y", "pubsub", "-T", "fields", "-e", "_ws.col.Info")
    assert told.splitlines() == [
        "sub chat",
        "pub chat/main, pub chat/main",
        "relay 12 of a: pub //fwd/chat/main, pub //fwd/x",
        "pub x, pub x, pub x, pub x, and 5 more",
        "pub .[31m",
    ]


def test_other_ports_are_a_preference(tmp_path: Path) -> None:
    stream = [Segment(b"PUB X 1 Y\n")]  # capitals, which are not looked for on any port
    wanted = ["pubsub.name"]
    write(tmp_path / "a.pcap", [stream], port=9024)
    assert fields(tmp_path / "a.pcap", wanted)[0]["pubsub.name"] == []
    found = fields(tmp_path / "a.pcap", wanted, "-o", "pubsub.ports:9014,9024-9030")
    assert found[0]["pubsub.name"] == ["X"]
    write(tmp_path / "b.pcap", [stream])
    found = fields(tmp_path / "b.pcap", wanted, "-o", "pubsub.ports:9024")
    assert found[0]["pubsub.name"] == []


def test_on_any_port_what_begins_as_a_command_is_found(tmp_path: Path) -> None:
    streams = [
        [Segment(b"pub chat 5 hel"), Segment(b"lo\n"), Segment(b"pub chat 2 hi\n", client=False)],
        [Segment(b"sub chat\n"), Segment(b"pub chat 2 hi\n", client=False)],
    ]
    write(tmp_path / "a.pcap", streams, port=20_014)
    found = fields(tmp_path / "a.pcap", ["pubsub.name", "pubsub.substring"])
    assert found == [
        {"pubsub.name": ["chat", "chat"], "pubsub.substring": []},
        {"pubsub.name": ["chat"], "pubsub.substring": ["chat"]},
    ]


def test_on_any_port_other_protocols_are_left_alone(tmp_path: Path) -> None:
    said = [
        b"PUB chat 5\r\nhello\r\n",  # NATS
        b"SUB chat 1\r\n",
        b"sub chat 1\r\n",
        b"publish this\n",
        b"pub \xff 1 x\n",
        b"subject: hello\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    ]
    write(tmp_path / "a.pcap", [[Segment(one)] for one in said], port=20_014)
    for found in fields(tmp_path / "a.pcap", ["_ws.col.Protocol"]):
        assert "PUBSUB" not in found["_ws.col.Protocol"]


def test_the_hub_port_is_http_and_websocket(tmp_path: Path) -> None:
    stream = [
        Segment(
            b"GET /ws HTTP/1.1\r\nHost: localhost:9015\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            b"Sec-WebSocket-Version: 13\r\n\r\n"
        ),
        Segment(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
            client=False,
        ),
        Segment(b"\x81\x05hello", client=False),
    ]
    write(tmp_path / "a.pcap", [stream], port=9015)
    (found,) = fields(tmp_path / "a.pcap", ["http.request.uri", "websocket.payload.text"])
    assert found == {"http.request.uri": ["/ws"], "websocket.payload.text": ["hello"]}


def test_a_listener_with_tls_is_handed_over(tmp_path: Path) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="a.example")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    hello = outgoing.read()
    write(tmp_path / "a.pcap", [[Segment(hello[:100]), Segment(hello[100:])]])
    wanted = ["tls.handshake.extensions_server_name", "pubsub.violation"]
    (found,) = fields(tmp_path / "a.pcap", wanted)
    assert found == {wanted[0]: ["a.example"], wanted[1]: []}


def test_the_script_names_each_code_that_bytes_alone_can_earn() -> None:
    text = DISSECTOR.read_text(encoding="ascii")
    assert all(f'"{code}"' in text for code in REFUSED)
