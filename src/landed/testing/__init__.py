"""For tests of programs that use Landed: a recipient that misbehaves as told, crashes, time.

Tower above the handling wing; never imported by it. Start with recipient.py.
"""

from landed.testing.checks import invariants, no_sockets
from landed.testing.clock import Clock
from landed.testing.crash import Crash, crash_at
from landed.testing.everywhere import Died, crash_everywhere, settle
from landed.testing.recipient import Fault, FaultyRecipient

__all__ = [
    "Clock",
    "Crash",
    "Died",
    "Fault",
    "FaultyRecipient",
    "crash_at",
    "crash_everywhere",
    "invariants",
    "no_sockets",
    "settle",
]
