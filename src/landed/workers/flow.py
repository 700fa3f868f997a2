"""How fast one recipient is called from this process: its places, its rate, and a breaker.

None of them changes any effect: what may not be called now stays where it is, and due (rule AT-12).
"""

from __future__ import annotations

import random

from landed.clock import Clock
from landed.effects.answer import Ambiguous, AttemptAnswer, NotSent
from landed.effects.contract import Contract
from landed.facts import Note
from landed.workers.desk import Tempo


class Flow:
    """One recipient's places, token bucket and breaker, shared by its executor and its reconciler.

    Per process: several workers have a rate each, so declare a share of the recipient's own limit.
    """

    def __init__(
        self,
        recipient: str,
        contract: Contract,
        *,
        clock: Clock,
        chance: random.Random,
        tempo: Tempo,
        note: Note,
    ) -> None:
        self.recipient = recipient
        self._concurrency = contract.concurrency
        self._in_flight = 0
        self._rate_per_s = contract.rate_per_s
        self._burst = max(1.0, contract.rate_per_s or 1.0)
        self._tokens = self._burst
        self._filled_ms = float(clock.monotonic_ms())
        self._clock = clock
        self._chance = chance
        self._tempo = tempo
        self._note = note
        self._failures = 0
        self._closed_until_ms = 0.0
        self._is_probing = False

    @property
    def is_open(self) -> bool:
        """The breaker is open: nothing is sent, until one probe may try."""
        return self._failures >= self._tempo.breaker_after

    def room(self, wanted: int) -> int:
        """How many calls may begin now, of those wanted."""
        now_ms = float(self._clock.monotonic_ms())
        wanted = max(0, min(wanted, self._concurrency - self._in_flight))
        if self.is_open:
            if self._is_probing or now_ms < self._closed_until_ms:
                return 0
            wanted = min(wanted, 1)
        if self._rate_per_s is None:
            return wanted
        self._fill(now_ms)
        return min(wanted, int(self._tokens))

    def take(self) -> bool:
        """Take the right to one call; False if none is left now."""
        return self.take_some(1) == 1

    def take_some(self, wanted: int) -> int:
        """Take the right to several calls; returns how many there are now, of those wanted."""
        taken = self.room(wanted)
        self._in_flight += taken
        if self._rate_per_s is not None:
            self._tokens -= taken
        if taken and self.is_open:
            self._is_probing = True
        return taken

    def give_back(self, calls: int = 1) -> None:
        """So many calls were not made after all, or nobody waits for their answers any more."""
        if calls == 0:
            return
        self._in_flight -= calls
        self._is_probing = False
        if self._rate_per_s is not None:
            self._tokens = min(self._burst, self._tokens + calls)

    def answered(self, answer: AttemptAnswer) -> None:
        """Count what came back: only silence, errors and refused connections open the breaker."""
        self._in_flight -= 1
        self._is_probing = False
        if not isinstance(answer, Ambiguous | NotSent):
            if self.is_open:
                self._note("recipient.resumed", {"recipient": self.recipient})
            self._failures = 0
            return
        self._failures += 1
        over = self._failures - self._tempo.breaker_after
        if over < 0:
            return
        longest_s = min(self._tempo.breaker_max_s, self._tempo.breaker_s * 2 ** min(over, 16))
        pause_s = longest_s * (0.5 + self._chance.random() / 2)
        self._closed_until_ms = float(self._clock.monotonic_ms()) + pause_s * 1000
        self._note("recipient.paused", {"recipient": self.recipient, "seconds": pause_s})

    def _fill(self, now_ms: float) -> None:
        rate = self._rate_per_s or 0.0
        passed_s = max(0.0, now_ms - self._filled_ms) / 1000
        self._tokens = min(self._burst, self._tokens + passed_s * rate)
        self._filled_ms = now_ms
