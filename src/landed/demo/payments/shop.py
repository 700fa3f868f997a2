"""The demo's shop: it finalizes invoices, and signs and sends the webhooks that say so.

An invoice's webhook is the same whenever it is sent again: same event, same bytes; its signature is
made anew, as Standard Webhooks want it.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import httpx
from sqlalchemy import BigInteger, Column, Engine, Integer, MetaData, Table, Text, func, select

from landed.clock import Clock
from landed.demo.payments.billing import SHOP_SECRET

COPIES_MAX: Final = 50
UNSUPPORTED: Final = "coupon.redeemed"
"""A type that billing has not declared."""
_CUSTOMERS: Final = ("Ada", "Grace", "Edsger", "Barbara", "Donald", "Frances")
_SEND_TIMEOUT_S: Final = 20.0

metadata: Final = MetaData()
sold: Final = Table(
    "shop_invoices",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("type", Text, nullable=False),
    Column("customer", Text, nullable=False),
    Column("cents", BigInteger, nullable=False),
    Column("sent", Integer, nullable=False),
)


def signed(event: Mapping[str, Any], *, now_s: int) -> tuple[dict[str, str], bytes]:
    """A CloudEvent as a signed delivery: headers and body."""
    body = json.dumps(event).encode()
    id = f"msg_{event['id']}"
    signature = hmac.digest(SHOP_SECRET, f"{id}.{now_s}.".encode() + body, hashlib.sha256)
    return {
        "content-type": "application/cloudevents+json",
        "webhook-id": id,
        "webhook-timestamp": str(now_s),
        "webhook-signature": "v1," + base64.b64encode(signature).decode(),
    }, body


def event_of(number: int, type: str, customer: str, cents: int) -> dict[str, Any]:
    """The event that says so."""
    return {
        "specversion": "1.0",
        "id": f"evt_{number}",
        "source": "/shop",
        "type": type,
        "datacontenttype": "application/json",
        "data": {"id": str(number), "customer": customer, "cents": cents},
    }


class Shop:
    """A shop.

    Args:
        engine: of its database.
        hooks: where its webhooks go.
        clock: for signatures.
    """

    def __init__(self, engine: Engine, hooks: str, *, clock: Clock) -> None:
        self._engine = engine
        self._hooks = hooks
        self._clock = clock
        limits = httpx.Limits(max_connections=COPIES_MAX)
        self._client = httpx.AsyncClient(
            limits=limits, timeout=_SEND_TIMEOUT_S, trust_env=False, follow_redirects=False
        )

    def prepare(self) -> None:
        """Make its table."""
        with self._engine.begin() as conn:
            metadata.create_all(conn)

    async def send(self, *, number: int | None, type: str, copies: int) -> dict[str, Any]:
        """Send one webhook, so many times at once; None: of a new invoice.

        Returns:
            What was answered, counted.

        Raises:
            ValueError: no such invoice, or a number of copies that is none.
        """
        if not 1 <= copies <= COPIES_MAX:
            raise ValueError(f"1 to {COPIES_MAX} copies")
        event = await asyncio.to_thread(self._event, number, type, copies)
        headers, body = signed(event, now_s=self._clock.wall_ms() // 1000)
        answers = await asyncio.gather(*(self._post(headers, body) for _ in range(copies)))
        return {
            "invoice": event["data"]["id"],
            "event": event["id"],
            "type": event["type"],
            "answers": dict(Counter(answers)),
        }

    async def close(self) -> None:
        """Let go of its connections."""
        await self._client.aclose()

    def sent(self) -> int:
        """How many webhooks it ever sent, copies included."""
        with self._engine.begin() as conn:
            return int(conn.execute(select(func.sum(sold.c.sent))).scalar() or 0)

    async def _post(self, headers: Mapping[str, str], body: bytes) -> str:
        try:
            answer = await self._client.post(self._hooks, headers=headers, content=body)
        except httpx.HTTPError as e:
            return f"no answer ({type(e).__name__})"
        said = answer.headers.get("landed-disposition", answer.reason_phrase)
        return f"{answer.status_code} {said}"

    def _event(self, number: int | None, type: str, copies: int) -> dict[str, Any]:
        with self._engine.begin() as conn:
            if number is None:
                last = int(conn.execute(select(func.max(sold.c.number))).scalar() or 480)
                number = last + 1
                conn.execute(
                    sold.insert().values(
                        number=number,
                        type=type,
                        customer=_CUSTOMERS[number % len(_CUSTOMERS)],
                        cents=900 + number * 37 % 4200,
                        sent=0,
                    )
                )
            row = conn.execute(select(sold).where(sold.c.number == number)).one_or_none()
            if row is None:
                raise ValueError(f"the shop has no invoice {number}")
            mine = sold.c.number == number
            conn.execute(sold.update().where(mine).values(sent=sold.c.sent + copies))
        return event_of(row.number, row.type, row.customer, row.cents)
