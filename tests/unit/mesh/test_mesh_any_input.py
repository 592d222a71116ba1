"""Whatever comes over a link, or instead of a hello, costs at most that connection."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pubsubd.mesh.hello import HELLO
from pubsubd.mesh.sim.world import EPOCH
from pubsubd.protocol import wire
from tests.webs import Web, build

WORDS = st.sampled_from(
    [
        b"1",
        b"0",
        b"-1",
        b"255",
        b"a@1",
        b"b@%d" % (EPOCH * 1000),
        b"c@9",
        b"@",
        b"99999999999999999999",
        b"\xff",
        b"",
        b"+1",
        b"default",
        b"b",
        b"proof",
        b"-",
        b"welcome",
        b"ping",
        b"pong",
        b"0" * 32,
    ]
)
LINES = st.lists(WORDS, max_size=7).map(b" ".join)
FRAMES = st.sampled_from(
    [
        b"pub //fwd/x 1 1\n",
        b"pub //x 1 1\n",
        b"PUB //fwd/x 1 1\n",
        b"sub //fwd/y\n",
        b"pub //fwd/x 9",
        b"pub //pubsubd/stats 0 \n",
        b"pub //fwd/\xff 1 1\n",
        b"\n",
        b"pub //fwd/x 1 12\n",
        b"",
        b"junk",
    ]
)
DATA = st.one_of(
    st.binary(max_size=60),
    LINES,
    st.tuples(LINES, st.lists(FRAMES, max_size=4).map(b"".join)).map(b"\n".join),
    st.tuples(st.just(b"h 1\nnode %d 2 1" % (EPOCH * 1000 + 1)), LINES).map(b"\n".join),
)
NAMES = st.sampled_from(
    [
        b"//pubsubd/relay",
        b"//pubsubd/heartbeat",
        HELLO,
        b"//fwd/peers/default/c",
        b"//fwd/peers/default/a",
        b"//fwd/peers/default/b",
        b"//fwd/peers/default/",
        b"//pubsubd/error",
        b"//pubsubd/x",
        b"//fwd/x",
        b"x",
    ]
)


@settings(deadline=None)
@given(st.lists(st.tuples(NAMES, DATA), max_size=6), st.binary(max_size=8))
def test_anything_over_a_link(frames: list[tuple[bytes, bytes]], rest: bytes) -> None:
    web = build(["ab"])
    web["a"].say("sub", b"sub //fwd/x\n")
    web["a"].hears_all("sub")
    peer = web["a"].mesh.links["b"].peer
    data = b"".join(wire.frame(name, said) for name, said in frames) + rest
    while web["a"].broker.receive(peer, data):
        data = b""
    heard = web["a"].hears("sub")
    assert all(name == b"//fwd/x" for name, _ in heard)
    assert web["a"].broker.router.subscriptions <= 1
    web.run(5)
    web["a"].say("sub", b"pub //fwd/x 2 ok\n")
    assert web["a"].hears("sub")[-1] == (b"//fwd/x", b"ok")


@settings(deadline=None)
@given(st.lists(st.tuples(NAMES, DATA), max_size=4), st.binary(max_size=8), st.booleans())
def test_anything_instead_of_a_hello(
    frames: list[tuple[bytes, bytes]], rest: bytes, dialled: bool
) -> None:
    web = Web()
    web.add("a", secret=b"a secret")
    peer = web["a"].broker.join("x", lambda _data: None)
    if dialled:
        web["a"].mesh.greet(peer, "x")
    data = b"".join(wire.frame(name, said) for name, said in frames) + rest
    while web["a"].broker.receive(peer, data):
        data = b""
    web.run(30)
    assert web["a"].mesh.links == {}
    web["a"].say("sub", b"sub x\npub x 2 ok\n")
    assert web["a"].hears("sub") == [(b"x", b"ok")]
