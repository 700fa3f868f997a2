"""Alerts into the process's own log: the sink of a ledger that declared none."""

from __future__ import annotations

import logging
from typing import Final

from landed.relay.port import Handed, Outgoing, Taken

_LOG: Final = logging.getLogger("landed.alerts")


class LogSink:
    """Writes each message to the logger ``landed.alerts``."""

    proof = "written to the log"
    dedup_window_s: float | None = None

    async def hand_on(self, message: Outgoing) -> Handed:
        _LOG.warning("%s %s", message.type, message.data.decode())
        return Taken({"log": _LOG.name})

    async def close(self) -> None:
        return
