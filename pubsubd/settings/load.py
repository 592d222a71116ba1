"""The daemon's settings: from flags, variables of the environment and a file to a Config.

A flag goes before its variable, that before the file, and that before the default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

from pubsubd.access.rules import Acl, AclRule
from pubsubd.protocol.errors import ConfigError
from pubsubd.protocol.limits import HubLimits, Limits
from pubsubd.settings.config import Address, Config, ListenerConfig, MeshOptions, Protocol, TlsFiles
from pubsubd.settings.cores import usable_cores
from pubsubd.settings.file import File, read_file
from pubsubd.settings.table import SETTINGS

__all__ = ["Settings", "load"]

_HOST_KEYS = ("host", "port", "hub_port", "no_hub", "unix")
_LIMITS = tuple(field.name for field in fields(Limits) if field.name in SETTINGS)
_HUB_LIMITS = tuple(field.name for field in fields(HubLimits) if f"hub_{field.name}" in SETTINGS)
_MESH = {
    "peer": "peers",
    "mesh": "name",
    "node": "node",
    "discover": "discover",
    "advertise": "advertise",
    "export_edges": "export",
}
"""Settings that make the daemon part of a mesh -> what they are called in MeshOptions."""

_MESH_MORE = {
    "mesh_secret_file": "secret_file",
    "discover_allow": "allow",
    "max_peers": "max_peers",
    "mesh_heartbeat": "heartbeat",
    "site": "site",
    "rack": "rack",
    "export_interval": "export_interval",
    "hub_mesh": "topics",
    "export_detail": "export_detail",
    "export_age": "export_age",
    "export_size": "export_size",
    "mesh_tls": "tls",
    "mesh_tls_ca": "tls_ca",
    "mesh_tls_certificate": "tls_certificate",
    "mesh_tls_key": "tls_key",
}
"""The others of the mesh."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings that were read, and what the daemon is to do.

    Attributes:
        given: name -> value, of those that flags and variables have set.
        path: of the file; None if there is none.
        values: name -> value, of all settings.
        config: what comes of them.
    """

    given: Mapping[str, Any]
    path: Path | None
    values: Mapping[str, Any]
    config: Config

    def reload(self) -> Settings:
        """Return what the file says now.

        Raises:
            ConfigError: it does not load, or something has changed that needs a restart.
        """
        new = load(self.given, self.path)
        if stuck := changed_names(self.fixed(), new.fixed()):
            raise ConfigError(describe_restart(stuck))
        return new

    def fixed(self) -> dict[str, object]:
        """Return what a reload cannot change: name -> value, in terms of JSON."""
        config = self.config
        fixed: dict[str, object] = {
            name: value for name, value in self.values.items() if not SETTINGS[name].live
        }
        for one in config.listeners:
            fixed[f"listener {one.name}"] = (one.protocol, one.addresses, one.unix)
        return fixed | {"peer": config.mesh is not None, "hub_auth": bool(config.hub_auth)}


def changed_names(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    """Return the names of those that differ, of what :meth:`Settings.fixed` returns."""
    stuck = [
        name for name in dict.fromkeys((*before, *after)) if before.get(name) != after.get(name)
    ]
    # That there is a mesh, or a key, follows from other settings, if these have changed.
    for name in ("peer", "hub_auth"):
        if name in stuck and len(stuck) > 1:
            stuck.remove(name)
    return stuck


def describe_restart(names: Sequence[str]) -> str:
    """Return a line that says that these need a restart."""
    many = "changes that need" if len(names) > 1 else "a change that needs"
    return f"{many} a restart: {', '.join(names)}"


def load(given: Mapping[str, Any], path: Path | None = None) -> Settings:
    """Return the settings.

    Args:
        given: name -> value, of those that flags and variables have set.
        path: of the file; None for none.

    Raises:
        ConfigError: something is wrong; if it is in the file, with its line.
    """
    file = None if path is None else read_file(path)
    values = {name: setting.default for name, setting in SETTINGS.items()}
    if file is not None:
        values.update(file.values)
    values.update(given)
    return Settings(given, path, values, _config(values, given, file))


def _config(values: Mapping[str, Any], given: Mapping[str, Any], file: File | None) -> Config:
    config = Config(
        hosts=_hosts(values["host"]),
        port=values["port"],
        hub_port=None if values["no_hub"] else values["hub_port"],
        unix=values["unix"],
        ports_file=values["ports_file"],
        workers=_workers(values["workers"]),
        insecure=values["insecure"],
        limits=Limits(**{name: values[name] for name in _LIMITS}),
        hub_limits=HubLimits(**{name: values[f"hub_{name}"] for name in _HUB_LIMITS}),
        auth=values["auth"],
        users_file=values["users_file"],
        acl=() if file is None else _rules(file),
        tls=_tls(values),
        proxies=values["trusted_proxies"],
        hub_auth=values["hub_auth"],
        hub_audiences=values["hub_audience"],
        jwt_leeway=values["jwt_leeway"],
        hub_hosts=values["hub_host"],
        hub_origins=values["hub_origin"],
        mesh=_mesh(values),
        log_level=values["log_level"],
        path=None if file is None else str(file.path),
        given=frozenset(
            name
            for name in ("host", "port", "hub_port", "unix")
            if name in given or (file is not None and name in file.values)
        ),
    )
    if file is not None and file.listeners:
        set_too = [name for name in _HOST_KEYS if name in given or name in file.values]
        if set_too:
            raise ConfigError(
                f"{set_too[0]} is of no use where {file.path} has [[listener]] tables"
            )
        listeners = tuple(
            _listener(file, number, values, config) for number in range(len(file.listeners))
        )
        for number, one in enumerate(listeners):
            if any(one.name == other.name for other in listeners[:number]):
                raise file.error(
                    ("listener", number), f"there are two listeners with the name {one.name}"
                )
        config = replace(config, listeners=listeners)
    _check_logins(config)
    return config


def _hosts(texts: tuple[str, ...]) -> tuple[str, ...]:
    if "" in texts and len(texts) > 1:
        raise ConfigError("host: an empty one stands for no TCP, and goes with no other")
    return tuple(filter(None, texts))


def _workers(value: int | str) -> int:
    return usable_cores() if isinstance(value, str) else value


def _rules(file: File) -> tuple[AclRule, ...]:
    rules = []
    for number, table in enumerate(file.rules):
        rule = AclRule(table["who"], table.get("publish", ()), table.get("receive", ()))
        try:
            Acl((rule,))
        except ConfigError as error:
            raise file.error(("acl", number), str(error)) from None
        rules.append(rule)
    return tuple(rules)


def _tls(values: Mapping[str, Any]) -> TlsFiles | None:
    certificate = values["tls_certificate"]
    if certificate is None:
        for name in ("tls_key", "tls_client_ca", "tls_client_required"):
            if values[name]:
                raise ConfigError(f"{name} is of no use without tls_certificate")
        return None
    if values["tls_client_required"] and values["tls_client_ca"] is None:
        raise ConfigError("tls_client_required is of no use without tls_client_ca")
    return TlsFiles(
        certificate, values["tls_key"], values["tls_client_ca"], values["tls_client_required"]
    )


def _mesh(values: Mapping[str, Any]) -> MeshOptions | None:
    wanted = {key: values[name] for name, key in _MESH.items() if values[name]}
    if not wanted:
        if values["mesh_secret_file"] is not None:
            raise ConfigError("mesh_secret_file is of no use without peer or mesh")
        return None
    if not values["mesh_tls"]:
        for name in ("mesh_tls_ca", "mesh_tls_certificate", "mesh_tls_key"):
            if values[name] is not None:
                raise ConfigError(f"{name} is of no use without mesh_tls")
    return MeshOptions(**wanted, **{key: values[name] for name, key in _MESH_MORE.items()})


def _listener(file: File, number: int, values: Mapping[str, Any], config: Config) -> ListenerConfig:
    table, spot = file.listeners[number], ("listener", number)
    protocol = table.get("protocol")
    if protocol not in ("line", "hub"):
        raise file.error(spot, "protocol has to be line or hub")
    for key in table:
        setting = SETTINGS.get(key)
        if setting is not None and setting.listener not in ("both", protocol):
            raise file.error((*spot, key), f"{key} is not a setting of a {protocol} listener")
    texts = table.get("address", ())
    if not texts:
        raise file.error(spot, "address is missing: HOST:PORT, a list of these, or unix:PATH")
    addresses: tuple[Address, ...] = ()
    unix = texts[0].removeprefix("unix:") if texts[0].startswith("unix:") else None
    try:
        if unix is None:
            addresses = tuple(map(_address, texts))
        elif len(texts) > 1:
            raise ValueError("a Unix socket has a listener of its own")
    except ValueError as error:
        raise file.error((*spot, "address"), f"address: {error}") from None
    own = {**values, **table}
    tls: TlsFiles | None = None
    if "tls_certificate" in table:  # its own, with nothing of the other one's
        own.update({name: table.get(name) for name in ("tls_key", "tls_client_ca")})
        own["tls_client_required"] = table.get("tls_client_required", False)
    if table.get("tls", True) and (unix is None or "tls_certificate" in table):
        try:
            tls = _tls(own)
        except ConfigError as error:
            raise file.error(spot, str(error)) from None
    return ListenerConfig(
        name=table.get("name", protocol),
        protocol=cast("Protocol", protocol),
        addresses=addresses,
        unix=unix,
        login=config.login(cast("Protocol", protocol), table.get("auth")),
        tls=tls,
        named_by=("address",),
        proxies=own["trusted_proxies"],
        limits=Limits(**{name: own[name] for name in _LIMITS}),
        hub_limits=HubLimits(**{name: own[f"hub_{name}"] for name in _HUB_LIMITS}),
    )


def _address(text: str) -> Address:
    host, colon, digits = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    number = digits.isascii() and digits.isdigit() and len(digits) <= 5
    if not (colon and host and number and int(digits) < 65_536):
        raise ValueError(f"{text[:80]!r} is no HOST:PORT")
    return host, int(digits)


def _check_logins(config: Config) -> None:
    """Refuse to ask for what nobody could say, and links by which clients could gain rights."""
    if config.hub_auth is None:
        for name, value in (
            ("hub_audience", config.hub_audiences),
            ("jwt_leeway", config.jwt_leeway),
        ):
            if value:
                raise ConfigError(f"{name} is of no use without hub_auth")
    limited = bool(config.acl) or any(one.login for one in config.all_listeners())
    mesh = config.mesh
    if limited and mesh is not None and mesh.discover == "any" and mesh.secret_file is None:
        raise ConfigError(
            "discover = any needs a mesh_secret_file where there are logins or rules: any client"
            " could name a daemon of its own, and that may do everything"
        )
    for one in config.all_listeners():
        if not one.login or one.unix is not None:
            continue
        checked = config.users_file is not None or (one.tls is not None and one.tls.client_ca)
        if not checked and not (one.protocol == "hub" and config.hub_auth is not None):
            raise ConfigError(
                f"nobody could come in by the listener {one.name}: there is neither a users_file"
                " nor a tls_client_ca"
            )
