"""What the boundary takes, what it refuses, and what it says."""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import replace

import pytest
from sqlalchemy import select

from landed.deliveries.event import IdentityRule
from landed.fingerprint import canonical_json
from landed.intake import Bounds
from landed.intake.problems import STATUSES
from landed.ledger import HmacScheme, HouseSpans, Invalid, StandardWebhooks
from landed.records import retention
from landed.records.tables import (
    alerts,
    outbox,
    payloads,
    quarantine,
    receipt_conflicts,
    receipts,
    rejections,
    reviews,
)
from tests.handling.conftest import LedgerDb
from tests.handling.doors import KEY, NEXT_KEY, SECRET, TYPE, door, plain_ledger, sign

pytestmark = pytest.mark.real_loop

INVOICE = {"type": TYPE, "data": {"id": "481", "cents": 1200}}
DAY_US = 24 * 3_600_000_000
DAY_S = 24 * 3600.0


def one(db: LedgerDb, table):
    with db.engine.connect() as conn:
        return conn.execute(select(table)).one()


async def test_a_signed_event_is_durably_held_when_it_is_acknowledged(ledger_db: LedgerDb):
    async with door(ledger_db) as at:
        answer = await at.post(at.webhook(INVOICE))
        assert answer.status_code == 202
        assert answer.headers["landed-disposition"] == "accepted"
        held = one(ledger_db, receipts)
        assert str(held.receipt_id) == answer.headers["landed-receipt"]
        assert (held.namespace, held.source, held.event_id) == ("shop", "shop", "msg_1")
        assert (held.auth_key_id, held.identity_rule) == ("k1", "webhook-id")
        assert at.counts() == {"receipts": 1, "payloads": 1, "outbox": 1, "schedule": 1}


@pytest.mark.scenario("AS-02")
async def test_a_repeat_changes_no_row_and_names_the_first_receipt(ledger_db: LedgerDb):
    async with door(ledger_db) as at:
        first = await at.post(at.webhook(INVOICE))
        before = at.counts()
    async with door(ledger_db) as at:
        again = await at.post(at.webhook(INVOICE, at_s=at.now_s() - 1))
        assert again.status_code == 202
        assert again.headers["landed-disposition"] == "duplicate"
        assert again.headers["landed-receipt"] == first.headers["landed-receipt"]
        assert at.counts() == before


@pytest.mark.scenario("AS-03", "AS-21")
async def test_what_proves_nothing_leaves_a_count_and_no_payload(ledger_db: LedgerDb):
    expired = replace(NEXT_KEY, not_after_us=1)
    async with door(ledger_db, authentication=StandardWebhooks(keys=(KEY, expired))) as at:
        spaced = b'{ "type": "invoice.finalized" }'
        unsigned = at.webhook(INVOICE)
        del unsigned["headers"]["webhook-signature"]
        refused = [
            await at.post(at.webhook(INVOICE, key=b"another secret altogether")),
            await at.post(at.webhook(INVOICE, key=expired.secret)),
            await at.post(at.webhook(spaced) | {"content": json.dumps(json.loads(spaced))}),
        ]
        assert [answer.status_code for answer in refused] == [401, 401, 401]
        assert (await at.post(unsigned)).status_code == 400, "a header that the scheme needs"
        assert refused[0].headers["content-type"] == "application/problem+json"
        await at.intake.write_refusals()
        assert at.counts() == {"rejections": 2}
        with ledger_db.engine.connect() as conn:
            counted = {row.reason: row for row in conn.execute(select(rejections))}
        assert counted["unauthenticated"].count == 3
        assert counted["unauthenticated"].namespace == "unverified"
        assert "invoice" not in counted["unauthenticated"].sample


