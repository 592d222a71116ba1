"""Sections on where daemons are and how far apart in time: failure domains, round trips."""

from __future__ import annotations

from typing import Any

from pubsubd.topology.report.changes import dialling
from pubsubd.topology.report.data import DomainKind, MeshReport
from pubsubd.topology.report.parts import MORE, Figure, Listing, Section, Status, judge
from pubsubd.topology.report.texts import NOTHING, count, number, shorten

_FAR = 1.5  # times the fastest ways, from which the ways of messages are worth a look
_LINKS = 3  # that are named in a cell
_ROOM = 30  # characters of a name there


def domains(mesh: MeshReport) -> Section:
    """Section: what the mesh loses with all daemons of a site or the like."""
    section = Section("domains", "Failure domains")
    if not mesh.domains:
        section.silent = True
        section.advice = (
            "No daemon says where it is: set --site and --rack, or name its domains in the file of"
            " --nodes."
        )
        return section
    section.figures = [_figure(kind) for kind in mesh.domains]
    rows = [
        [
            kind.kind,
            row["name"],
            number(row["daemons"]),
            number(row["cut_off"]),
            number(row["pieces"]),
            _joins(row["links"]),
        ]
        for kind in mesh.domains
        for row in kind.parting[:MORE]
    ]
    section.add(
        Listing(
            "Domains whose loss cuts off other daemons",
            {
                "Kind": "text",
                "Domain": "name",
                "Daemons in it": "number",
                "Cut off": "number",
                "Pieces": "number",
                "Links that prevent it": "text",
            },
            rows,
            sum(len(kind.parting) for kind in mesh.domains),
        )
    )
    parting = [(kind, row) for kind in mesh.domains for row in kind.parting]
    if parting:
        kind, worst = max(parting, key=lambda one: one[1]["cut_off"])
        links = worst["links"]
        section.advice = (
            f"The loss of the {kind.kind} {shorten(worst['name'], _ROOM)} would cut off"
            f" {count(worst['cut_off'], 'daemon')} outside of it"
        )
        section.advice += f": link {_joins(links)}." if links else "."
    elif any(kind.why for kind in mesh.domains):
        section.advice = "Not all kinds of domains were looked at."
    else:
        section.advice = "No loss of a whole domain cuts off daemons outside of it."
    return section


def _figure(kind: DomainKind) -> Figure:
    label = f"Domains whose loss cuts off others: {kind.kind}"
    if kind.why:
        return Figure(label, NOTHING, "0", Status.UNKNOWN, note=kind.why)
    parting = len(kind.parting)
    note = f"{count(kind.placed, 'daemon')} placed"
    value = f"{number(parting)} of {number(kind.domains)}"
    return Figure(label, value, "0", judge(not parting), note=note)


def _joins(links: list[list[str]]) -> str:
    shown = [f"{shorten(a, _ROOM)} - {shorten(b, _ROOM)}" for a, b in links[:_LINKS]]
    more = len(links) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more > 0 else "")


def round_trips(mesh: MeshReport) -> Section:
    """Section: the time that messages are on their way."""
    section = Section("round-trips", "Round trips")
    trips = mesh.trips
    if trips is None or trips.why:
        section.silent = True
        section.advice = (
            f"Round trips were {trips.why}."
            if trips is not None
            else "No link has a round trip in this input."
        )
        return section
    seen = "" if trips.origins == trips.daemons else f"of messages from {trips.origins:,} daemons"
    section.figures = [
        Figure(
            "Mean, along the ways that messages take",
            _ms(trips.mean),
            f"up to {_FAR:g} times the fastest",
            judge(trips.mean <= _FAR * trips.fastest),
            note=seen,
        ),
        Figure("Mean, along the fastest ways", _ms(trips.fastest)),
        Figure("Links with a round trip", f"{trips.measured:,} of {trips.links:,}", "all"),
    ]
    section.add(
        Listing(
            "Slowest pairs",
            {
                "From": "name",
                "To": "name",
                "Hops": "number",
                "Round trip": "number",
                "Fastest way": "number",
            },
            [
                [row["src"], row["dst"], number(row["hops"]), _ms(row["trip"]), _ms(row["fastest"])]
                for row in trips.slowest
            ],
        )
    )
    section.add(
        Listing(
            "Slowest links",
            {"One end": "name", "Other end": "name", "Median": "number", "95th": "number"},
            [[row["src"], row["dst"], _ms(row["median"]), _ms(row["p95"])] for row in trips.worst],
        )
    )
    section.add(
        Listing(
            "Links that would save time",
            {
                "Add on": "name",
                "Link to": "name",
                "Option": "command",
                "Taken to need": "number",
                "Saves between them": "number",
                "Saves in the mean": "number",
            },
            [_new(row, mesh) for row in trips.new],
        )
    )
    best = trips.new[0] if trips.new else None
    section.advice = (
        f"A link between {shorten(best['src'], _ROOM)} and {shorten(best['dst'], _ROOM)} would save"
        f" {_ms(best['saves'])} between them, if it is as fast as the fastest way there is now."
        if best
        else "No new link would save a millisecond, as far as round trips of links tell."
    )
    return section


def _new(row: dict[str, Any], mesh: MeshReport) -> list[str]:
    here = dialling({"id": row["src"], "other": row["dst"]}, mesh.addresses)
    return [*here, _ms(row["trip"]), _ms(row["saves"]), _ms(row["mean_saves"])]


def _ms(value: float | None) -> str:
    return NOTHING if value is None else f"{number(value, 3)} ms"
