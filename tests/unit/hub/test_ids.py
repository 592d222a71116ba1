"""Random identifiers."""

from __future__ import annotations

import os
import uuid
from itertools import islice

import pytest

from pubsubd.hub.ids import IDS, new_id


def test_each_is_another_random_uuid() -> None:
    ids = [id_.decode() for id_ in islice(IDS, 1_000)] + [new_id()]
    assert len(set(ids)) == 1_001
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
    assert len(list(islice(IDS, 1_000))) == 1_000
