"""How far workers have come, which they tell each other without messages."""

from __future__ import annotations

import subprocess
import sys

FORK = """
import os
from pubsubd.siblings.progress import Progress

progress = Progress(3)
if os.fork() == 0:
    progress.note(2, 1, 1 << 40)
    os._exit(0)
os.wait()
assert progress.done(2, 1) == 1 << 40
assert progress.done(1, 2) == progress.done(2, 0) == 0
"""


def test_what_a_worker_notes_is_seen_by_the_others():
    subprocess.run([sys.executable, "-c", FORK], check=True, timeout=60)
