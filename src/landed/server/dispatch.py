"""Who answers a request: the engine, or the door itself."""

from __future__ import annotations

from collections.abc import Callable

from landed.engines.port import Engine
from landed.wire.messages import Identified, Identify, LogFacts, Probe, WireAnswer, WireRequest


def dispatch(request: WireRequest, engine: Engine, done: Callable[[WireAnswer], None]) -> None:
    """Hand a request to whoever answers it; ``done`` takes the answer, now or later.

    Everything about a log is the engine's, the routing of its keys included.
    """
    if isinstance(request, Identify):
        # No keys are configured in this version, so nobody is verified and nothing is granted:
        # what a client shows is not looked at (wire spec 7.3).
        done(Identified())
    elif isinstance(request, Probe):
        identity = engine.identity
        done(LogFacts(identity.log_id, identity.restore_epoch, engine.position))
    else:
        engine.submit(request, done)
