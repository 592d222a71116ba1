"""Files that settings were read from, and whether they have changed since."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pubsubd.daemon.certificates import show
from pubsubd.protocol.wire import escape

if TYPE_CHECKING:
    from pubsubd.settings.config import Config


class ReadFiles:
    """Files as they are when this is made, which is before they are read.

    Args:
        paths: of the files.
    """

    def __init__(self, paths: Iterable[str] = ()) -> None:
        self._seen = {path: _identify(path) for path in paths}

    def describe_change(self) -> str:
        """Return which file has changed first, and when; an empty text if none has."""
        changed = []
        for path, before in self._seen.items():
            now = _identify(path)
            if now != before:
                changed.append((float("inf") if now is None else now[-1] / 1e9, path))
        if not changed:
            return ""
        since, path = min(changed)
        when = ", which is gone" if since == float("inf") else f" since {show(since)}"
        return f"{escape(path)}{when}"


def named_files(config: Config) -> list[str]:
    """Return the paths of the settings file and of the files that it names."""
    found = [config.path, config.users_file, config.hub_auth]
    for one in config.all_listeners():
        if one.tls is not None:
            found += [one.tls.certificate, one.tls.key, one.tls.client_ca]
    if (mesh := config.mesh) is not None:
        found += [mesh.secret_file, mesh.tls_ca, mesh.tls_certificate, mesh.tls_key]
    return [path for path in dict.fromkeys(found) if path is not None]


def _identify(path: str) -> tuple[int, int, int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
