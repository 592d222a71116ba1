"""Graphs in JSON: whole documents, and lines of one link each.

========================= =====================================================================
NetJSON                   ``NetworkGraph``, or a ``NetworkCollection`` of one
node-link                 ``nodes`` and ``links`` or ``edges``, as D3 and networkx have them
Freifunk's meshviewer     the same, with ``node_id`` and ``hostname``; also below ``batadv``
JSON Graph Format         the same below ``graph``
Cytoscape                 ``elements``, with ``nodes`` and ``edges`` of ``data``
batman-adv                ``batadv-vis -f jsondoc``, and ``-f json``, which is lines
OLSR                      ``topology`` of its plugin jsoninfo
========================= =====================================================================
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, BinaryIO

from pubsubd.topology.formats.errors import FormatError
from pubsubd.topology.formats.links import Links
from pubsubd.topology.formats.text_graphs import lines_of

LARGEST = 256 * 2**20
"""Bytes of a document at most, unpacked. To read one takes up to 8 times as much memory."""

ENDS = (("source", "target"), ("src", "dst"), ("from", "to"), ("router", "neighbor"))
"""Keys of an object with a link."""

_IDS = ("id", "node_id", "key", "name")
_LABELS = ("label", "hostname", "name")
_UNLINKED = {"primary", "secondary", "gateway"}  # lines of batadv-vis that tell no link


def parse(text: str | bytes) -> Any:
    """Return what JSON says.

    Raises:
        FormatError: it is none.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"it is broken JSON: {error}") from error


def read_document(file: BinaryIO, links: Links) -> None:
    """Add the links of a JSON document.

    Raises:
        FormatError: it is broken, too large, or none of the documents above.
    """
    data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise FormatError(f"it has over {LARGEST // 2**20} MiB")
    add_document(parse(data), links)


def add_document(document: Any, links: Links) -> None:
    """Add the links of a document that was parsed.

    Raises:
        FormatError: it has none, or is none of the documents above.
    """
    if not isinstance(document, dict):
        _add_list(document, links)
        return
    kind = document.get("type")
    if kind == "NetworkCollection":
        graphs = [
            one for one in _objects(document.get("collection")) if one.get("type") == "NetworkGraph"
        ]
        if len(graphs) != 1:
            raise FormatError(f"it is a NetworkCollection of {len(graphs)} graphs, not one")
        document = graphs[0]
    elif kind in {"NetworkRoutes", "DeviceConfiguration", "DeviceMonitoring"}:
        raise FormatError(f"it is a {kind} of NetJSON, which has no links of a mesh")
    if isinstance(document.get("vis"), list):
        _add_vis(document["vis"], links)
    elif isinstance(document.get("topology"), list):
        for entry in _objects(document["topology"]):
            links.add(_text(entry.get("lastHopIP")), _text(entry.get("destinationIP")))
    else:
        _add_graph(document, links)


def _add_list(document: Any, links: Links) -> None:
    entries = _objects(document)
    if any("orig_address" in one or "neigh_address" in one for one in entries):
        raise FormatError(
            "it looks like a table of batctl: it has the routes of one node, not the links of a"
            " mesh; batadv-vis -f jsondoc has them"
        )
    if not any(_ends(one) for one in entries):
        raise FormatError("it is JSON without links of a mesh")
    _add_graph({"links": entries, "directed": True}, links)


def _add_graph(document: Mapping[str, Any], links: Links) -> None:
    """Add what has nodes and links, here or one level below."""
    for inner in ("batadv", "graph", "elements"):
        below = document.get(inner)
        if isinstance(below, dict) and ("links" in below or "edges" in below):
            document = {"directed": document.get("directed"), **below}
    told = document.get("links", document.get("edges"))
    if not isinstance(told, list):
        what = "nodes, and no links" if "nodes" in document else "no links of a mesh"
        raise FormatError(f"it is JSON with {what}")
    places = _add_nodes(document.get("nodes"), links)
    known = set(places)
    unnamed = places and places == [str(place) for place in range(len(places))]
    both_ways = document.get("directed") is not True
    for number, one in enumerate(_objects(told), 1):
        data = one["data"] if isinstance(one.get("data"), dict) else one
        ends = _ends(data)
        if ends is None:
            raise FormatError(f"link {number:,} has no source and target")
        src, dst = (_find(end, places, known) for end in ends)
        if unnamed and not known.issuperset({src, dst}):
            raise FormatError(f"its nodes have no id, and link {number:,} has no places of nodes")
        directed = data.get("directed")
        links.add(src, dst, both_ways=both_ways if directed is None else directed is not True)


def _add_nodes(nodes: Any, links: Links) -> list[str]:
    """Add the nodes of a document, and return their ids in its order."""
    if nodes is None:
        return []
    if isinstance(nodes, dict):  # of the JSON Graph Format: id -> node
        nodes = [
            {"id": name, **(one if isinstance(one, dict) else {})} for name, one in nodes.items()
        ]
    places = []
    for number, one in enumerate(_objects(nodes)):
        data = one["data"] if isinstance(one.get("data"), dict) else one
        key = next((key for key in _IDS if data.get(key) not in (None, "")), None)
        places.append(str(number) if key is None else _text(data[key]))
        label = next((data[name] for name in _LABELS if isinstance(data.get(name), str)), None)
        links.daemon(places[-1], label)
    return places


def _find(end: Any, places: list[str], known: set[str]) -> str:
    """Return the id of a link's end, which may be a place among the nodes."""
    is_place = isinstance(end, int) and not isinstance(end, bool) and 0 <= end < len(places)
    return places[end] if is_place and str(end) not in known else _text(end)


def _add_vis(entries: Any, links: Links) -> None:
    """Add what batadv-vis tells; interfaces of one daemon have the name of the first."""
    daemons = _objects(entries)
    first = {
        other: _text(one.get("primary")) for one in daemons for other in one.get("secondary") or ()
    }
    for one in daemons:
        links.daemon(_text(one.get("primary")))
        for link in _objects(one.get("neighbors") or []):
            src, dst = _text(link.get("router")), _text(link.get("neighbor"))
            links.add(first.get(src, src), first.get(dst, dst))


def read_json_lines(file: BinaryIO, links: Links) -> None:
    """Add the links of lines with an object each, which has one of :data:`ENDS`.

    Other lines are rejected, but those of batadv-vis that tell something else.
    """
    first: dict[str, str] = {}
    held = []
    for line in lines_of(file, "replace"):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        ends = _ends(value) if isinstance(value, dict) else None
        if isinstance(value, dict) and ends is None and value.keys() & _UNLINKED:
            if isinstance(value.get("secondary"), str) and isinstance(value.get("of"), str):
                first[value["secondary"]] = value["of"]
            elif isinstance(value.get("primary"), str):
                links.daemon(value["primary"])
        elif ends is None:
            links.reject("short" if isinstance(value, dict) else "json", line)
        else:
            try:
                held.append((_text(ends[0]), _text(ends[1])))
            except FormatError:
                links.reject("short", line)
    for src, dst in held:
        links.add(first.get(src, src), first.get(dst, dst))


def _objects(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise FormatError("it is JSON without links of a mesh")
    return value


def _ends(data: Mapping[str, Any]) -> tuple[Any, Any] | None:
    return next(((data[src], data[dst]) for src, dst in ENDS if src in data and dst in data), None)


def _text(value: Any) -> str:
    """Return a name; D3 leaves an object in the place of one."""
    if isinstance(value, dict):
        value = value.get("id")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise FormatError(f"{str(value)[:60]!r} is no name of a daemon")
    return str(value)
