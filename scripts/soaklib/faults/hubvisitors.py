"""Connections that come to the hub port and go; see :mod:`~soaklib.faults.visitors`."""

from __future__ import annotations

import base64
import itertools
import json
from typing import Any

import trio

from benchlib.websocket import TEXT, client_frame
from soaklib.crowd import HUB_GARBAGE
from soaklib.faults.doors import Doors
from soaklib.faults.visitors import ELSEWHERE, FLOODS
from soaklib.faults.wire import Wire, WrongError, opened
from soaklib.wires import KIB, Address, compact, frame, synap_publish, synap_subscribe

_HUB = "cloudflare/signal-hub"
_ACTORS = 1_200  # of one who leaves in steps
_AT_ONCE = 100
_WILDCARDS = 90
_numbers = itertools.count()


def _b(kind: str, payload: Any = None, me: str = "visit/b", **more: Any) -> bytes:
    """A message of dialect B."""
    return compact({"type": f"hub:{kind}", "from": me, "to": _HUB, "payload": payload} | more)


def _a(kind: str, payload: Any = None, me: str = "visit/a", **more: Any) -> bytes:
    """A message of dialect A."""
    head = {"id": f"m{next(_numbers)}", "type": f"hub:{kind}", "from": f"@({me})"}
    return compact(head | {"to": f"@({_HUB})", "payload": payload} | more)


def _type(kind: str) -> bytes:
    return f'"type":"{kind}"'.encode()


async def act_b(doors: Doors) -> None:
    """All of Signal Hub's messages in dialect B."""
    me = f"visit/b{next(_numbers) % 50}"
    async with opened(doors.any_hub(), "ws") as wire:

        async def ask(kind: str, payload: Any, reply: str, **more: Any) -> bytes:
            return await wire.ask(_b(kind, payload, me, **more), _type(reply))

        known = {"version": "1.0"}
        await ask("connect", known, "hub:connected")
        await ask("heartbeat", {"timestamp": 7}, "hub:heartbeat_ack")
        held = {"actorAddress": me, "capabilities": ["ui"], "metadata": {"v": 1}, "ttl": 60_000}
        await ask("register", held, "hub:registered")
        heard = await wire.hear(b'"renewalToken":"', b'"')
        token = heard.rpartition(b'"renewalToken":"')[2][:-1].decode()
        await ask("renew", {"renewalToken": token}, "hub:renewed")
        await ask("renew", {"renewalToken": "x"}, "hub:error")
        await ask("discover", {"pattern": "^visit/b", "metadata": {"v": 1}}, "hub:discovery_result")
        await ask("discover", {"pattern": "(a"}, "hub:error")
        await ask("list_actors", {"limit": 10}, "hub:discovery_result")
        await ask("send", {"type": "greet", "data": 1}, "greet", to=me)
        await ask("send", {"type": "greet"}, "hub:error", to="visit/nobody")
        await ask("broadcast", {"type": "news", "data": 7}, "hub:broadcast_ack")
        await ask("subscribe", {"topic": "visit/+/b"}, "hub:subscribed")
        await ask("publish", {"topic": "visit/x/b", "type": "t", "data": 1}, "t")
        await ask("publish", {"topic": "visit/x/b", "message": {"type": "click"}}, "click")
        await ask("publish", {"topic": "a.b"}, "hub:error")
        await ask("list_topics", {"limit": 10}, "hub:topic_list")
        await ask("topic_info", {"topic": "visit/x/b"}, "hub:topic_info")
        await ask("unsubscribe", {"topic": "visit/+/b"}, "hub:unsubscribed")
        await ask("queue_stats", {}, "hub:queue_stats_result")
        await ask("metrics", {}, "hub:metrics_response")
        await ask("nothing", {}, "hub:error")
        await ask("unregister", None, "hub:unregistered")
        await ask("disconnect", {"reason": "done"}, "hub:disconnect_ack")
        await wire.hear_end()


