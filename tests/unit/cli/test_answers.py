"""What commands say of answers that are not whole."""

from __future__ import annotations

import pytest

from pubsubd.cli.answers import warn_silent


@pytest.mark.parametrize(
    ("numbers", "told"),
    [
        ([], ""),
        ([2], "pubsubd: no answer from worker 2: what is theirs is missing\n"),
        ([0, 2], "pubsubd: no answer from workers 0, 2: what is theirs is missing\n"),
    ],
)
def test_workers_that_have_not_answered_are_named(
    numbers: list[int], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    warn_silent(numbers)
    assert capsys.readouterr() == ("", told)