@pytest.mark.scenario("AS-04")
async def test_any_of_the_signatures_of_a_rotation_is_enough(ledger_db: LedgerDb):
    async with door(ledger_db) as at:
        for number, order in enumerate(((NEXT_KEY, KEY), (KEY, NEXT_KEY))):
            made = at.webhook(INVOICE, id=f"msg_{number}")
            at_s = int(made["headers"]["webhook-timestamp"])
            tokens = [
                sign(made["content"], id=f"msg_{number}", at_s=at_s, key=key.secret)
                for key in order
            ]
            made["headers"]["webhook-signature"] = f"{tokens[0]} v9,abcd no-comma {tokens[1]}"
            assert (await at.post(made)).status_code == 202
        with ledger_db.engine.connect() as conn:
            assert set(conn.execute(select(receipts.c.auth_key_id)).scalars()) == {"k1"}


@pytest.mark.scenario("AS-05")
async def test_an_old_attempt_is_refused_and_the_same_event_signed_afresh_is_not(
    ledger_db: LedgerDb,
):
    async with door(ledger_db) as at:
        old = await at.post(at.webhook(INVOICE, at_s=at.now_s() - 360))
        assert (old.status_code, old.json()["reason"]) == (401, "not_fresh")
        assert (await at.post(at.webhook(INVOICE))).headers["landed-disposition"] == "accepted"
        assert (await at.post(at.webhook(INVOICE))).headers["landed-disposition"] == "duplicate"


@pytest.mark.scenario("AS-06")
async def test_what_is_too_large_too_deep_or_too_often_signed_is_refused(ledger_db: LedgerDb):
    async with door(ledger_db, body_bytes_max=2000, depth_max=4) as at:
        padding = 2000 - len(json.dumps(INVOICE | {"pad": ""}))
        exact = json.dumps(INVOICE | {"pad": "x" * padding}).encode()
        assert (await at.post(at.webhook(exact))).status_code == 202
        above = await at.post(at.webhook(exact + b" ", id="msg_2"))
        assert (above.status_code, above.json()["reason"]) == (413, "too_large")
        deep = {"type": TYPE, "data": [[[1]]]}
        assert (await at.post(at.webhook(deep, id="msg_3"))).status_code == 202
        deeper = {"type": TYPE, "data": [[[[1]]]]}
        assert (await at.post(at.webhook(deeper, id="msg_4"))).status_code == 400
        many = at.webhook(INVOICE, id="msg_5")
        token = many["headers"]["webhook-signature"]
        many["headers"]["webhook-signature"] = "v1,AAAA " * 3000 + token
        assert (await at.post(many)).status_code == 401, "only the first sixteen are looked at"
        many["headers"]["webhook-signature"] = "v1,AAAA " * 10_000 + token
        assert (await at.post(many)).status_code == 400


@pytest.mark.scenario("AS-06")
async def test_a_body_without_end_is_not_read_to_its_end(ledger_db: LedgerDb):
    read = 0

    async def endless():
        nonlocal read
        while True:
            read += 1
            yield b"x" * 1000

    async with door(ledger_db, body_bytes_max=5000) as at:
        # httpx's ASGI transport takes the whole body first, so the application is asked directly.
        chunks = endless()

        async def receive():
            return {"type": "http.request", "body": await anext(chunks), "more_body": True}

        sent = []

        async def send(message):
            sent.append(message)

        app = at.client._transport.app
        scope = {"type": "http", "method": "POST", "path": "/shop", "headers": []}
        await app(scope, receive, send)
        assert sent[0]["status"] == 413
        assert read == 6


@pytest.mark.scenario("AS-07", "BC-20")
async def test_an_unknown_type_is_set_aside_with_everything_that_belongs_to_it(
    ledger_db: LedgerDb,
):
    async with door(ledger_db, identity=IdentityRule.CLOUDEVENTS) as at:
        answer = await at.post(at.cloudevent(type="acme.unknown.v1"))
        assert (answer.status_code, answer.headers["landed-disposition"]) == (202, "quarantined")
        aside = one(ledger_db, quarantine)
        assert (aside.reason, aside.owner) == ("unsupported_type", "team-billing")
        assert bytes(aside.payload) == b'{"cents":1200}'
        assert one(ledger_db, reviews).subject_id == answer.headers["landed-receipt"]
        assert "unsupported_type" in one(ledger_db, alerts).dedupe_key
        assert one(ledger_db, outbox).kind == "alert"


