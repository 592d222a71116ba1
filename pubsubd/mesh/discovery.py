"""Discovery: addresses that may be dialled, and daemons worth a further link."""

from __future__ import annotations

import ipaddress
import math
import random
from collections.abc import Iterable, Mapping, Sequence

from pubsubd.broker.turn import Steps, finish
from pubsubd.mesh.adverts import Advert, AdvertError
from pubsubd.mesh.linkstate import Table

_STEP = 256  # daemons looked at between two looks at the clock
_NEAR = 2  # links away; one so near is not worth a link if it has enough

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def check_target(
    host: str, addresses: Iterable[str], allowed: Sequence[Network], own: Iterable[str]
) -> None:
    """Refuse to dial a learned address that leads somewhere it should not.

    Without ``allowed`` networks, public addresses may be dialled, and others only if they are of
    the same kind, loopback, link-local or private, as the ones this daemon has itself: nobody can
    make a daemon knock at listeners behind its own firewall.

    Args:
        host: as it was learned.
        addresses: what ``host`` stands for.
        allowed: networks, if the operator has named any.
        own: this daemon's own addresses.

    Raises:
        AdvertError: it must not be dialled.
    """
    mine = [ipaddress.ip_address(one) for one in own]
    for text in addresses:
        address = ipaddress.ip_address(text.partition("%")[0])
        if address.is_unspecified or address.is_multicast or address.is_reserved:
            raise AdvertError(f"{host} is no address to dial")
        if allowed:
            if not any(address.version == net.version and address in net for net in allowed):
                raise AdvertError(f"{host} is in no network that is allowed")
        elif address.is_loopback:
            if not any(one.is_loopback for one in mine):
                raise AdvertError(f"{host} is a loopback address")
        elif address.is_link_local:
            if not any(one.is_link_local for one in mine):
                raise AdvertError(f"{host} is a link-local address")
        elif not address.is_global and not any(
            not one.is_global and not one.is_loopback for one in mine
        ):
            raise AdvertError(f"{host} is a private address")


def choose(
    table: Table,
    linked: Iterable[str],
    tried: Mapping[str, float],
    most: int,
    rng: random.Random,
) -> Advert | None:
    """Return what :func:`choosing` does, without a pause."""
    return finish(choosing(table, linked, tried, most, rng))


def choosing(
    table: Table,
    linked: Iterable[str],
    tried: Mapping[str, float],
    most: int,
    rng: random.Random,
) -> Steps[Advert | None]:
    """Return, in steps, a daemon to link to, or None if no further link would be of use.

    The farthest are chosen first, so that the mesh becomes short instead of clustered; of equally
    far ones, one with few links, by chance. Those that have ``most`` links have enough, but they
    are taken if there are no others, as a mesh that has grown from one end would stay long
    otherwise. A daemon that has enough links itself makes a further one only if somebody is
    farther than in a random graph of as many daemons with as many links each, by two.

    Args:
        table: who is there.
        linked: ids of the neighbours.
        tried: ids that were tried lately.
        most: links that a daemon should have.
        rng: for the choice between equals.
    """
    neighbours = {table.me, *linked}
    hops = table.hops
    enough = len(neighbours) > most
    near = _NEAR
    if enough:
        near += math.ceil(math.log(len(hops)) / math.log(max(2, most - 1)))
    best: tuple[bool, int, int, float] | None = None
    found: Advert | None = None
    for number, (node, far) in enumerate(hops.items()):  # found anew, they are another dict
        if number % _STEP == 0:
            yield
        advert = table.adverts.get(node)
        if node in neighbours or node in tried or advert is None:
            continue
        free = len(advert.links) < most
        if far <= near and (enough or not free):
            continue
        rank = (free and not enough, far, -len(advert.links), rng.random())
        if best is None or rank > best:
            best, found = rank, advert
    return found
