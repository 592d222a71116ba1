"""The parts of the mesh that stand alone: windows, interests, adverts, the table, whom to dial."""

from __future__ import annotations

import ipaddress
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsubd.mesh.adverts import (
    Advert,
    AdvertError,
    LinkReport,
    check_node,
    format_advert,
    parse_address,
    parse_advert,
    parse_first_line,
    read_stamp,
)
from pubsubd.mesh.discovery import check_target, choose
from pubsubd.mesh.interests import generalise
from pubsubd.mesh.linkstate import Table
from pubsubd.mesh.window import SIZE, Window

# Windows


@given(st.lists(st.integers(1, 3 * SIZE), max_size=60))
def test_a_window_takes_each_number_once_and_nothing_that_is_too_old(numbers: list[int]) -> None:
    window, taken = Window(), set()
    for number in numbers:
        expected = number not in taken and number > max(taken, default=0) - SIZE
        assert window.take(number) == expected
        if expected:
            taken.add(number)
    assert window.highest == max(taken, default=0)


def test_a_window_refuses_numbers_that_are_none() -> None:
    window = Window()
    assert not window.take(0)
    assert not window.take(-5)
    assert window.take(10**15)
    assert not window.take(10**15)
    assert not window.take(1)


# Interests


@given(st.lists(st.text("ab/", max_size=6), max_size=40), st.integers(1, 10))
def test_what_is_generalised_covers_everything_and_is_few(texts: list[str], most: int) -> None:
    wanted = {b"//fwd/" + text.encode() for text in texts}
    found = generalise(wanted, most)
    assert len(found) <= most
    assert all(any(one.startswith(short) for short in found) for one in wanted)
    assert all(short.startswith(b"//fwd/") for short in found)
    if len(wanted) <= most:
        assert set(found) == wanted


def test_interests_are_cut_at_the_deepest_level_that_will_do() -> None:
    wanted = [b"//fwd/org/%d/%d/x" % (n % 10, n) for n in range(2_000)]
    assert generalise(wanted) == tuple(b"//fwd/org/%d/" % n for n in range(10))
    assert generalise([b"//fwd/%d" % n for n in range(2_000)]) == (b"//fwd/",)
    assert generalise([b"//fwd/" + b"x" * 900 + b"%d" % n for n in range(100)]) == (b"//fwd/",)
    assert generalise([]) == ()


# Adverts

NODES = st.text("abcXYZ019._:-", min_size=1, max_size=64)
LINKS = st.builds(
    LinkReport,
    NODES,
    st.booleans(),
    st.integers(0, 10**12),
    st.none() | st.integers(0, 10**6).map(lambda n: n / 1000),
    st.integers(0, 10**17),
    st.integers(0, 10**17),
)
ADVERTS = st.builds(
    Advert,
    NODES,
    st.sampled_from(["127.0.0.1", "::1", "host.example"]),
    st.integers(1, 65_535),
    st.integers(0, 10**14),
    st.integers(0, 10**9),
    st.integers(0, 10**14),
    st.lists(LINKS, max_size=5).map(tuple),
    st.lists(
        st.text("aé/", max_size=9).map(lambda text: b"//fwd/" + text.encode()), max_size=5
    ).map(tuple),
    version=st.sampled_from(["", "0.1.0"]),
    site=st.sampled_from(["", "ulm"]),
    rack=st.sampled_from(["", "r7:a"]),
)


@given(ADVERTS)
def test_an_advert_is_read_as_it_was_written(advert: Advert) -> None:
    data = format_advert(advert)
    assert parse_advert(advert.node, data) == advert
    assert read_stamp(data) == advert.stamp
    assert parse_first_line(data.split(b"\n")[0]) == (advert.host, advert.port)