@pytest.mark.scenario("AS-08")
async def test_what_does_not_fit_its_schema_or_says_two_things_is_set_aside(ledger_db: LedgerDb):
    def check(document):
        if not isinstance(document["data"], dict):
            raise Invalid("data is an object \x00")
        return document

    async with door(ledger_db, types={TYPE: check}) as at:
        wrong = await at.post(at.webhook({"type": TYPE, "data": 1}))
        assert wrong.headers["landed-disposition"] == "quarantined"
        twice = b'{"type":"invoice.finalized","data":{"a":1,"a":2}}'
        double = await at.post(at.webhook(twice, id="msg_2"))
        assert double.headers["landed-disposition"] == "quarantined"
        with ledger_db.engine.connect() as conn:
            found = {
                row.event_id: (row.reason, row.fingerprint_form)
                for row in conn.execute(
                    select(receipts, quarantine.c.reason).join(
                        quarantine, quarantine.c.receipt_id == receipts.c.receipt_id
                    )
                )
            }
        assert found == {
            "msg_1": ("schema_invalid", "jcs-1"),
            "msg_2": ("ambiguous_json", "raw-1"),
        }


@pytest.mark.scenario("AS-10")
async def test_an_ignored_type_is_receipted_without_payload_or_work(ledger_db: LedgerDb):
    async with door(ledger_db) as at:
        answer = await at.post(at.webhook({"type": "invoice.viewed"}))
        assert answer.headers["landed-disposition"] == "ignored"
        assert at.counts() == {"receipts": 1}
        again = await at.post(at.webhook({"type": "invoice.viewed"}))
        assert again.headers["landed-disposition"] == "duplicate"
        assert at.counts() == {"receipts": 1}


@pytest.mark.scenario("AS-11")
async def test_the_same_event_with_another_payload_is_kept_as_evidence_once(ledger_db: LedgerDb):
    async with door(ledger_db) as at:
        first = await at.post(at.webhook(INVOICE))
        other = INVOICE | {"data": {"id": "481", "cents": 9900}}
        answers = [await at.post(at.webhook(other)) for _ in range(10)]
        assert {answer.status_code for answer in answers} == {202}
        assert {answer.headers["landed-disposition"] for answer in answers} == {"conflict"}
        assert {answer.headers["landed-receipt"] for answer in answers} == {
            first.headers["landed-receipt"]
        }
        kept = one(ledger_db, receipt_conflicts)
        assert json.loads(kept.body) == other
        assert json.loads(one(ledger_db, payloads).body) == INVOICE
        assert at.counts()["reviews"] == 1
        with ledger_db.engine.connect() as conn:
            kinds = sorted(conn.execute(select(outbox.c.kind)).scalars())
        assert kinds == ["alert", "handle"], "nothing is handled from the second payload"


@pytest.mark.scenario("AS-12")
async def test_a_declared_volatile_member_makes_no_conflict(ledger_db: LedgerDb):
    excluded = (("delivery", "attempt"),)
    async with door(ledger_db, excluded_paths=excluded) as at:
        for attempt in (1, 2):
            answer = await at.post(at.webhook(INVOICE | {"delivery": {"attempt": attempt}}))
        assert answer.headers["landed-disposition"] == "duplicate"
    # The declaration of the first receipt decides, not the one of today.
    async with door(ledger_db, excluded_paths=()) as at:
        answer = await at.post(at.webhook(INVOICE | {"delivery": {"attempt": 3}}))
        assert answer.headers["landed-disposition"] == "duplicate"


