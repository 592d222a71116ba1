"""Settings of the mesh, read and checked."""

from __future__ import annotations

import ipaddress
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from pubsubd.files.bounded import read_bounded
from pubsubd.mesh.adverts import AdvertError, check_label, check_node, parse_address
from pubsubd.mesh.dial import Settings
from pubsubd.mesh.exporting import Export
from pubsubd.mesh.state import MeshConfig
from pubsubd.protocol.errors import ConfigError, ProtocolError
from pubsubd.protocol.wire import check_name, quote, show_address
from pubsubd.transport.addresses import is_everywhere, is_link_local
from pubsubd.transport.tls import client_context

if TYPE_CHECKING:
    from pubsubd.settings.config import MeshOptions

_LEAST_SECRET = 16  # bytes; whoever says hello gets a proof to try guesses against


def read_settings(options: MeshOptions, host: str, port: int) -> Settings:
    """Return the settings of a daemon that listens on ``host`` and ``port``.

    Raises:
        ConfigError: they cannot be used.
    """
    try:
        if options.advertise is not None:
            host, port = parse_address(options.advertise)
            if is_everywhere(host):
                raise ConfigError(f"{options.advertise} is no address that others could dial")
        elif is_everywhere(host) or is_link_local(host):  # an interface's name is known here only
            host = socket.gethostname()
        node = options.node or re.sub(r"[][]", "", show_address(host, port)).replace("%", "-")
        config = MeshConfig(
            node=check_node(node),
            mesh=check_node(options.name, "name of a mesh"),
            host=host,
            port=port,
            secret=None if options.secret_file is None else _read_secret(Path(options.secret_file)),
            heartbeat=options.heartbeat,
            topics=tuple(map(_check_topic, options.topics)),
            site=check_label(options.site, "site") if options.site else "",
            rack=check_label(options.rack, "rack") if options.rack else "",
        )
        peers = tuple(dict.fromkeys(parse_address(peer) for peer in options.peers))
        allowed = tuple(ipaddress.ip_network(one) for one in options.allow)
    except AdvertError as error:
        raise ConfigError(str(error)) from None
    except ValueError as error:
        raise ConfigError(f"--discover-allow: {error}") from None
    return Settings(
        config=config,
        peers=peers,
        discover=options.discover,
        allowed=allowed,
        max_peers=options.max_peers,
        export=None
        if options.export is None
        else Export(
            options.export,
            options.export_interval,
            options.export_detail,
            options.export_age,
            options.export_size,
        ),
        tls=client_context(options.tls_ca, options.tls_certificate, options.tls_key, watch=True)
        if options.tls
        else None,
    )


def _check_topic(text: str) -> str:
    """Return what topics begin with that cross links, or ``#``."""
    if text != "#" and ("#" in text or "+" in text or text.startswith("//")):
        raise ConfigError(
            f"hub_mesh: {quote(text.encode())} is not the beginning of a topic, without wildcards,"
            " or # for all; what begins with // crosses links anyway"
        )
    try:
        check_name(text.encode(), "beginning of topics")
    except ProtocolError as error:
        raise ConfigError(f"hub_mesh: {error.text}") from None
    return text


def _read_secret(path: Path) -> bytes:
    try:
        secret = read_bounded(path).strip()
    except OSError as error:
        raise ConfigError(f"cannot read the secret {path}: {error.strerror or error}") from None
    if len(secret) < _LEAST_SECRET:
        raise ConfigError(f"the secret in {path} has under {_LEAST_SECRET} bytes")
    return secret
