"""What ``ping`` and ``stats --watch`` make of what they have measured."""

from __future__ import annotations

from pubsubd.cli.ping import Trips
from pubsubd.cli.stats import rates


def test_rates_are_per_second_of_the_daemon_s_clock() -> None:
    before = {"uptime_s": 1.0, "messages_in": 1, "messages_out": 5, "bytes_in": 0, "bytes_out": 0}
    now = {"uptime_s": 3.0, "messages_in": 4, "messages_out": 5, "bytes_in": 100, "bytes_out": 1}
    assert rates(before, now) == {
        "messages_in": 1.5,
        "messages_out": 0.0,
        "bytes_in": 50.0,
        "bytes_out": 0.5,
    }
    assert rates(now, now)["messages_in"] == 0.0


def test_round_trips_are_summed_up_as_ping_does() -> None:
    trips = Trips()
    trips.sent = 4
    assert trips.summary() == "4 sent, 0 answered, 100% lost"
    for seconds in (0.003, 0.001, 0.002):
        trips.note(seconds)
    assert trips.summary() == (
        "4 sent, 3 answered, 25% lost\nround trip min/median/max = 1.000/2.000/3.000 ms"
    )
