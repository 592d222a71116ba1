"""The dictionary that grows without a pause."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsubd.protocol.shards import Shards
from tests.footprint import reached

KEYS = st.integers(0, 3_000).map(str)
CHANGES = st.lists(st.tuples(KEYS, st.one_of(st.none(), st.integers())), max_size=50)


@given(st.integers(0, 2_000), CHANGES)
def test_it_is_what_a_dictionary_is(before: int, changes: list[tuple[str, int | None]]) -> None:
    model: dict[str, int] = {}
    shards: Shards[int] = Shards()
    for number in range(before):
        model[str(number)] = shards[str(number)] = number
    for key, value in changes:
        if value is None:
            assert shards.pop(key, None) == model.pop(key, None)
        else:
            model[key] = shards[key] = value
        assert len(shards) == len(model)
        assert (key in shards) == (key in model)
        assert shards.get(key) == model.get(key)
        assert shards.get(key, -1) == model.get(key, -1)
    assert dict(shards) == model
    assert bool(shards) == bool(model)


@pytest.mark.parametrize("size", [0, 10, 3_000])
def test_many_keys_are_looked_up_at_once(size: int) -> None:
    shards: Shards[int] = Shards()
    shards.update({f"k{number}": number for number in range(size)})
    keys = [f"k{number}" for number in range(0, size + 20, 7)]
    assert shards.get_all(keys) == [shards.get(key) for key in keys]


def test_none_of_its_dictionaries_becomes_large() -> None:
    shards: Shards[None] = Shards()
    for number in range(50_000):
        shards[f"x/{number}"] = None
    parts = [one for one in reached(shards) if type(one) is dict]
    assert max(map(len, parts)) < 1_025
    assert sum(map(len, parts)) == 50_000
