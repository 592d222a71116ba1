"""What a ``pub`` to a name of the daemon's own does."""

from __future__ import annotations

import json

from tests.tables import Table


def ask(table: Table, name: str, request: bytes, data: bytes = b""):
    table.say(name, b"pub //pubsubd/%b %d %b\n" % (request, len(data), data))
    (found,) = table.messages(name)
    assert found[0] in (b"//pubsubd/" + request, "error")
    return json.loads(found[1]) if found[0] != "error" and request != b"ping" else found[1]


def test_a_ping_comes_back_after_everything_before_it() -> None:
    table = Table("a")
    table.say("a", b"sub x\npub x 1 1\npub //pubsubd/ping 2 hi\npub x 1 2\n")
    assert table.hears("a") == b"pub x 1 1\npub //pubsubd/ping 2 hi\npub x 1 2\n"


def test_statistics_count_what_happened() -> None:
    table = Table("a", "b")
    table.say("a", b"sub x\nsub y\nhello\n")
    table.say("b", b"sub x\npub x 2 hi\npub z 2 hi\n")
    table.say("b", b"pub x 9 half")
    table.leave("b")
    table.hears("a")
    stats = ask(table, "a", b"stats")
    assert stats["connections"] == 1
    assert stats["connections_total"] == 2
    assert stats["subscriptions"] == 2
    assert stats["substrings"] == 2
    assert stats["messages_in"] == 2
    assert stats["messages_out"] == 3  # and the error line to a
    assert stats["half_frames"] == 1
    assert stats["errors"] == {"unknown-command": 1}


def test_explain_says_who_and_why_and_under_which_name() -> None:
    table = Table("a", "b", "c", "d")
    table.say("a", b"sub chat\nsub //org/\nsub other\n")
    table.say("b", b"sub //fwd/\n")
    table.say("c", b"sub nothing\n")
    answer = ask(table, "d", b"explain", b"//org/chat/main")
    assert answer == {
        "name": "//org/chat/main",
        "count": 2,
        "receivers": [
            {
                "connection": 1,
                "peer": "a",
                "substrings": ["//org/", "chat"],
                "matching": 2,
                "as": "//org/chat/main",
            },
            {
                "connection": 2,
                "peer": "b",
                "substrings": ["//fwd/"],
                "matching": 1,
                "as": "//fwd/org/chat/main",
            },
        ],
    }


def test_the_answer_of_explain_is_bounded() -> None:
    table = Table("asker", *(f"p{i}" for i in range(3_000)))
    for i in range(3_000):
        table.say(f"p{i}", b"sub x\n")
    table.say("p0", b"".join(b"sub %b\n" % (b"x" * i) for i in range(2, 1_000)))
    table.say("asker", b"pub //pubsubd/explain 1000 %b\n" % (b"x" * 1_000))
    assert len(table.hears("asker")) < 200_000
    answer = ask(table, "asker", b"explain", b"x" * 1_000)
    assert answer["count"] == 3_000
    assert 100 < len(answer["receivers"]) < 3_000
    assert max(r["matching"] for r in answer["receivers"]) in (1, 999)
    assert max(len(r["substrings"]) for r in answer["receivers"]) <= 10


def test_explain_of_the_daemons_own_names_follows_their_rule() -> None:
    table = Table("a", "b")
    table.say("a", b"sub s\nsub //pubsubd/\n")
    table.say("b", b"sub stats\n")
    answer = ask(table, "b", b"explain", b"//pubsubd/stats")
    assert [r["peer"] for r in answer["receivers"]] == ["a"]
    assert answer["receivers"][0]["substrings"] == ["//pubsubd/"]


def test_requests_that_make_no_sense_are_refused() -> None:
    table = Table("a")
    assert ask(table, "a", b"nonsense") == "unknown-request"
    assert ask(table, "a", b"explain", b"two words") == "bad-request"
    assert ask(table, "a", b"explain") == "bad-request"


def test_a_pub_to_the_daemons_names_reaches_nobody_else() -> None:
    table = Table("a", "b")
    table.say("a", b"sub //pubsubd/\n")
    table.say("b", b"pub //pubsubd/stats 0 \npub //pubsubd/events 1 x\npub //pubsubd/error 1 x\n")
    assert table.hears("a") == b""


def test_what_the_daemon_publishes_reaches_those_who_ask_for_it_only() -> None:
    table = Table("a", "b")
    table.say("a", b"sub //pubsubd/events\n")
    table.say("b", b"sub e\n")
    table.broker.delivery.publish(b"//pubsubd/events", b"{}")
    assert table.hears("a") == b"pub //pubsubd/events 2 {}\n"
    assert table.hears("b") == b""
