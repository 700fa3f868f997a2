"""Anything at all at the boundary: never a 500, never a receipt without a verified signature."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select

from landed.deliveries.event import IdentityRule
from landed.intake.problems import STATUSES
from landed.ledger import StandardWebhooks
from landed.records.tables import receipts
from tests.handling.conftest import LedgerDb
from tests.handling.doors import KEY, TYPE, door, plain_ledger

pytestmark = pytest.mark.real_loop

names = st.sampled_from(
    [
        "content-type",
        "content-encoding",
        "content-length",
        "webhook-id",
        "webhook-timestamp",
        "webhook-signature",
        "ce-specversion",
        "ce-id",
        "ce-source",
        "ce-type",
        "ce-time",
        "ce-dataschema",
        "ce-subject",
        "ce-x-y",
    ]
) | st.text(st.characters(codec="latin-1"), max_size=20)
values = st.sampled_from(
    [
        "1.0",
        "application/json",
        "application/cloudevents+json",
        "application/cloudevents-batch+json",
        TYPE,
        "v1,",
        "v1,AAAA v1a,BBBB",
        "1767225600",
        "%00",
        "%ED%A0%80",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59.999999-14:00",
    ]
) | st.text(st.characters(codec="latin-1"), max_size=40)
headers = st.lists(st.tuples(names, values), max_size=12)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10)
documents = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["type", "id", "source", "specversion", "data", "data_base64", "time", "x"]
            )
            | st.text(max_size=5),
            inner,
            max_size=6,
        )
    ),
    max_leaves=12,
)
events = st.fixed_dictionaries(
    {"specversion": st.just("1.0"), "id": scalars, "source": st.text(), "type": st.text()},
    optional={"data": documents, "time": st.text(), "data_base64": scalars, "subject": st.text()},
)
literal = st.sampled_from(
    [
        b'{"specversion":"1.0","id":"a","source":"b","type":"c","data":{"a":1,"a":2}} tail',
        b'{"type":"invoice.finalized","data":{"a":1,"a":2}',
        b'{"type":"\\u0000","id":"\\ud800"}',
        b'{"specversion":"1.0","id":"\\ud800","source":"b","type":"c"}',
        b'{"specversion":"1.0","id":"a","source":"b","type":"c","data":"\\ud800"}',
        b"[" * 5000,
        b"1" * 5000,
        b"NaN",
        b"\xff\xfe",
        b"",
    ]
)
bodies = (
    st.binary(max_size=200)
    | documents.map(lambda found: json.dumps(found).encode())
    | events.map(lambda found: json.dumps(found).encode())
    | st.lists(events, max_size=3).map(lambda found: json.dumps(found).encode())
    | literal
)


@pytest.mark.scenario("AS-21")
@pytest.mark.parametrize("identity", [IdentityRule.CLOUDEVENTS, IdentityRule.FIELD, "webhook-id"])
def test_anything_at_all_gets_an_answer_of_the_rule(ledger_db: LedgerDb, identity):
    """Unsigned noise makes no receipt; signed noise makes one, or is refused, and never a 500."""

    async def run(drawn: Any) -> None:
        ledger = plain_ledger(
            ledger_db,
            identity=IdentityRule(identity),
            identity_field=("id",),
            authentication=StandardWebhooks(keys=(KEY,)),
        )
        async with door(ledger_db, ledger=ledger) as at:

            async def ask(raw, content) -> int:
                scope = {
                    "type": "http",
                    "method": "POST",
                    "path": "/shop",
                    "headers": [(n.encode("latin-1"), v.encode("latin-1")) for n, v in raw],
                }
                sent: list[Any] = []

                async def receive() -> dict[str, Any]:
                    return {"type": "http.request", "body": content, "more_body": False}

                async def send(message: Any) -> None:
                    sent.append(message)

                await at.client._transport.app(scope, receive, send)  # type: ignore[attr-defined]
                return int(sent[0]["status"])

            for raw, content in drawn:
                before = count(ledger_db)
                status = await ask(raw, content)
                assert status in STATUSES - {503}
                assert count(ledger_db) == before
                signed = at.webhook(content)["headers"]
                kept = [(n, v) for n, v in raw if n.lower() not in signed or n == "content-type"]
                own = [(n, v) for n, v in signed.items() if n != "content-type"]
                status = await ask([*kept, *own], content)
                assert status in STATUSES - {503} | {202}

    @settings(
        max_examples=5,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(st.lists(st.tuples(headers, bodies), min_size=15, max_size=15))
    def many(drawn: Any) -> None:
        asyncio.run(run(drawn))

    many()


def count(db: LedgerDb) -> int:
    with db.engine.connect() as conn:
        return conn.execute(select(func.count()).select_from(receipts)).scalar_one()
