"""The dials of a simulated world: how late, how lossy, how slow. All of them, on one page.

Probabilities are 0 to 1; spans are (low, high) in virtual seconds and drawn evenly between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

Span = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dials:
    """What may go wrong, and how often. The default is a calm world: small delays and no fault."""

    # --- the network
    latency_s: Span = (0.0002, 0.0006)
    """One way, each segment. Bytes of one direction never overtake each other."""
    stall: float = 0.0
    """A segment, and all behind it, arrives late by ``stall_s``: often after its sender gave up."""
    stall_s: Span = (0.5, 8.0)
    split: float = 0.0
    """A write arrives in pieces."""
    merge: float = 0.0
    """A write arrives together with the one before it."""
    refuse: float = 0.0
    """A dial is refused."""
    deaf: float = 0.0
    """A dial is never answered."""
    lose_before: float = 0.0
    """A write of the dialling side does not reach its peer, and neither does anything after it."""
    lose_after: float = 0.0
    """A write of the dialling side arrives whole; the answer never comes back."""
    reset: float = 0.0
    """The connection is reset at some byte of a write, of either side."""
    half_close: float = 0.0
    """The receiver sees the end of the stream at some byte of a write, of either side."""
    silence: float = 0.5
    """The share of lost writes that nobody is told about; the others end in a reset."""

    # --- threads
    executor_s: Span = (0.0001, 0.0003)
    """From hand-over to run, and again from run to the news of it."""
    executor_stall: float = 0.0
    """A call, and the news of it, takes ``executor_stall_s`` longer."""
    executor_stall_s: Span = (0.01, 2.0)


CALM: Final = Dials()
"""No fault at all: the world of plain tests."""
