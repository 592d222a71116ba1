"""Single files that are mounted, as into a container: they are written, though not replaced."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pubsubd.access.users import load_users
from tests.daemons import DEADLINE, environment

SPACE = ["unshare", "--mount", "--map-root-user", "--", "sh", "-ec"]

# In a folder that may be written, and in one that may not.
MOUNT = """
mkdir there
if [ "$1" = ro ]; then mount -t tmpfs none there; fi
for name in users ports; do
    touch $name there/$name
    mount --bind $name there/$name
done
if [ "$1" = ro ]; then mount -o remount,ro there; fi
"""


@pytest.mark.parametrize("folder", ["rw", "ro"])
def test_a_mounted_file_is_written_in_place(folder: str, tmp_path: Path) -> None:
    if subprocess.run([*SPACE, "mount -t tmpfs none /mnt"], check=False).returncode:
        pytest.skip("this user may not mount anything (unshare --mount)")
    script = f"""{MOUNT}
    echo 'correct horse' | "$0" -m pubsubd passwd --stdin there/users ann
    "$0" -m pubsubd passwd --token there/users bob >token
    echo 'another horse' | "$0" -m pubsubd passwd --stdin there/users ann
    "$0" -m pubsubd serve --port 0 --no-hub --users-file there/users --ports-file there/ports &
    until [ -s ports ]; do sleep 0.01; done
    cat there/ports
    kill $!
    wait $!
    """
    done = subprocess.run(
        [*SPACE, script, sys.executable, folder],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["line"]["port"]
    assert (tmp_path / "ports").read_bytes() == b""  # it cannot be removed
    users = load_users(tmp_path / "users")
    assert users.verify("ann", "another horse")
    assert not users.verify("ann", "correct horse")
    assert users.find_token((tmp_path / "token").read_text().strip())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ports", "there", "token", "users"]