async def act_a(doors: Doors) -> None:
    """The same in dialect A, where an address is taken over."""
    me = f"visit/a{next(_numbers) % 50}"
    async with opened(doors.any_hub(), "ndjson") as wire:

        async def ask(kind: str, payload: Any, reply: str, **more: Any) -> bytes:
            return await wire.ask(_a(kind, payload, me, **more), _type(reply))

        known = {"protocolVersion": "0.1.0", "capabilities": ["ui"]}
        await ask("connect", None, "hub:connected", metadata=known)
        await ask("heartbeat", None, "hub:heartbeat_ack")
        held = {"actorAddress": f"@({me})", "capabilities": ["ui"], "ttlSeconds": 60}
        await ask("register", held, "hub:registered")
        await ask("discover", {"pattern": "visit/*", "capability": "ui"}, "hub:discovered")
        await ask("list_actors", {}, "hub:actor_list")
        asked = {"to": f"@({me})", "type": "q", "data": 1}
        await ask("send", asked, "hub:delivery_ack", pattern="ask")
        asked = {"to": "@(visit/nobody)", "type": "q", "data": 1}
        await ask("send", asked, "hub:unknown_actor", pattern="ask")
        wanted = {"targetCapability": "ui"}
        await ask("broadcast", {"type": "news", "data": 7}, "hub:broadcast_ack", metadata=wanted)
        await ask("subscribe", {"topic": "visit/a"}, "hub:subscribed")
        await ask("publish", {"topic": "visit/a", "type": "flash", "data": 1}, "hub:published")
        await ask("queue_stats", {}, "hub:queue_stats_response")
        async with opened(doors.hub, "ws") as other:
            await other.ask(_a("connect", None, me, metadata=known), _type("hub:connected"))
            wire.doomed = True
            await other.ask(_a("register", held, me), _type("hub:registered"))
            await wire.hear_end(b"duplicate_connection")
            await other.ask(_a("disconnect", None, me), _type("hub:disconnect"))


async def send_across(doors: Doors) -> None:
    """Send to an actor of another daemon, as soon as it is known here."""
    number = next(_numbers) % 50
    me, far = f"visit/x{number}", f"visit/y{number}"
    known = {"protocolVersion": "0.1.0", "capabilities": ["ui"]}
    async with opened(doors.far_hub, "ndjson") as there, opened(doors.any_hub(), "ws") as here:
        held = {"actorAddress": far, "capabilities": ["ui"]}
        await there.ask(_b("register", held, far), _type("hub:registered"))
        await here.ask(_a("connect", None, me, metadata=known), _type("hub:connected"))
        asked = {"to": f"@({far})", "type": "q", "data": 1}
        heard = b""
        while b"hub:delivery_ack" not in heard:
            await trio.sleep(0.05)
            said = _a("send", asked, me, pattern="ask")
            heard = await here.ask(said, b'"type":"hub:', b'"')
        await there.hear(_type("q"))


async def send_to_each_other(doors: Doors) -> None:
    """Register on two connections, send from one to the other, and leave registered."""
    number = next(_numbers) % 50
    names = [f"visit/from{number}", f"visit/to{number}"]
    async with opened(doors.hub, "ndjson") as one, opened(doors.any_hub(), "ws") as other:
        for wire, name in ((one, names[0]), (other, names[1])):
            held = {"actorAddress": name, "capabilities": ["pair"]}
            await wire.ask(_b("register", held, name), _type("hub:registered"))
        sent = {"type": "greet", "data": {"hello": 1}}
        await one.say(_b("send", sent, names[0], to=names[1]))
        await other.hear(_type("greet"))
        sent = {"type": "all", "data": 1, "excludeSelf": True}
        wanted = {"targetCapability": "pair"}
        await other.say(_b("broadcast", sent, names[1], metadata=wanted))
        await one.hear(_type("all"))


