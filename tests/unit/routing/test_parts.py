"""Large tables are many small dicts, and behave as one."""

from __future__ import annotations

from itertools import pairwise

from pubsubd.routing.parts import LARGE, AnyTable, Parts, Size, Table
from pubsubd.routing.substrings import SubstringIndex
from pubsubd.routing.tables import ExactIndex
from pubsubd.routing.targets import Targets
from pubsubd.routing.wildcards import Pattern, WildcardIndex
from tests.footprint import footprint

MANY = 30_000


def filled(count: int) -> AnyTable[bytes, int]:
    table: AnyTable[bytes, int] = Table()
    for number in range(count):
        table.part(b"%d" % number)[b"%d" % number] = number
        table = table.fit()
    return table


def largest_part(table: AnyTable[bytes, int]) -> int:
    return max(len(table.part(key)) for key in table)


def test_a_large_table_has_no_large_dict() -> None:
    assert largest_part(filled(LARGE)) == LARGE
    assert largest_part(filled(MANY)) < MANY / 32


def test_a_large_table_is_read_as_a_dict_is() -> None:
    table, model = filled(MANY), {b"%d" % number: number for number in range(MANY)}
    assert isinstance(table, Parts)
    assert dict(table) == model
    assert len(table) == MANY
    assert table[b"7"] == table.get(b"7") == 7
    assert b"7" in table
    assert b"x" not in table
    assert table.get(b"x") is None
    assert sorted(table.among([b"7", b"x", b"17"])) == [b"17", b"7"]
    del table[b"7"]
    table[b"8"] = 9
    assert b"7" not in table
    assert table[b"8"] == 9
    assert len(table) == MANY - 1
    assert table
    assert not Parts({})


def test_a_table_becomes_smaller_one_part_at_a_time_and_small_in_the_end() -> None:
    table, size = filled(MANY), Size()
    size.count = MANY
    full, sizes = footprint(table), []
    for number in range(100, MANY):
        del table[b"%d" % number]
        if (narrowed := size.remove()) >= 0:
            table = table.narrow(narrowed)
            sizes.append(footprint(table))
    assert isinstance(table, Table)
    assert dict(table) == {b"%d" % number: number for number in range(100)}
    assert footprint(table) < full / 50
    drops = [before - after for before, after in pairwise(sizes)]
    assert max(drops) < full / 8


def test_short_patterns_are_found_however_many_they_are() -> None:
    index: SubstringIndex[None] = SubstringIndex()
    letters = b"abcdefghijklmnopqrstuvwxyz"
    many = [bytes((a, b, c)) for a in letters for b in letters for c in letters]
    assert len(many) > LARGE
    for pattern in many:
        index.add(pattern, None)
    assert sorted(index.find(b"room/1")) == [b"oom", b"roo"]
    for pattern in many[:-1]:
        index.remove(pattern)
    assert index.find(b"room/zzz") == [b"zzz"]


def test_what_indexes_have_is_in_parts() -> None:
    nobody = Targets(())
    substrings: SubstringIndex[int] = SubstringIndex()
    names = ExactIndex()
    wildcards: WildcardIndex[int] = WildcardIndex()
    for number in range(2 * LARGE):
        substrings.add(b"%d/x" % number, number)
        names.add(b"%d" % number, nobody)
        wildcards.add(Pattern.dots(f"{number}.*"), number)
    for table in (substrings.values, names.values, wildcards.values):
        assert isinstance(table, Parts)
        assert len(table) == 2 * LARGE
    assert set(substrings.find(b"-10000/x-")) == {b"10000/x", b"0/x"}
    assert wildcards.find(b"19999.y") == [Pattern.dots("19999.*")]
    for number in range(2 * LARGE):
        substrings.remove(b"%d/x" % number)
        names.remove(b"%d" % number)
        wildcards.remove(Pattern.dots(f"{number}.*"))
    assert not substrings.values
    assert not names.values
    assert not wildcards.values
    assert wildcards.empty
