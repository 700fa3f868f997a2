"""What the tests of the records share: contracts, intents, arrivals, and steps of an effect's life."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from threading import Barrier
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import Connection, event, func, select

from landed.deliveries.classify import AcceptedEvent, Disposition, fingerprint_event
from landed.deliveries.event import Event, IdentityRule, Verified
from landed.effects.answer import Ambiguous, AttemptAnswer, Success
from landed.effects.contract import (
    Answers,
    Contract,
    Fence,
    Key,
    Lookup,
    PayloadEquality,
    SameKey,
    Seal,
)
from landed.fingerprint import canonical_json, fingerprint_json
from landed.records import attempts, effects, receipts, settle
from landed.records.session import Books
from landed.records.tables import metadata

T = TypeVar("T")
RECIPIENT = "acme"

REPLAYS = Contract(
    key=Key(
        same_key=SameKey.REPLAYS, payload_equality=PayloadEquality.REJECTED, retention_s=86_400.0
    ),
    answers=Answers(
        success=("200", "201"),
        is_success_durable=True,
        accepted=("202",),
        refusals=("402",),
        not_executed=("429",),
        in_flight=("409",),
        key_conflict=("422",),
        gone=("410",),
    ),
    lookup=Lookup(lag_s=0.0),
    series_max_s=3600.0,
)
"""A payment-style API: the same key replays the first result for a day."""
FENCED = replace(REPLAYS, fence=Fence(is_key_consulted_first=True))
SEALED = replace(REPLAYS, seal=Seal())
LOOKUP_ONLY = Contract(
    answers=Answers(success=("200",), is_success_durable=True, refusals=("402",)),
    lookup=Lookup(lag_s=0.0),
)
NOTHING = Contract(
    answers=Answers(success=("200",), is_success_durable=True),
    ambiguity_reason="a person looks at the bank statement",
)
"""No key, no look-up: the worst there is."""

DELAYS = settle.Delays(owner="team-billing")
CAUSE = effects.Cause(kind="local", id="test")


def intent(
    key: str,
    payload: Any = None,
    *,
    contract: Contract = REPLAYS,
    cause: effects.Cause = CAUSE,
    order: effects.Ordered | None = None,
    **more: Any,
) -> effects.Intent:
    document = {"cents": 1200} if payload is None else payload
    return effects.Intent(
        recipient=RECIPIENT,
        effect_type="collect",
        effect_key=key,
        payload=canonical_json(document),
        fingerprint=fingerprint_json(document),
        contract_digest=contract.digest(),
        cause=cause,
        order=order,
        **more,
    )


def seen(conn: Connection, effect_id: UUID) -> effects.EffectView:
    found = effects.view(conn, effect_id)
    assert found is not None
    return found


def begun(
    conn: Connection, books: Books, effect_id: UUID, contract: Contract = REPLAYS
) -> attempts.Begun:
    result = attempts.begin(conn, books, seen(conn, effect_id), contract, worker="w1")
    assert isinstance(result, attempts.Begun), result
    return result


def attempted(
    conn: Connection,
    books: Books,
    effect_id: UUID,
    answer: AttemptAnswer,
    contract: Contract = REPLAYS,
    delays: settle.Delays = DELAYS,
) -> effects.EffectView:
    """One whole attempt that ends with this answer."""
    start = begun(conn, books, effect_id, contract)
    attempts.end(conn, books, start.effect, contract, answer, delays=delays)
    return seen(conn, effect_id)


def confirmed(conn: Connection, books: Books, key: str) -> effects.EffectView:
    asked = effects.request(conn, books, intent(key))
    return attempted(conn, books, asked.effect_id, Success(b"ok", "ref-1", "200"))


def doubted(
    conn: Connection, books: Books, key: str, contract: Contract = REPLAYS
) -> effects.EffectView:
    asked = effects.request(conn, books, intent(key, contract=contract))
    return attempted(conn, books, asked.effect_id, Ambiguous("reset"), contract)


def arrival(
    id: str = "e1",
    data: bytes = b'{"cents": 1200}',
    *,
    namespace: str = "shop",
    source: str = "/shop",
    disposition: Disposition | None = None,
    handlers: tuple[str, ...] = ("bill",),
    type: str = "invoice.finalized",
    **more: Any,
) -> receipts.Arrival:
    received = Event(
        source=source, id=id, identity_rule=IdentityRule.CLOUDEVENTS, type=type, data=data
    )
    return receipts.Arrival(
        event=received,
        verified=Verified(namespace=namespace, key_id="k1", method="hmac"),
        disposition=AcceptedEvent(None) if disposition is None else disposition,
        fingerprint=fingerprint_event(received),
        fingerprint_under=lambda form: fingerprint_event(received) if form == "jcs-1" else None,
        handlers=handlers,
        owner="team-billing",
        **more,
    )


def together(*works: Callable[[], T]) -> list[T | Exception]:
    """Run works at once, each on a thread of its own; what each returned or raised, in order."""
    barrier = Barrier(len(works))

    def run(work: Callable[[], T]) -> T | Exception:
        barrier.wait(30)
        try:
            return work()
        except Exception as e:  # noqa: BLE001  # the test looks at it
            return e

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(run, works))


def counts(conn: Connection) -> dict[str, int]:
    """Rows of every table."""
    return {
        name: conn.execute(select(func.count()).select_from(table)).scalar_one()
        for name, table in metadata.tables.items()
    }


@contextmanager
def statements(engine):
    """Collect the statements that an engine runs, settings of a transaction apart."""
    ran: list[str] = []

    def note(_conn, _cursor, statement, *_rest):
        if not statement.startswith(("SELECT set_config", "BEGIN", "COMMIT", "SAVEPOINT")):
            ran.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield ran
    finally:
        event.remove(engine, "before_cursor_execute", note)