async def use_synap(doors: Doors) -> None:
    """All of Synap's commands."""
    async with opened(doors.any_hub(), doors.rng.choice(("ws", "ndjson"))) as wire:

        async def ask(command: str, payload: Any, good: bool = True) -> bytes:
            said = {"command": f"pubsub.{command}", "request_id": "r", "payload": payload}
            return await wire.ask(compact(said), b'"success":true' if good else b'"success":false')

        await ask("subscribe", {"topics": ["visit.s", "visit.w.*", "visit.#"]})
        await ask("publish", {"topic": "visit.s", "payload": {"id": 7}, "metadata": {"a": 1}})
        await wire.hear(_type("message"))
        await ask("publish", {"topic": "visit.w.x", "data": 1})
        await wire.hear(_type("message"))
        await ask("info", {"topic": "visit.s"})
        await ask("topics", {})
        await ask("stats", {})
        await ask("unsubscribe", {"topics": ["visit.s"]})
        await ask("unsubscribe", {})
        await ask("subscribe", {"topics": []}, good=False)
        await ask("publish", {"topic": "secret/x", "payload": 1}, good=False)
        await ask("pause", {}, good=False)


async def use_envelopes(doors: Doors) -> None:
    """Subscribe and publish envelopes."""
    one, other = doors.any_hub(), doors.any_hub()
    async with opened(one, "ndjson") as publisher, opened(other, "ws") as wire:
        topic = {"topic": "visit:1"}
        await wire.say(compact({"type": "__subscribe", "id": "", "payload": topic}))
        await wire.ping()
        await publisher.say(compact({"type": "visit", "id": "1", "payload": {"text": "hi"}}))
        await wire.hear(_type("visit"))
        await wire.say(compact({"type": "__unsubscribe", "id": "", "payload": topic}))
        await wire.say(compact({"type": "__nothing", "id": "", "payload": 1}))
        await wire.ping()
        await wire.say(compact({"type": "visit"}))
        await wire.hear(_type("hub:error"))


async def mix(doors: Doors) -> None:
    """Speak several dialects on one connection, and hear what the line port publishes."""
    async with opened(doors.any_hub(), "ndjson") as wire, opened(doors.line) as line:
        await wire.ask(synap_subscribe("visit/mix"), b'"success":true')
        await wire.ask(_b("subscribe", {"topic": "visit/+"}), _type("hub:subscribed"))
        topic = {"topic": "visit:mix"}
        await wire.say(compact({"type": "__subscribe", "id": "", "payload": topic}))
        await wire.ping()
        for name, data, due in (
            (b"visit/mix", b"text", b'"data":"text"'),
            (b"visit/mix2", b"\xff\x00", b'"dataBase64":"/wA="'),
            (b"visit:mix", b'{"type":"x","payload":[1]}', b"[1]"),
        ):
            await line.say(frame(name, data))
            await wire.hear(due)
        await line.say(frame(b"visit/mix", b"1") + frame(b"visit:mix", b"last"))
        await wire.hear(b'"last"')
        await line.say(b"sub visit/back\n")
        await line.ping()
        for said in (
            synap_publish("visit/back", "hello"),
            _b("publish", {"topic": "visit/back", "type": "t", "data": [1, 2]}),
        ):
            await wire.say(said)
            await line.hear(b"pub visit/back ", b"\n")


