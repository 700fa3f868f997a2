"""What the page may do to the neighbours: let the shop send, lose answers, fall silent."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Engine, Table, func, select

from landed.demo.balancer import Control, Loss
from landed.demo.http import RequestHead, answer, whole_answer
from landed.demo.payments.billing import FINALIZED
from landed.demo.payments.shop import UNSUPPORTED, Shop

PREFIX: Final = "/payments/their/"


@dataclass(slots=True)
class Switches:
    """The neighbours' moods, and their own books."""

    loss: Loss
    engine: Engine
    charges: Table
    mails: Table
    is_silent: bool = False
    """Questions get no answer; what is to be done is done."""
    asked: int = 0
    """Requests to charge that reached the bank since it started, repeats included."""

    def control(self, shop: Shop) -> Control:
        """Answer what the page asks of the neighbours; everything else is for the recipients."""

        async def _answer(head: RequestHead, body: bytes) -> bytes | None:
            path = head.target.partition("?")[0]
            if not path.startswith(PREFIX):
                return None
            what = path.removeprefix(PREFIX)
            if (head.method, what) == ("GET", "state"):
                return whole_answer(200, await self._state(shop))
            if head.method != "POST" or what not in ("send", "switch"):
                return answer(404, title=f"the neighbours have {PREFIX}state, send and switch")
            # A page from elsewhere cannot send this type without asking first, and is never allowed.
            if head.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
                return answer(415, title="send application/json")
            try:
                document = _object(body)
                done = await self._send(shop, document) if what == "send" else self._turn(document)
            except (ValueError, KeyError, TypeError) as e:
                return answer(400, title=f"the body is not what this takes: {e}")
            return whole_answer(200, done)

        return _answer

    async def _state(self, shop: Shop) -> dict[str, Any]:
        made, sent = await asyncio.to_thread(self._count), await asyncio.to_thread(shop.sent)
        return {
            "sent": sent,
            **made,
            "asked": self.asked,
            "lostAnswers": self.loss.lost,
            "losing": self.loss.rate > 0,
            "silent": self.is_silent,
        }

    def _count(self) -> dict[str, Any]:
        charges, mails = self.charges.c, self.mails.c
        with self.engine.begin() as conn:
            by_invoice = (
                conn.execute(select(charges.invoice, func.count()).group_by(charges.invoice))
                .tuples()
                .all()
            )
            mailed = conn.execute(select(func.count(mails.number))).scalar_one()
        return {
            "charges": sum(count for _, count in by_invoice),
            "chargesOf": dict(by_invoice),
            "mails": mailed,
        }

    async def _send(self, shop: Shop, document: dict[str, Any]) -> dict[str, Any]:
        invoice = document.get("invoice")
        return await shop.send(
            number=None if invoice is None else int(invoice),
            type=UNSUPPORTED if document.get("unsupported") is True else FINALIZED,
            copies=int(document.get("copies", 1)),
        )

    def _turn(self, document: dict[str, Any]) -> dict[str, Any]:
        losing = document.get("losing", self.loss.rate > 0)
        silent = document.get("silent", self.is_silent)
        if not isinstance(losing, bool) or not isinstance(silent, bool):
            raise TypeError("losing and silent are true or false")
        self.loss.rate = 1.0 if losing else 0.0
        self.is_silent = silent
        return {"losing": losing, "silent": silent}


def _object(body: bytes) -> dict[str, Any]:
    document = json.loads(body)
    if not isinstance(document, dict):
        raise TypeError("send an object")
    return document