@pytest.mark.scenario("AS-13")
async def test_a_producer_speaks_only_in_its_own_name(ledger_db: LedgerDb):
    ledger, producer = plain_ledger(ledger_db, identity=IdentityRule.CLOUDEVENTS)
    rival = ledger.producer(
        "rival", authentication=StandardWebhooks(keys=(NEXT_KEY,)), types={TYPE: None}
    )
    ledger.on(rival, TYPE, name="rival")(lambda _tx, _event: None)
    async with door(ledger_db, ledger=(ledger, producer)) as at:
        claimed = at.cloudevent()
        claimed["headers"] |= at.webhook(
            claimed["content"], id="delivery of e1", key=NEXT_KEY.secret
        )["headers"]
        assert (await at.post(claimed, "rival")).headers["landed-disposition"] == "accepted"
        own = await at.post(at.cloudevent())
        assert own.headers["landed-disposition"] == "accepted", "no repeat of the rival's"
        elsewhere = await at.post(at.cloudevent("e2"), "rival")
        assert (elsewhere.status_code, elsewhere.json()["reason"]) == (403, "not_allowed")
        assert at.counts()["receipts"] == 2


@pytest.mark.scenario("AS-14")
async def test_identities_that_look_alike_are_distinct(ledger_db: LedgerDb):
    pairs = [("a", "bc"), ("ab", "c"), ("a", "BC"), ("a", "b\u00e9"), ("a", "be\u0301")]
    async with door(ledger_db, identity=IdentityRule.CLOUDEVENTS) as at:
        for source, id in pairs:
            event = {"specversion": "1.0", "type": TYPE, "source": source, "id": id, "data": {}}
            made = at.webhook(event, content_type="application/cloudevents+json")
            assert (await at.post(made)).headers["landed-disposition"] == "accepted"
        event["id"] += " "
        made = at.webhook(event, content_type="application/cloudevents+json")
        assert (await at.post(made)).headers["landed-disposition"] == "accepted"
        assert at.counts()["receipts"] == len(pairs) + 1


@pytest.mark.scenario("AS-19")
async def test_every_mode_of_one_event_has_one_identity_and_one_fingerprint(ledger_db: LedgerDb):
    async with door(ledger_db, identity=IdentityRule.CLOUDEVENTS) as at:
        first = await at.post(at.cloudevent(data=b'{ "cents": 1.2e3, "currency": "EUR" }'))
        event = {
            "specversion": "1.0",
            "type": TYPE,
            "source": "/shop",
            "id": "e1",
            "data": {"currency": "EUR", "cents": 1200},
        }
        again = await at.post(at.webhook(event, content_type="application/cloudevents+json"))
        assert again.headers["landed-disposition"] == "duplicate"
        assert again.headers["landed-receipt"] == first.headers["landed-receipt"]
        batch = [event, event | {"id": "e2"}, event | {"id": "e3", "type": "unheard of"}]
        made = at.webhook(
            json.dumps(batch).encode(), content_type="application/cloudevents-batch+json"
        )
        answer = await at.post(made)
        assert answer.status_code == 202
        assert [item["disposition"] for item in answer.json()["events"]] == [
            "duplicate",
            "accepted",
            "quarantined",
        ]


@pytest.mark.scenario("BC-21")
async def test_a_batch_with_one_repeat_blames_the_right_one(ledger_db: LedgerDb):
    async with door(ledger_db, identity=IdentityRule.CLOUDEVENTS) as at:

        async def batch(*ids):
            events = [
                {"specversion": "1.0", "type": TYPE, "source": "/s", "id": id, "data": {}}
                for id in ids
            ]
            body = json.dumps(events).encode()
            made = at.webhook(body, content_type="application/cloudevents-batch+json")
            items = (await at.post(made)).json()["events"]
            return [(id, item["disposition"]) for id, item in zip(ids, items, strict=True)]

        await batch("m2")
        assert await batch("m1", "m2", "m3") == [
            ("m1", "accepted"),
            ("m2", "duplicate"),
            ("m3", "accepted"),
        ]
        assert await batch("m3", "m2", "m4") == [
            ("m3", "duplicate"),
            ("m2", "duplicate"),
            ("m4", "accepted"),
        ]
        assert at.counts()["receipts"] == 4