async def ask_over_http(doors: Doors) -> None:
    """All paths, on one connection."""
    login = base64.b64encode(f"{doors.user}:{doors.password}".encode()).decode()
    body = {"payload": {"id": 7}}
    held = {"topics": ["visit.h.*"], "subscriber_id": f"visit{next(_numbers) % 20}"}
    command = {"command": "pubsub.publish", "payload": {"topic": "visit.h", "data": 1}}
    basic, bearer = f"Authorization: Basic {login}", f"Authorization: Bearer {doors.token}"
    preflight = ("Origin: http://localhost", "Access-Control-Request-Method: POST")
    async with opened(doors.any_hub(), "line") as wire:
        for method, path, value, status, *headers in (
            ("GET", "/", None, 200),
            ("GET", "/healthz", None, 200),
            ("GET", "/readyz", None, 0),  # a task may have failed just now
            ("HEAD", "/health", None, 200),
            ("GET", "/metrics", None, 200),
            ("GET", "/metrics", None, 200, "Accept: application/openmetrics-text"),
            ("POST", "/pubsub/visit.h/publish", body, 200),
            ("GET", "/pubsub/visit.h/info", None, 200),
            ("GET", "/pubsub/visit.never/info", None, 404),
            ("POST", "/pubsub/subscribe", held, 200),
            ("POST", "/pubsub/unsubscribe", held, 200),
            ("POST", "/pubsub/subscribe", {"topics": []}, 400),
            ("GET", "/pubsub/topics", None, 200),
            ("GET", "/pubsub/stats", None, 200, basic),
            ("GET", "/pubsub/stats", None, 200, bearer),
            ("POST", "/api/v1/command", command, 200),
            ("OPTIONS", "/pubsub/stats", None, 204, *preflight),
            ("GET", "/pubsub/stats", None, 421, "Host: attacker.example"),
            ("GET", "/pubsub/stats", None, 403, "Origin: https://attacker.example"),
            ("GET", "/ws", None, 426),
            ("POST", "/healthz", {}, 405),
            ("GET", "/nothing", None, 404),
        ):
            seen = await _ask_http(wire, method, path, value, *headers)
            if status not in (0, seen):
                raise WrongError(f"{method} {path}: {seen}")
    async with opened(doors.guarded_hub, "line") as wire:
        for due, *headers in ((401,), (200, basic)):
            seen = await _ask_http(wire, "GET", "/pubsub/stats", None, *headers)
            if seen != due:
                raise WrongError(f"login: {seen}")


async def _ask_http(wire: Wire, method: str, path: str, value: Any, *headers: Any) -> int:
    """Return the status of the answer, when all of that has come."""
    body = b"" if value is None else compact(value)
    lines = [f"{method} {path} HTTP/1.1", *map(str, headers)]
    if not any(line.startswith("Host:") for line in lines):
        lines.append("Host: localhost")
    if value is not None:
        lines += [f"Content-Length: {len(body)}", "Content-Type: application/json"]
    head = await wire.ask("\r\n".join(lines).encode() + b"\r\n\r\n" + body, b"\r\n\r\n")
    fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
    size = int(fields.get(b"Content-Length", b"0")) if method != "HEAD" else 0
    data = b""
    while len(data) < size:
        data += await wire.some()
    wire.heard = data[size:]
    return int(head.split(b" ", 2)[1])


async def browse(doors: Doors) -> None:
    """A WebSocket with topics in its path, fragments, a ping, and a close."""
    path = "/pubsub/ws?topics=visit.p,visit.q.*"
    async with opened(doors.any_hub(), "ws", path=path) as wire:
        await wire.hear(_type("connected"))
        said = synap_publish("visit.p", "hello")
        await wire.send(bytes([TEXT]) + client_frame(TEXT, said[:20])[1:])
        await wire.send(bytes([0x80]) + client_frame(TEXT, said[20:])[1:])
        await wire.hear(b'"success":true', _type("message"))
        await wire.send(client_frame(9, b"ping"))
        await wire.hear(b"\x8a\x04ping")
        await wire.send(client_frame(8, b"\x03\xe8bye"))
        await wire.hear_end()


async def use_token(doors: Doors) -> None:
    """Log in with a signed token, and have it exchanged."""
    async with opened(doors.guarded_hub, "ws") as wire:
        await wire.ask(_b("subscribe", {"topic": "visit/t"}), _type("hub:error"))
        known = {"version": "1.0", "jwt": doors.token}
        await wire.ask(_b("connect", known), _type("hub:connected"))
        await wire.ask(_b("refresh_token", {"token": doors.token}), _type("hub:token_refreshed"))
        await wire.ask(_b("subscribe", {"topic": "visit/t"}), _type("hub:subscribed"))
    async with opened(doors.guarded_hub, "ndjson", source=ELSEWHERE) as wire:
        await wire.say(_b("connect", {"version": "1.0", "jwt": "x"}))
        await wire.hear_end(b"unauthorized")


