"""The end of ``landed work`` where its database has gone silent."""

import subprocess
import sys

STUCK = """
import threading
from landed.cli.work import leave_after

threading.Thread(target=threading.Event().wait).start()  # waits for a database that is silent
leave_after(0.2)
"""


def test_a_worker_held_by_a_silent_database_leaves_with_one_line_all_the_same() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "kept silent" in done.stderr
