"""Alerts go to every place that was declared for them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from landed.fingerprint import Json
from landed.relay.port import Handed, NotHanded, Outgoing, Sink, Taken

_REMEMBERED_MAX: Final = 10_000


class Everywhere:
    """Hands a message to several sinks; it is done when all of them have it.

    Which of them have it is remembered in this process, so that one that is down does not make the
    others repeat themselves for ever.
    """

    dedup_window_s: float | None = None

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = tuple(sinks)
        self._taken: OrderedDict[tuple[str, int], dict[str, Json]] = OrderedDict()

    @property
    def proof(self) -> str:
        return "; ".join(sink.proof for sink in self._sinks)

    async def hand_on(self, message: Outgoing) -> Handed:
        handed = await asyncio.gather(
            *(self._one(message, index, sink) for index, sink in enumerate(self._sinks))
        )
        proofs: list[Json] = []
        for answer in handed:
            if not isinstance(answer, Taken):
                # One that says "never" must not keep the others from repeats of other alerts.
                return answer if isinstance(answer, NotHanded) else NotHanded(answer.error)
            proofs.append(answer.proof)
        for index in range(len(self._sinks)):
            self._taken.pop((message.message_id, index), None)
        return Taken({"sinks": proofs})

    async def close(self) -> None:
        for sink in self._sinks:
            await sink.close()

    async def _one(self, message: Outgoing, index: int, sink: Sink) -> Handed:
        place = (message.message_id, index)
        if place in self._taken:
            return Taken(self._taken[place])
        try:
            answer = await sink.hand_on(message)
        except Exception as e:  # noqa: BLE001  # one sink's failure is that sink's
            return NotHanded(f"{type(e).__name__}: {e}")
        if isinstance(answer, Taken):
            self._taken[place] = answer.proof
            while len(self._taken) > _REMEMBERED_MAX:
                self._taken.popitem(last=False)
        return answer
