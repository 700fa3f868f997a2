"""A shop of your own: a buy button that may be pressed, lost and pressed again.

    pip install 'landed[service]'
    uvicorn --app-dir examples 03_shop_fastapi:app

    curl -X POST localhost:8000/items/$(uuidgen)/restock -H 'Content-Type: application/json' \
         -H 'Idempotency-Key: "delivery-1"' -d '{"count": 5}'

Send that again with the same key: the same answer, and still five. Another process may run beside it
on the same log if the log is served (``landed serve``; LANDED_LOG=landed://127.0.0.1:10000).
"""

import os
from typing import Annotated, Final
from uuid import UUID

import msgspec
from fastapi import Depends, FastAPI, Response

from landed.commands import Command, NewEvent, Reject, ServiceIdentity, fingerprint
from landed.errors import UndecodableEventError
from landed.fastapi import RequestKey, SafeWrites, problem_documents, strict_body
from landed.ids import AggregateKey
from landed.log import Event

SHOP, ITEM = UUID("5409a000-0000-4000-8000-000000000001"), UUID(int=1)
NAMES: Final = {1: "restock", 2: "buy"}
SIGNS: Final = {1: +1, 2: -1}


class Count(msgspec.Struct):
    """The body of both requests, and the payload of both events."""

    count: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]


class Stock:
    """The domain: the state of an item is how many are left."""

    def initial(self, key: AggregateKey) -> int:
        return 0

    def fold(self, left: int, event: Event, key: AggregateKey) -> int:
        if event.type_major not in SIGNS:
            raise UndecodableEventError(type_major=event.type_major)
        return left + SIGNS[event.type_major] * count_of(event)

    def fingerprint_of(self, event: Event, key: AggregateKey) -> bytes:
        return wish(event.type_major, key.id, count_of(event))


def count_of(event: Event) -> int:
    return msgspec.json.decode(event.value, type=Count).count


def wish(kind: int, item: UUID, count: int) -> bytes:
    return fingerprint(NAMES[kind], ("item", item), ("count", count))


# One id for the whole service: every replica, every restart. This one is the example's.
identity = ServiceIdentity.from_config("5409a000-0000-4000-8000-00000000c11e")
safe = SafeWrites(
    os.environ.get("LANDED_LOG", "sqlite:///shop.sqlite"), identity=identity, domain=Stock()
)
app = FastAPI(lifespan=safe.lifespan)
safe.install(app)
problem_documents(app, safe)

Key = Annotated[RequestKey, Depends(safe.key)]
Body = Annotated[Count, Depends(strict_body(Count))]


def change(kind: int, item: UUID, count: int, key: RequestKey) -> Command[int, dict[str, int]]:
    def decide(left: int) -> NewEvent | Reject:
        if left + SIGNS[kind] * count < 0:
            return Reject("sold_out", f"only {left} left", {"left": left})
        return NewEvent(kind, msgspec.json.encode(Count(count)))

    return Command.on(
        AggregateKey(SHOP, ITEM, item),
        event_id=key.event_id,
        fingerprint=wish(kind, item, count),
        decide=decide,
        respond=lambda left, version: {"left": left, "version": version},
    )


@app.post("/items/{item}/restock")
async def restock(item: UUID, key: Key, body: Body) -> Response:
    return await safe.answer(change(1, item, body.count, key), key)


@app.post("/items/{item}/buy")
async def buy(item: UUID, key: Key, body: Body) -> Response:
    return await safe.answer(change(2, item, body.count, key), key)
