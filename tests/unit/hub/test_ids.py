"""Random identifiers."""

from __future__ import annotations

import os
import uuid
from itertools import chain, islice

import pytest

from pubsubd.hub.ids import IDS, new_id, new_ids


def test_each_is_another_random_uuid() -> None:
    counts = 0, 1, 255, 600, 0, 3
    several = [new_ids(count) for count in counts]
    assert tuple(map(len, several)) == counts
    ids = [id_.decode() for id_ in (*islice(IDS, 1_000), *chain(*several))] + [new_id()]
    assert len(set(ids)) == 1_860
    assert {uuid.UUID(id_).version for id_ in ids} == {4}
    assert all(str(uuid.UUID(id_)) == id_ for id_ in ids)


def test_a_failure_of_the_system_ends_one_request_and_not_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_size: int) -> bytes:
        raise OSError("no random bytes")

    with monkeypatch.context() as patch:
        patch.setattr(os, "urandom", fail)
        with pytest.raises(OSError, match="no random bytes"):
            list(islice(IDS, 1_000))
        with pytest.raises(OSError, match="no random bytes"):
            new_ids(1_000)
    assert len(new_ids(1_000)) == 1_000
    assert len(list(islice(IDS, 1_000))) == 1_000
