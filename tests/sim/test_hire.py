"""The processes that worlds are lived in."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

_PATIENCE_S = 30


@pytest.mark.real_loop
def test_a_crew_whose_hirer_is_killed_is_gone():
    command = [sys.executable, "-m", "landed", "explore", "--seeds", "100000", "--jobs", "2"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as hirer:
        me = psutil.Process(hirer.pid)
        crew: list[psutil.Process] = []
        for _ in range(_PATIENCE_S * 10):
            crew = me.children(recursive=True)
            if sum(one.cpu_times().user > 0.5 for one in crew) == 2:
                break
            psutil.wait_procs([me], timeout=0.1)
        assert len(crew) >= 2
        hirer.kill()
    gone, alive = psutil.wait_procs(crew, timeout=_PATIENCE_S)
    for one in alive:
        one.kill()
    assert alive == []
    assert len(gone) == len(crew)
