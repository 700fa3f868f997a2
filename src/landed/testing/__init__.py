"""For tests of programs that use Landed: a recipient that misbehaves as told, crashes, time.

Tower above the handling wing; never imported by it. Start with recipient.py. Everything is loaded
when it is asked for: pytest reads plugin.py in every run, also in those that use none of this.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from landed.testing.boundaries import Boundary, BoundaryError, crash_at_every_boundary
    from landed.testing.checks import invariants, no_sockets
    from landed.testing.clock import Clock
    from landed.testing.crash import Crash, crash_at
    from landed.testing.everywhere import Died, crash_everywhere, settle
    from landed.testing.recipient import Fault, FaultyRecipient

_WHERE = {
    "Boundary": "boundaries",
    "BoundaryError": "boundaries",
    "Clock": "clock",
    "Crash": "crash",
    "Died": "everywhere",
    "Fault": "recipient",
    "FaultyRecipient": "recipient",
    "crash_at": "crash",
    "crash_at_every_boundary": "boundaries",
    "crash_everywhere": "everywhere",
    "invariants": "checks",
    "no_sockets": "checks",
    "settle": "everywhere",
}

__all__ = [
    "Boundary",
    "BoundaryError",
    "Clock",
    "Crash",
    "Died",
    "Fault",
    "FaultyRecipient",
    "crash_at",
    "crash_at_every_boundary",
    "crash_everywhere",
    "invariants",
    "no_sockets",
    "settle",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