@pytest.mark.scenario("AS-88")
async def test_an_event_older_than_the_replay_floor_is_refused(ledger_db: LedgerDb):
    async with door(ledger_db, identity=IdentityRule.CLOUDEVENTS, has_signed_event_time=True) as at:
        now_us = at.ledger.books.now_us()
        old = "2001-02-03T04:05:06Z"
        assert (await at.post(at.cloudevent("e1", time=old))).status_code == 202
        ledger_db.transact(lambda conn: retention.raise_floor(conn, at.producer, now_us - DAY_US))
        refused = await at.post(at.cloudevent("e2", time=old))
        assert refused.status_code == 400
        assert refused.json()["type"] == "urn:landed:problem:beyond-retention"
        assert at.counts()["receipts"] == 1
        told = (await at.client.get("/.well-known/landed")).json()
        assert told["producers"]["shop"]["replay_floor_us"] == now_us - DAY_US


@pytest.mark.scenario("RT-11")
async def test_producers_are_told_how_long_their_events_are_known(ledger_db: LedgerDb):
    ledger, producer = plain_ledger(ledger_db, retry_s=None)
    ledger.retention(house=HouseSpans(look_back_s=60 * DAY_S))
    other = ledger.producer(
        "bank", authentication=producer.authentication, types={TYPE: None}, retry_s=DAY_S
    )
    ledger.on(other, TYPE, name="of the bank")(lambda tx, event: None)
    async with door(ledger_db, ledger=(ledger, producer)) as at:
        told = (await at.client.get("/.well-known/landed")).json()["producers"]
        spans = {name: (of["horizon_s"], of["horizon_rests_on"]) for name, of in told.items()}
        assert spans["shop"] == (None, "redelivery"), "nobody knows how long it retries"
        margin_s = HouseSpans().margin_s
        assert spans["bank"] == (pytest.approx((60 + 14) * DAY_S + margin_s), "backfilled")


@pytest.mark.scenario("BC-19")
async def test_the_signature_is_checked_over_the_bytes_that_came(ledger_db: LedgerDb):
    body = bytes.fromhex(
        "7b22616d6f756e745f63656e7473223a20353030302c20226e6f7465223a20226361665c75303065"
        "39205c2f206f6b222c20227a223a20312c202261223a20312e307d0a"
    )
    first = "58276c529fec1453ede399036e93ea7c1da91ab0efb68773c9232b712a9d1883"
    second = "adab36981d1a0c2935319ac3e3b41c1700afe3c145fe5659586c8fbd80ca23ce"
    keys = tuple(
        replace(KEY, id=f"k{n}", secret=f"landed-test-secret-{n}".encode()) for n in (1, 2)
    )
    for known in (keys[:1], keys):
        scheme = HmacScheme(keys=known, header="x-signature", tolerance_s=10**9)
        async with door(
            ledger_db,
            authentication=scheme,
            identity=IdentityRule.DERIVED,
            types={"note": None},
            type_field=("note",),
        ) as at:

            async def status(content, *values):
                header = ",".join(["t=1767225600", *(f"v1={value}" for value in values)])
                headers = {"x-signature": header, "content-type": "application/json"}
                return (await at.post({"content": content, "headers": headers})).status_code

            assert await status(body, first) == 202
            assert await status(body, second, first) == 202
            assert await status(body, first, second) == 202
            assert await status(body[:-1], first) == 401
            assert await status(json.dumps(json.loads(body)).encode(), first) == 401
            assert await status(canonical_json(json.loads(body)), first) == 401
            assert await status(body, second) == (202 if len(known) == 2 else 401)
            assert at.counts()["receipts"] == 1