@given(ADVERTS, st.data())
def test_an_advert_that_was_damaged_is_read_or_refused(advert: Advert, data: st.DataObject) -> None:
    text = bytearray(format_advert(advert))
    for _ in range(data.draw(st.integers(1, 4))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    told = ""
    try:
        parse_advert(advert.node, bytes(text))
    except AdvertError as error:
        told = str(error)
    assert told.isprintable()


def test_lines_of_later_versions_are_ignored() -> None:
    data = b"h 1\nnode 1 2 1\nweight 5\nwant //fwd/x\nlink b out 0 - 0 0"
    advert = parse_advert("a", data)
    assert advert.interests == (b"//fwd/x",)
    assert [link.node for link in advert.links] == ["b"]


@pytest.mark.parametrize("line", [b"version", b"version ", b"site a b", b"rack " + b"x" * 65])
def test_a_version_or_a_place_that_is_no_short_word_is_refused(line: bytes) -> None:
    data = b"h 1\nnode 1 2 1\n" + line
    with pytest.raises(AdvertError, match=f"is no {line.split()[0].decode()}: 1 to 64 of"):
        parse_advert("a", data)


@pytest.mark.parametrize("text", ["", "a b", "a\n", "a" * 65, "é", "a/b", "a@b"])
def test_an_id_is_a_short_word(text: str) -> None:
    with pytest.raises(AdvertError):
        check_node(text)


@pytest.mark.parametrize(
    ("text", "address"),
    [("h:1", ("h", 1)), ("[::1]:9014", ("::1", 9014)), ("10.0.0.1:65535", ("10.0.0.1", 65_535))],
)
def test_an_address_is_host_and_port(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text", ["", "h", "h:", ":1", "h:0", "h:65536", "h:1x", "::1:9014", "h h:1", "h:٣", "h:-1"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(AdvertError):
        parse_address(text)


# The table


def table_of(edges: list[str], me: str = "a") -> Table:
    """Return the table of ``me``, where ``ab`` is a link."""
    table = Table(me)
    for node in sorted(set("".join(edges))):
        links = [
            LinkReport(one.replace(node, "", 1) or node, one[0] == node, 0)
            for one in edges
            if node in one
        ]
        table.put(Advert(node, "h", 1, 1, 1, 1, tuple(links)))
    return table


def test_a_link_counts_if_both_ends_tell_of_it() -> None:
    table = Table("a")
    table.put(Advert("a", "h", 1, 1, 1, 1, (LinkReport("b", True, 0),)))
    assert table.hops == {"a": 0}
    table.put(Advert("b", "h", 1, 1, 1, 1, (LinkReport("a", False, 0),)))
    assert table.hops == {"a": 0, "b": 1}
    table.put(Advert("b", "h", 1, 1, 2, 1))
    assert table.hops == {"a": 0}
    assert table.graph["a"] == table.graph["b"] == []


def test_a_daemon_that_is_dropped_is_gone_from_the_graph() -> None:
    table = table_of(["ab", "bc"])
    table.drop("b")
    assert table.hops == {"a": 0}
    assert "b" not in table.adverts


@given(st.integers(2, 9), st.randoms(use_true_random=False))
def test_all_daemons_agree_on_one_tree_of_shortest_paths(size: int, rng: random.Random) -> None:
    names = "abcdefghi"[:size]
    edges = [one + other for one, other in pairwise(names)]
    edges += ["".join(rng.sample(names, 2)) for _ in range(rng.randint(0, 8))]
    tables = {name: table_of(edges, name) for name in names}
    for origin in names:
        reached = {origin: 0}
        crossed = 0
        queue = [(origin, "")]
        while queue:
            node, parent = queue.pop()
            for branch in set(tables[node].subtree(origin).values()):
                assert branch != parent
                assert branch not in reached
                reached[branch] = reached[node] + 1
                crossed += 1
                queue.append((branch, node))
        assert reached == tables[origin].hops
        assert crossed == size - 1


# Whom to dial


@pytest.mark.parametrize(
    ("address", "allowed", "own", "fine"),
    [
        ("8.8.8.8", [], ["8.8.4.4"], True),
        ("0.0.0.0", [], ["127.0.0.1"], False),
        ("::", [], ["::1"], False),
        ("224.0.0.1", [], ["10.0.0.1"], False),
        ("240.0.0.1", [], ["10.0.0.1"], False),
        ("10.0.0.2", [], ["10.0.0.1"], True),
        ("10.0.0.2", [], ["8.8.4.4"], False),
        ("10.0.0.2", [], ["127.0.0.1"], False),
        ("169.254.169.254", [], ["8.8.4.4"], False),
        ("169.254.169.254", [], ["10.0.0.1"], False),
        ("fe80::1%eth0", [], ["10.0.0.1"], False),
        ("fe80::1%eth0", [], ["fe80::2%eth0"], True),
        ("fe80::1%eth0", ["fe80::/10"], ["10.0.0.1"], True),
        ("127.0.0.1", [], ["127.0.0.1"], True),
        ("127.0.0.1", [], ["10.0.0.1"], False),
        ("127.0.0.1", [], ["8.8.4.4"], False),
        ("::1", [], ["10.0.0.1"], False),
        ("10.0.0.2", ["10.0.0.0/8"], ["8.8.4.4"], True),
        ("8.8.8.8", ["10.0.0.0/8"], ["8.8.4.4"], False),
        ("127.0.0.1", ["10.0.0.0/8"], ["127.0.0.1"], False),
        ("0.0.0.0", ["0.0.0.0/0"], ["127.0.0.1"], False),
    ],
)
def test_only_addresses_that_may_be_dialled_are(
    address: str, allowed: list[str], own: list[str], fine: bool
) -> None:
    networks = [ipaddress.ip_network(one) for one in allowed]
    if fine:
        check_target("h", [address], networks, own)
        return
    with pytest.raises(AdvertError, match="h is"):
        check_target("h", [address], networks, own)


def test_one_bad_address_of_a_name_is_enough() -> None:
    with pytest.raises(AdvertError):
        check_target("h", ["8.8.8.8", "127.0.0.1"], [], ["8.8.4.4"])


def table_from(graph: dict[str, set[str]], me: str) -> Table:
    table = Table(me)
    for node, near in graph.items():
        links = tuple(LinkReport(other, True, 0) for other in near)
        table.put(Advert(node, "h", 1, 1, 1, 1, links))
    return table


@pytest.mark.parametrize("seed", range(5))
def test_a_mesh_that_grows_from_one_end_becomes_short(seed: int) -> None:
    """Those who came first have found their links long before the last one comes."""
    rng = random.Random(seed)
    graph: dict[str, set[str]] = {"n0": set()}

    def link(one: str, other: str) -> None:
        graph[one].add(other)
        graph[other].add(one)

    for number in range(1, 31):
        graph[f"n{number}"] = set()
        link(f"n{number}", f"n{number - 1}")
        for _ in range(8 if number < 30 else 400):
            me = rng.choice(list(graph))
            found = choose(table_from(graph, me), graph[me], {}, 4, rng)
            if found is not None:
                link(me, found.node)
    assert max(max(table_from(graph, me).hops.values()) for me in graph) <= 6
    assert max(map(len, graph.values())) <= 7


def test_the_farthest_daemon_with_few_links_is_chosen() -> None:
    table = table_of(["ab", "bc", "cd", "ce", "ef", "dg", "dh"])
    rng = random.Random(1)
    found = choose(table, ["b"], {}, 8, rng)
    assert found is not None
    assert found.node in "fgh"
    assert choose(table, ["b"], dict.fromkeys("defgh", 0.0), 8, rng).node == "c"  # type: ignore[union-attr]
    assert choose(table, ["b"], dict.fromkeys("cdefgh", 0.0), 8, rng) is None
    assert choose(table_of(["ab", "ac", "bc"]), ["b", "c"], {}, 8, rng) is None
    chosen = choose(table_of(["ab", "bc", "bd", "be", "ec"]), ["b"], {}, 2, rng)
    assert chosen is not None
    assert chosen.node == "d"
    long = table_of(["ab", "bc", "cd", "de", "ef", "fg", "gh", "hi"])
    assert choose(long, ["b"], {}, 1, rng) is not None  # it has enough, but i is very far
    assert choose(table_of(["ab", "bc", "cd"]), ["b"], {}, 1, rng) is None
