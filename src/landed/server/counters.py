"""What a server counts about itself; the metrics page is printed from it."""

from __future__ import annotations

from dataclasses import dataclass, field

from landed.wire.messages import Operation


@dataclass(slots=True)
class Counters:
    """Totals since the start. Plain numbers, because some of them move with every request."""

    connections_opened: int = 0
    connections_refused: int = 0
    """Closed at once, because there were ``connections_max`` already."""
    requests: dict[Operation, int] = field(default_factory=lambda: dict.fromkeys(Operation, 0))
    """Received whole, by what they asked for."""
    answers: int = 0
    """Put into a transport; fewer than the requests by what was dropped and what is running."""
    received_bytes: int = 0
    sent_bytes: int = 0
    writes: int = 0
    """Calls to a transport: one a connection and loop turn, however many answers it carries."""
    violations: int = 0
    dropped_slow: int = 0
    """Clients that did not take their answers."""
    dropped_idle: int = 0
    """Connections without a whole request for too long, the dripping ones included."""