@pytest.mark.scenario("BC-19")
async def test_the_vectors_of_the_id_style_scheme_verify(ledger_db: LedgerDb):
    body = bytes.fromhex(
        "7b22616d6f756e745f63656e7473223a20353030302c20226e6f7465223a20226361665c75303065"
        "39205c2f206f6b222c20227a223a20312c202261223a20312e307d0a"
    )
    key = replace(KEY, secret=b"landed-test-secret-1")
    async with door(
        ledger_db, authentication=StandardWebhooks(keys=(key,), tolerance_s=10**9)
    ) as at:
        headers = {
            "webhook-id": "msg_0001",
            "webhook-timestamp": "1767225600",
            "webhook-signature": "v1,Bdji3tuO+Dj/8jjhl+l3inkavgysbpC02BphrJ3VRoQ= "
            "v1,Eiw9x/+y0pymNF1ENLl6qKlbJkXQCnKf97/ma2jhqZA=",
        }
        assert (await at.post({"content": body, "headers": headers})).status_code == 202
        del headers["webhook-id"]
        assert (await at.post({"content": body, "headers": headers})).status_code == 400


@pytest.mark.scenario("BC-20")
async def test_cloudevents_are_read_as_written_and_never_crash(ledger_db: LedgerDb):
    async with door(ledger_db, identity=IdentityRule.CLOUDEVENTS) as at:

        async def status(made, **headers):
            made["headers"] = {
                name: value for name, value in (made["headers"] | headers).items() if value
            }
            return (await at.post(made)).status_code

        capital = at.cloudevent("a")
        capital["headers"] = {
            "-".join(word.capitalize() for word in name.split("-")): value
            for name, value in capital["headers"].items()
        }
        assert (await at.post(capital)).status_code == 202
        assert await status(at.cloudevent("b", data=b"")) == 202
        assert await status(at.webhook(b"123")) == 400
        for body in (b"[]", b"null", b'"x"', b""):
            made = at.webhook(body)
            assert await status(made, **{"content-type": "application/cloudevents+json"}) == 400
        assert await status(at.cloudevent("e", data=b"hello"), **{"content-type": ""}) == 202
        assert await status(at.cloudevent("")) == 400
        event = {"specversion": "1.0", "type": TYPE, "source": "/s", "id": "g"}
        dashed = at.webhook(event | {"example-extension": "1"})
        assert await status(dashed, **{"content-type": "application/cloudevents+json"}) == 400
        charset = at.webhook(event | {"id": "h"})
        kind = "application/cloudevents+json; charset=utf-8"
        assert await status(charset, **{"content-type": kind}) == 202
        assert await status(at.cloudevent("i"), **{"ce-specversion": "9.9"}) == 400
        assert at.counts()["receipts"] == 4


async def test_an_id_in_the_body_is_taken_as_it_is_spelled(ledger_db: LedgerDb):
    async with door(ledger_db, identity=IdentityRule.FIELD, identity_field=("event", "id")) as at:
        for number, body in enumerate(
            (
                b'{"type":"invoice.finalized","event":{"id":12345678901234567890}}',
                b'{"type":"invoice.finalized","event":{"id":12345678901234567891}}',
            )
        ):
            answer = await at.post(at.webhook(body, id=f"delivery {number}"))
            assert answer.headers["landed-disposition"] == "quarantined", "no double holds it"
        twice = b'{"type":"invoice.finalized","event":{"id":"a","id":"b"}}'
        assert (await at.post(at.webhook(twice))).status_code == 400
        with ledger_db.engine.connect() as conn:
            assert set(conn.execute(select(receipts.c.event_id)).scalars()) == {
                "12345678901234567890",
                "12345678901234567891",
            }


async def test_other_media_types_and_endpoints_are_refused_in_the_statuses_of_the_rule(
    ledger_db: LedgerDb,
):
    async with door(ledger_db, rate_per_s=2.0, webhook_origins={"hooks.acme.example"}) as at:
        refused = [
            await at.post(at.webhook(INVOICE, content_type="application/x-www-form-urlencoded")),
            await at.post(at.webhook(INVOICE, content_encoding="gzip")),
            await at.post(at.webhook(INVOICE), "nobody"),
            await at.post(at.webhook(b"not json")),
            *[await at.post(at.webhook(INVOICE, id=f"m{n}")) for n in range(5)],
        ]
        statuses = [answer.status_code for answer in refused]
        assert statuses[:4] == [415, 415, 403, 400]
        assert 429 in statuses
        assert set(statuses) <= STATUSES | {202}
        assert refused[-1].headers["retry-after"] == "1"
        assert (await at.client.get("/shop")).status_code == 405
        assert (await at.client.get("/")).status_code == 404
        assert (await at.client.get("/healthz")).json() == {"status": "ok"}