async def leave_in_steps(doors: Doors) -> None:
    """Subscribe much in several dialects, and leave while all of it is published."""
    kind = doors.rng.choice(("ws", "ndjson"))
    async with opened(doors.any_hub(), kind) as wire, opened(doors.line) as line:
        topics = [f"visit/s/{number}" for number in range(1_000)]
        await wire.ask(synap_subscribe(*topics), b'"success":true')
        if doors.rng.random() < 0.3:  # the wildcards of a connection are of one dialect
            wildcards = "//fwd/slow/*", "slow:*", "visit.#", "//pubsubd/#"
            await wire.ask(synap_subscribe(*wildcards), b'"success":true')
        else:
            wildcards = "//pubsubd/#", "//fwd/slow/+", *_wildcards()
            await wire.say(*(_b("subscribe", {"topic": topic}) for topic in wildcards))
        held = [{"topic": f"visit:{number}"} for number in range(20)]
        await wire.say(
            *(compact({"type": "__subscribe", "id": "", "payload": one}) for one in held)
        )
        await wire.ping()
        said = b"".join(frame(topic.encode(), b"step") for topic in topics[::20])
        await line.say(said)
        await wire.close()
        for _ in range(4):
            await line.say(said)
            await line.ping()


def _wildcards() -> list[str]:
    return [f"visit/{'+/' * (number % 9)}{number}/#" for number in range(1, _WILDCARDS)]


async def leave_registered(doors: Doors) -> None:
    """Register many actors, and leave with all of them."""
    async with opened(doors.hub, "ndjson") as wire:
        names = [f"many/{number}" for number in range(_ACTORS)]
        held = {"capabilities": ["x"]}
        for at in range(0, _ACTORS, _AT_ONCE):  # or it would be a slow consumer of the answers
            some = names[at : at + _AT_ONCE]
            await wire.say(*(_b("register", {"actorAddress": one, **held}, one) for one in some))
            await wire.ping()


async def be_slow(doors: Doors) -> None:
    """Listen to a flood and never read, until that is noticed."""
    slow = Address(doors.hub.where, buffer=16 * KIB)
    async with opened(slow, doors.rng.choice(("ws", "ndjson")), doomed=True) as wire:
        await wire.ask(synap_subscribe("visit/hubflood"), b'"success":true')
        async with opened(doors.line) as line:
            begun = trio.current_time()
            flood = frame(b"visit/hubflood", b"x" * 16 * KIB) * 16
            for _ in range(FLOODS):
                await line.say(flood)
                await line.ping()
                if wire.hung_up:
                    break
        await wire.hear_end(b"slow-consumer", since=begun)


async def say_nonsense(doors: Doors) -> None:
    """Say what makes no sense, and be told so."""
    said, due = doors.rng.choice(list(HUB_GARBAGE.values()))
    async with opened(doors.hub, "ndjson") as wire:
        await wire.send(said)
        await wire.hear(due)
    async with opened(doors.hub, "ws") as wire:
        await wire.send(b"\x82\x00")  # not masked
        await wire.hear_end()
    async with opened(doors.hub, "ndjson") as wire:
        await wire.send(json.dumps({"type": "hub:heartbeat"})[:9].encode())


VISITS = (
    act_b,
    act_a,
    send_across,
    send_to_each_other,
    use_synap,
    use_envelopes,
    mix,
    ask_over_http,
    browse,
    use_token,
    leave_in_steps,
    leave_registered,
    be_slow,
    say_nonsense,
)
"""All of them."""
