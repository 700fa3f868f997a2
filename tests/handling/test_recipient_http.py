"""A recipient over HTTP: what its answers mean to a sender is what it publishes."""

from __future__ import annotations

from contextlib import asynccontextmanager
from uuid import uuid4

import httpx
import pytest
from sqlalchemy import Column, Integer, MetaData, Table, Text, func, insert, select
from starlette.applications import Starlette
from starlette.routing import Route

from landed.effects.answer import Fenced, InFlight, KeyConflict, NotExecuted, Refused, Success
from landed.effects.contract import check_contract
from landed.recipient import Answer, Promises, contract_from, guard
from landed.recipient.http import Recipient

pytestmark = pytest.mark.real_loop

own = MetaData()
charges = Table("their_charges", own, Column("id", Integer, primary_key=True), Column("key", Text))
PROMISES = Promises(key_retention_s=86_400.0, refusals=(402,))


class Api:
    """The service, and a client of it."""

    def __init__(self, db, client, recipient):
        self.db, self.client, self.recipient = db, client, recipient

    async def charge(self, key=None, body=b'{"cents":1200}', **headers):
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if key is not None:
            sent["Idempotency-Key"] = key
        return await self.client.post("/charges", content=body, headers=sent)

    def count(self):
        with self.db.engine.connect() as conn:
            return conn.execute(select(func.count()).select_from(charges)).scalar_one()


@asynccontextmanager
async def api(db):
    recipient = Recipient(db.engine, PROMISES, scope_of=lambda _request: "acct", wait_s=0.05)
    recipient.prepare()
    with db.engine.begin() as conn:
        own.create_all(conn)

    def work(conn, asked):
        if b"declined" in asked.body:
            return Answer(402, b'{"declined":true}')
        if b"broken" in asked.body:
            raise ZeroDivisionError
        conn.execute(insert(charges).values(key=asked.key))
        return Answer(201, b'{"charge":1}')

    async def charge(request):
        return await recipient.act(request, work)

    app = Starlette(routes=[Route("/charges", charge, methods=["POST"]), *recipient.routes()])
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://bank") as client:
        yield Api(db, client, recipient)


async def published(api):
    document = (await api.client.get("/.well-known/landed-recipient")).json()
    return contract_from(document, source="its own document, read in a test")


@pytest.mark.scenario("RP-9", "RP-10")
async def test_what_it_answers_means_to_a_sender_what_it_published(ledger_db):
    async with api(ledger_db) as bank:
        contract = await published(bank)
        assert (
            check_contract(contract, recipient="bank", is_ordered=True, is_commutative=False) == ()
        )

        async def meaning(*args, **headers):
            answer = await bank.charge(*args, **headers)
            if answer.status_code >= 400 and answer.status_code != 402:
                assert answer.headers["content-type"] == "application/problem+json"
                assert answer.json()["type"].startswith("urn:landed:recipient:")
            return contract.meaning_of(str(answer.status_code), result=answer.content)

        key = str(uuid4())
        first = await meaning(key, Landed_Fence="invoice/i1/2")
        assert first == Success(b'{"charge":1}', None, "201")
        assert await meaning(key, Landed_Fence="invoice/i1/2") == first
        assert await meaning(key, b"other") == KeyConflict("422")
        assert await meaning("old", Landed_Fence="invoice/i1/1") == Fenced("412")
        assert await meaning("late", Landed_Expires="1") == NotExecuted(None, "408")
        assert await meaning("no", b"declined") == Refused(b'{"declined":true}', "402")
        assert (await bank.client.post("/landed/keys/never/seal")).status_code == 200
        assert await meaning("never") == Fenced("410")
        if ledger_db.is_postgres:
            with (
                ledger_db.engine.begin() as conn,
                guard(conn, scope="acct", key="busy", fingerprint=b"") as op,
            ):
                assert await meaning("busy") == InFlight(None, "409")
                op.answer = Answer(201)
        assert bank.count() == 1


async def test_what_cannot_be_read_is_refused_and_what_breaks_leaves_nothing(ledger_db):
    async with api(ledger_db) as bank:
        assert (await bank.charge()).status_code == 400
        assert (await bank.charge("k", Landed_Fence="newest")).status_code == 400
        assert (await bank.charge("k", Landed_Expires="soon")).status_code == 400
        assert (await bank.charge("k", b"x" * 1024 * 1025)).status_code == 400
        assert (await bank.charge("k", b"broken")).status_code == 500
        assert (await bank.client.get("/landed/keys/k")).status_code == 404
        assert (await bank.charge("k")).status_code == 201
        assert bank.count() == 1


async def test_a_refused_fence_says_what_was_taken_and_a_repeat_says_that_it_is_one(ledger_db):
    async with api(ledger_db) as bank:
        assert "landed-replayed" not in (await bank.charge("k5", Landed_Fence="d/i/5")).headers
        assert (await bank.charge("k5")).headers["landed-replayed"] == "true"
        refused = await bank.charge("k4", Landed_Fence="d/i/4")
        assert refused.json()["current_version"] == 5


async def test_a_sender_in_doubt_asks_and_seals(ledger_db):
    async with api(ledger_db) as bank:
        await bank.charge("k")
        found = await bank.client.get("/landed/keys/k")
        assert (found.status_code, found.content) == (200, b'{"charge":1}')
        assert found.headers["landed-key-state"] == "acted"
        assert found.headers["landed-answer-status"] == "201"
        acted = await bank.client.post("/landed/keys/k/seal")
        assert (acted.status_code, acted.content) == (409, b'{"charge":1}')
        await bank.client.post("/landed/keys/k2/seal")
        assert (await bank.client.get("/landed/keys/k2")).json() == {"state": "sealed"}


async def test_a_stored_refusal_is_never_mistaken_for_an_act(ledger_db):
    async with api(ledger_db) as bank:
        assert (await bank.charge("k", b"declined")).status_code == 402
        found = await bank.client.get("/landed/keys/k")
        assert (found.status_code, found.headers["landed-key-state"]) == (404, "refused")
        sealed = await bank.client.post("/landed/keys/k/seal")
        assert (sealed.status_code, sealed.headers["landed-key-state"]) == (200, "refused")
        assert (await bank.charge("k", b"declined")).headers["landed-replayed"] == "true"
        assert bank.count() == 0
