"""How fast a producer may send: a bucket for each, of this process (rule AU-7)."""

from __future__ import annotations

import math

from landed.clock import Clock
from landed.deliveries.producer import Producer


class Rates:
    """Buckets that hold one second's worth, full at first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, producer: Producer) -> int | None:
        """Take one token. None: there was one; else how many whole seconds to wait."""
        rate = producer.rate_per_s
        if rate is None:
            return None
        burst = max(1.0, rate)
        now_ms = float(self._clock.monotonic_ms())
        held, at_ms = self._buckets.get(producer.namespace, (burst, now_ms))
        held = min(burst, held + (now_ms - at_ms) / 1000 * rate)
        if held < 1.0:
            self._buckets[producer.namespace] = (held, now_ms)
            return max(1, math.ceil((1.0 - held) / rate))
        self._buckets[producer.namespace] = (held - 1.0, now_ms)
        return None
