"""The head of a report: what broke, in sentences, before all figures."""

from __future__ import annotations

from collections.abc import Sequence

from pubsubd.topology.report.data import Gone, Incident, MeshReport
from pubsubd.topology.report.parts import MORE, Listing, Status
from pubsubd.topology.report.snapshot_view import SnapshotView
from pubsubd.topology.report.texts import count, listing, moment, number, shorten

_NAMED = 3  # of each kind, in a sentence
_ROOM = 40  # characters of a name

Finding = tuple[Status, str]
"""How bad it is, and a sentence."""


def findings(mesh: MeshReport, facts: SnapshotView) -> list[Finding]:
    """Return what broke, the worst first; one healthy sentence if nothing did.

    There are none of a list without times.
    """
    incident = mesh.incident
    if incident is None:
        return []
    sentences = [_gone(incident), _unheard(incident), _apart(incident), _weakened(incident)]
    found = [(Status.ACT, one) for one in sentences if one]
    if incident.why is not None:
        found.append((Status.UNKNOWN, f"New single points of failure: {incident.why}."))
    if not found and facts.whole("daemons"):
        nothing = "No daemon is gone, no part is cut off, and no single point of failure is new"
        found.append((Status.GOOD, f"{nothing} since {before(incident)}."))
    return found


def before(incident: Incident) -> str:
    """Return what the single points of failure are compared with."""
    if incident.compared is None:
        return "the first report"
    return f"the window of {moment(incident.compared)}"


def _gone(incident: Incident) -> str:
    gone = [one for one in incident.gone if one.since is not None]
    if not gone:
        return ""
    shown = "; ".join(tell_gone(one) for one in gone[:_NAMED])
    if len(gone) == 1:
        name, _, rest = shown.partition(" since ")
        return f"{name} has been gone since {rest}."
    return f"{count(len(gone), 'daemon')} are gone: {shown}{_more(len(gone))}."


def tell_gone(one: Gone) -> str:
    """Return a daemon that is gone: ``n4 since 2026-11-28 06:33 UTC, lost by n1, n3``."""
    name = shorten(one.id, _ROOM)
    if one.since is None:
        return f"{name}, of which nothing tells"
    return f"{name} since {moment(one.since)}" + (f", {one.detail}" if one.detail else "")


def _unheard(incident: Incident) -> str:
    unheard = [one.id for one in incident.gone if one.since is None]
    if not unheard:
        return ""
    them = "it" if len(unheard) == 1 else "them"
    return (
        f"Listed in the file of --nodes, but nothing tells of {them}:"
        f" {listing(unheard, _NAMED, _ROOM)}."
    )


def _apart(incident: Incident) -> str:
    parts = incident.parts
    if not parts:
        return ""
    shown = "; ".join(
        ", ".join(shorten(name, _ROOM) for name in one.names[:_NAMED])
        + _more(one.daemons)
        + (f", since {moment(one.since)}" if one.since else "")
        for one in parts[:_NAMED]
    )
    return f"Cut off from the largest part: {shown}{_more(len(parts))}."


def _weakened(incident: Incident) -> str:
    daemons = [shorten(one, _ROOM) for one in incident.new_articulation or ()]
    links = [
        f"{shorten(one, _ROOM)} - {shorten(other, _ROOM)}"
        for one, other in incident.new_bridges or ()
    ]
    if not daemons and not links:
        return ""
    parts = []
    if daemons:
        parts.append(f"{'daemon' if len(daemons) == 1 else 'daemons'} {_some(daemons)}")
    if links:
        parts.append(f"{'link' if len(links) == 1 else 'links'} {_some(links)}")
    points = "point" if len(daemons) + len(links) == 1 else "points"
    return f"New single {points} of failure since {before(incident)}: {'; '.join(parts)}."


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + _more(len(names))


def _more(entries: int) -> str:
    rest = entries - _NAMED
    return f" and {number(rest)} more" if rest > 0 else ""


def gone_listing(incident: Incident) -> Listing:
    """Return the daemons that are gone, the latest first."""
    return Listing(
        "Daemons that are gone",
        {
            "Daemon": "name",
            "Since": "text",
            "How": "text",
            "Last report": "text",
            "Address": "text",
            "Version": "text",
        },
        [
            [
                one.id,
                moment(one.since) if one.since else "never seen",
                one.detail,
                moment(one.last_seen),
                one.address or "",
                one.version or "",
            ]
            for one in incident.gone[:MORE]
        ],
        len(incident.gone),
    )