async def test_the_webhook_handshake_is_answered_to_declared_origins_only(ledger_db: LedgerDb):
    async with door(ledger_db, webhook_origins={"hooks.acme.example"}) as at:

        async def ask(origin):
            return await at.client.options("/shop", headers={"WebHook-Request-Origin": origin})

        agreed = await ask("hooks.acme.example")
        assert agreed.status_code == 200
        assert agreed.headers["webhook-allowed-origin"] == "hooks.acme.example"
        assert agreed.headers["webhook-allowed-rate"] == "*"
        denied = await ask("elsewhere.example")
        assert denied.status_code == 403
        assert "webhook-allowed-origin" not in denied.headers


async def test_an_asymmetric_signature_is_checked(ledger_db: LedgerDb):
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private = Ed25519PrivateKey.generate()
    key = replace(KEY, secret=b"", public=private.public_key().public_bytes_raw())
    async with door(ledger_db, authentication=StandardWebhooks(keys=(key,))) as at:
        made = at.webhook(INVOICE)
        stamp = made["headers"]["webhook-timestamp"]
        signed = f"msg_1.{stamp}.".encode() + made["content"]
        token = base64.b64encode(private.sign(signed)).decode()
        made["headers"]["webhook-signature"] = f"v1a,{token}"
        assert (await at.post(made)).status_code == 202
        made["headers"]["webhook-signature"] = "v1a," + base64.b64encode(bytes(64)).decode()
        assert (await at.post(made)).status_code == 401


async def test_signatures_and_tokens_are_forgotten(ledger_db: LedgerDb):
    async with door(ledger_db) as at:
        made = at.webhook(INVOICE, authorization="Bearer planted", cookie="planted")
        assert (await at.post(made)).status_code == 202
        kept = json.loads(one(ledger_db, payloads).headers)
        assert set(kept) == {"content-type", "webhook-id", "webhook-timestamp", "user-agent"}


async def test_a_body_that_does_not_arrive_is_given_up(ledger_db: LedgerDb):
    async with door(ledger_db, bounds=Bounds(body_s=0.01)) as at:
        sent = []

        async def send(message):
            sent.append(message)

        async def receive():
            await asyncio.Event().wait()

        scope = {"type": "http", "method": "POST", "path": "/shop", "headers": []}
        await at.client._transport.app(scope, receive, send)
        assert sent[0]["status"] == 400


def test_a_secret_is_never_shown():
    assert SECRET.decode() not in repr(StandardWebhooks(keys=(KEY,)))


async def test_texts_that_no_database_holds_are_refused(ledger_db: LedgerDb):
    structured = [
        b'{"specversion":"1.0","id":"\\ud800","source":"b","type":"c"}',
        b'{"specversion":"1.0","id":"a\\u0000","source":"b","type":"c"}',
        b'{"specversion":"1.0","id":"a","source":"b","type":"c","data":"\\ud800"}',
        b'{"specversion":"1.0","id":"a","source":"b","type":"c","data":{"a":1,"a":2}} tail',
        b'{"specversion":"1.0","id":"a","source":"b","type":"c","data":' + b"1" * 5000 + b"} x",
    ]
    async with door(ledger_db, identity=IdentityRule.CLOUDEVENTS) as at:
        for body in structured:
            made = at.webhook(body, content_type="application/cloudevents+json")
            assert (await at.post(made)).status_code == 400, body[:80]
        for id in ("%00", "a%00b"):
            assert (await at.post(at.cloudevent(id))).status_code == 400
        assert set(at.counts()) <= {"rejections"}
