"""What the daemon answers itself on the line port."""

from __future__ import annotations

from soaklib.wires import MIB, frame

from .attack import attack
from .bounds import LONG_SUBSTRING, PAYLOAD, PENDING
from .parts import new_names, packed, repeated
from .stage import Stage


@attack("stats", "//pubsubd/stats", crowd=True, each=PENDING)
def stats(stage: Stage) -> None:
    """Asks for the statistics, again and again."""
    stage.flood(stage.line, repeated(frame(b"//pubsubd/stats", b"")))


@attack("stats-unread", "//pubsubd/stats", "max_pending", each=PENDING)
def stats_unread(stage: Stage) -> None:
    """Asks for the statistics, and never reads them."""
    stage.flood(stage.line, repeated(frame(b"//pubsubd/stats", b"")), reads=False)


@attack("stats-of-2000", "//pubsubd/stats", each=PENDING)
def stats_of_many(stage: Stage) -> None:
    """Asks for the statistics of 2,000 connections."""
    stage.crowd(2_000, stage.line, lambda _: b"")
    stage.flood(stage.line, repeated(frame(b"//pubsubd/stats", b"")))


def _explain(stage: Stage, receivers: int, *, reads: bool = True) -> None:
    name = b"x" * 8
    stage.crowd(receivers, stage.line, lambda _: b"sub x\nsub xx\nsub xxx\n")
    stage.flood(stage.line, repeated(frame(b"//pubsubd/explain", name)), reads=reads)


@attack("explain-300", "//pubsubd/explain", crowd=True, each=PENDING)
def explain_300(stage: Stage) -> None:
    """Asks who receives a name that 300 do."""
    _explain(stage, 300)


@attack("explain-1500", "//pubsubd/explain", each=PENDING)
def explain_1500(stage: Stage) -> None:
    """Asks who receives a name that 1,500 do."""
    _explain(stage, 1_500)


@attack("explain-unread", "//pubsubd/explain", "max_pending", each=PENDING)
def explain_unread(stage: Stage) -> None:
    """Asks who receives a name that 1,500 do, and never reads it."""
    _explain(stage, 1_500, reads=False)


@attack(
    "explain-reasons",
    "//pubsubd/explain",
    "max_subscriptions",
    each=PENDING,
    table=100_000 * LONG_SUBSTRING,
)
def explain_reasons(stage: Stage) -> None:
    """Asks about a name of 1,024 bytes in which 100,000 substrings of one client are."""
    name = "".join(chr(0x100 + i) for i in range(512)).encode()
    texts = sorted({name[i : i + 2 * n] for n in range(1, 220) for i in range(0, 1_024 - 2 * n, 2)})
    one = stage.line()
    stage.tell(one, b"".join(b"sub %b\n" % text for text in texts[:100_000]))
    stage.hold(one)
    stage.flood(stage.line, repeated(frame(b"//pubsubd/explain", name)))


@attack("explain-new-names", "//pubsubd/explain", each=PENDING)
def explain_new_names(stage: Stage) -> None:
    """Asks about names of 1,000 bytes that are never the same, while 9,000 wildcards match."""
    from .synap import hold_wildcards  # noqa: PLC0415  (it needs this module)

    hold_wildcards(stage, 9_000)
    names = new_names(2_000, 1_000, b"w.")
    stage.flood(stage.line, packed(frame(b"//pubsubd/explain", name) for name in names))


@attack("requests-anew", "//pubsubd/stats", "//pubsubd/explain", "request_rate", crowd=True)
def requests_anew(stage: Stage) -> None:
    """Asks for statistics and receivers 1,000 times, and does it again on a new connection."""
    stage.crowd(500, stage.line, lambda _: b"sub x\nsub xx\nsub xxx\n")
    ask = frame(b"//pubsubd/stats", b"") + frame(b"//pubsubd/explain", b"x" * 8)
    end = frame(b"//pubsubd/ping", b"the end")
    stage.flood(stage.line, [ask * 500 + end], once=True, done=end, count=max(4, stage.count))


@attack("connections-of-2000", "//pubsubd/connections", each=PENDING)
def connections_of_many(stage: Stage) -> None:
    """Asks for the 1,000 busiest of 2,000 connections."""
    stage.crowd(2_000, stage.line, lambda _: b"")
    data = b'{"sort": "rate", "limit": 1000}'
    stage.flood(stage.line, repeated(frame(b"//pubsubd/connections", data)))


