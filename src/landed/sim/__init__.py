"""The real server, pool, loop and engines on a deterministic event loop.

Tower. One seed gives one history. Start with loop.py (time, TCP and threads from a seed), then
explore.py.
"""

from landed.sim.clock import HostClock
from landed.sim.faults import CALM, Dials
from landed.sim.loop import (
    SimLoop,
    SimulationStuckError,
    WorldFailedError,
    on_host,
    run,
    sim_loop,
    this_host,
)

__all__ = [
    "CALM",
    "Dials",
    "HostClock",
    "SimLoop",
    "SimulationStuckError",
    "WorldFailedError",
    "on_host",
    "run",
    "sim_loop",
    "this_host",
]
