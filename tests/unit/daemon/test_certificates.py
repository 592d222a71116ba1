"""Is somebody reminded of a certificate in time, once a day, and of none that is renewed?"""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
import trio
import trio.testing

from pubsubd.daemon.certificates import DAY, CertificateFile, Reminders, read_files
from pubsubd.settings.config import Config, MeshOptions
from pubsubd.transport.certificates import Certificate, latest_of_each
from tests.certificates import Certificates

NOW = 1_800_000_000.0


def file(*lives: tuple[float, float]) -> CertificateFile:
    """Return a file with certificates, given by the days until they begin and end."""
    return CertificateFile(
        "line",
        "tls_certificate",
        "/tls.pem",
        tuple(
            Certificate(f"CN={number}", NOW + begin * DAY, NOW + end * DAY)
            for number, (begin, end) in enumerate(lives)
        ),
    )


class Clock:
    now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "pubsubd")
    return caplog


@pytest.mark.parametrize(
    ("begin", "end", "said"),
    [
        (-60, 31, ""),
        (-60, 29.5, "event=certificate-expires detail=.*CN=0 expires in 29 days, on 2027-02-1"),
        (-60, 1.5, "expires in 1 day, on"),
        (-60, 0.5, "expires in less than a day, on"),
        (-60, -0.5, "event=certificate-invalid detail=.*tls_certificate /tls.pem: the .* expired"),
        (0.5, 90, "event=certificate-invalid .*is not valid before 2027-01-15 20:00:00 UTC"),
        (-1, 3, ""),  # a short life: the last third counts
        (-2.5, 1, "expires in 1 day, on"),
    ],
)
def test_a_reminder_comes_in_the_last_30_days_or_the_last_third(
    begin: float, end: float, said: str, told: pytest.LogCaptureFixture
) -> None:
    Reminders(Clock()).replace((file((begin, end)),))
    if said:
        (line,) = told.messages
        assert re.search(said, line), line
    else:
        assert not told.messages


async def test_a_reminder_is_logged_once_a_day_and_when_it_becomes_worse(
    told: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    clock = Clock()
    reminders = Reminders(lambda: clock() + trio.current_time() - begun)
    begun = trio.current_time()
    reminders.replace((file((-60, 2.5), (-60, 60)),))
    with trio.move_on_after(5 * DAY):
        await reminders.run()
    levels = [record.levelname for record in told.records]
    # 2, 1 and 0 days are left; then it has expired for the first, second and third day.
    assert levels == ["WARNING"] * 3 + ["ERROR"] * 3
    told.clear()
    reminders.replace(reminders.files)  # a reload says it again
    assert len(told.messages) == 1
    reminders.replace((file((-60, 60)),))
    assert len(told.messages) == 1


def test_what_has_been_renewed_is_not_remembered_and_the_first_to_expire_counts() -> None:
    old, new = Certificate("CN=a", 0, 10), Certificate("CN=a", 5, 20)
    other = Certificate("CN=b", 0, 15)
    assert latest_of_each([new, other, old]) == (new, other)
    assert CertificateFile("line", "tls_client_ca", "/ca", (new, other)).not_after == 15


def test_a_bundle_of_public_authorities_is_left_to_whoever_publishes_it(
    tmp_path: Path, certificates: Certificates
) -> None:
    few, many = tmp_path / "few.pem", tmp_path / "many.pem"
    made = [certificates.client(f"c{number}").certificate.read_bytes() for number in range(21)]
    few.write_bytes(b"".join(made[:20]))
    many.write_bytes(b"".join(made))
    for path, count in ((few, 1), (many, 0)):
        files = read_files(Config(mesh=MeshOptions(tls=True, tls_ca=str(path))))
        assert len(files) == count


def test_a_certificate_covers_its_names_and_one_level_of_a_wildcard() -> None:
    one = Certificate("CN=a", 0, 1, ("*.example.org", "Other.example", "192.0.2.1"))
    for host in ("a.example.org", "other.example", "192.0.2.1"):
        assert one.covers(host)
    for host in ("example.org", "a.b.example.org", "x.other.example", "192.0.2.2"):
        assert not one.covers(host)