_EVERYTHING = (
    b'{"interval": 0.2, "totals": true, "connections": {"limit": 500}, '
    b'"names": {"limit": 100}, "events": {"limit": 256}, "mesh": true}'
)


@attack("live-anew", "//pubsubd/live", "//pubsubd/live/stop", crowd=True, each=PENDING)
def live_anew(stage: Stage) -> None:
    """Asks to see everything of 2,000 connections, live, and anew before it has seen much."""
    stage.crowd(2_000, stage.line, lambda _: b"")
    asked = frame(b"//pubsubd/live", _EVERYTHING)
    stage.flood(stage.line, repeated(asked * 9 + frame(b"//pubsubd/live/stop", b"")))


@attack("live-unread", "//pubsubd/live", "max_pending", each=PENDING)
def live_unread(stage: Stage) -> None:
    """Lets 120 connections see everything, live, and reads none of it, while 1,000 publish."""
    asked = frame(b"//pubsubd/live", _EVERYTHING)
    stage.crowd(120, stage.line, lambda _: asked)
    stage.crowd(1_000, stage.line, lambda number: frame(b"n%d" % number, b"x"))
    stage.flood(stage.line, [frame(b"new/%x" % number, b"x") * 100 for number in range(5_000)])


@attack("kill-nobody", "//pubsubd/kill", crowd=True, each=PENDING)
def kill_nobody(stage: Stage) -> None:
    """Asks to end connections that are not there, as fast as it can."""
    stage.flood(stage.line, repeated(frame(b"//pubsubd/kill", b"999999999")))


@attack("ping", "//pubsubd/ping", crowd=True, each=PENDING)
def ping(stage: Stage) -> None:
    """Pings, as fast as it can."""
    stage.flood(stage.line, repeated(frame(b"//pubsubd/ping", b"1")))


@attack("help", "//pubsubd/help", crowd=True, each=PENDING)
def ask_for_help(stage: Stage) -> None:
    """Asks for help, as fast as it can, in both ways."""
    stage.flood(stage.line, repeated(frame(b"//pubsubd/help", b"") + b"help\n?\n"))


@attack("ping-unread", "//pubsubd/ping", "max_pending", "max_payload", each=PENDING + PAYLOAD)
def ping_unread(stage: Stage) -> None:
    """Pings with 1 MiB of data, and never reads the answers."""
    stage.flood(stage.line, [frame(b"//pubsubd/ping", b"p" * MIB)], reads=False)


@attack("auth", "//pubsubd/auth", crowd=True)
def auth(stage: Stage) -> None:
    """Logs in where there are no users, on ever new connections."""
    stage.flood(
        stage.line,
        repeated(frame(b"//pubsubd/auth", b"ann wrong"), 100),
        once=True,
        done=b"too-many-failures",
    )


@attack("auth-users", "//pubsubd/auth", daemon="users", crowd=True)
def auth_users(stage: Stage) -> None:
    """Logs in with wrong passwords, on ever new connections."""
    stage.flood(
        stage.line,
        repeated(frame(b"//pubsubd/auth", b"ann wrong"), 100),
        once=True,
        done=b"too-many-failures",
    )


@attack("auth-long", "//pubsubd/auth", "max_payload", daemon="users")
def auth_long(stage: Stage) -> None:
    """Logs in with names and passwords of half a megabyte."""
    said = frame(b"//pubsubd/auth", b"a" * (MIB // 2) + b" " + b"p" * (MIB // 2 - 1))
    stage.flood(stage.line, [said * 3], once=True, done=b"too-many-failures")


@attack("no-mesh", "//pubsubd/peers", "//pubsubd/edges", "//pubsubd/hello", each=PENDING)
def no_mesh(stage: Stage) -> None:
    """Asks a daemon without a mesh about its mesh."""
    names = (b"//pubsubd/peers", b"//pubsubd/weak", b"//pubsubd/edges", b"//pubsubd/hello")
    stage.flood(stage.line, repeated(b"".join(frame(name, b"") for name in names)))


@attack("unknown-request", each=PENDING)
def unknown_request(stage: Stage) -> None:
    """Publishes to names of the daemon's own that are no request, 1,000 bytes long."""
    stage.flood(stage.line, repeated(frame(b"//pubsubd/" + b"x" * 990, b"")))
