"""The HTTP contract: what is answered, with which headers, and what is never written."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from landed.accounts.domain import account_key
from landed.commands import ServiceIdentity
from landed.ids import ClientId
from landed.log import Delete, DeleteLeg, Trim
from tests.unit.accounts.replicas import CLIENT_ID, X, Y, replicas


@pytest.mark.scenario("SWA-1", "SWA-2", "SWA-3", "SWA-4")
async def test_a_key_gets_its_first_answer_on_any_replica_whatever_came_after():
    async with replicas(2) as fleet:
        first = await fleet.deposit(X, 50, key="K1")
        assert first.status_code == 200
        assert first.json() == {"accountId": str(X), "balanceCents": 50, "aggregateVersion": 1}
        assert first.headers["idempotency-result"] == "fresh"
        assert first.headers["idempotency-replayed"] == "false"
        await fleet.deposit(X, 7, key="K2", on=1)
        for on in (0, 1):
            again = await fleet.deposit(X, 50, key="K1", on=on)
            assert again.content == first.content
            assert again.headers["idempotency-result"] == "original"
            assert again.headers["idempotency-replayed"] == "true"
        assert len(await fleet.events(X)) == 2


async def test_every_answer_says_who_gave_it_and_every_change_what_its_key_is():
    async with replicas() as fleet:
        answers = [
            await fleet.deposit(X, 50, key='"K 1"'),
            await fleet.deposit(X, 0, key='"K 1"'),
            await fleet.withdraw(X, 51, key='"K 1"'),
            await fleet.post(f"/api/accounts/{X}/deposit", content=b"{", key='"K 1"'),
            await fleet.get("/api/accounts"),
            await fleet.get("/nowhere"),
            await fleet.get("/"),
        ]
        assert [answer.status_code for answer in answers] == [200, 422, 422, 400, 200, 404, 200]
        assert len({answer.headers["request-id"] for answer in answers}) == len(answers)
        assert {answer.headers["service-replica"] for answer in answers} == {"replica-0"}
        for answer in answers[:4]:
            assert answer.headers["idempotency-key"] == '"K 1"'
            assert answer.headers["idempotency-window"] == "90"
        for answer in answers[1:4]:
            assert answer.headers["idempotency-replayed"] == "false"
            assert "idempotency-result" not in answer.headers
            assert answer.json()["instance"] == f"urn:uuid:{answer.headers['request-id']}"


@pytest.mark.scenario("SWA-5", "BC-15")
async def test_without_a_key_one_is_minted_told_and_can_be_sent_again():
    async with replicas() as fleet:
        first = await fleet.deposit(X, 500)
        second = await fleet.deposit(X, 500)
        assert second.json()["balanceCents"] == 1000
        assert first.headers["idempotency-key"] != second.headers["idempotency-key"]
        again = await fleet.deposit(X, 500, key=first.headers["idempotency-key"])
        assert again.content == first.content
        assert len({event.event_id for event in await fleet.events(X)}) == 2


@pytest.mark.scenario("SWA-6", "SWA-7")
async def test_a_rejection_tells_the_balance_and_is_decided_afresh_a_success_is_not():
    async with replicas() as fleet:
        await fleet.deposit(X, 100)
        refused = await fleet.withdraw(X, 150, key="W")
        assert refused.status_code == 422
        problem = refused.json()
        assert problem["code"] == "INSUFFICIENT_FUNDS"
        assert problem["balanceCents"] == 100
        assert problem["outcome"] == "not_applied"
        assert problem["retryable"] is False
        await fleet.deposit(X, 50)
        assert (await fleet.withdraw(X, 150, key="W")).json()["balanceCents"] == 0
        assert (await fleet.withdraw(X, 150, key="W")).status_code == 200


@pytest.mark.scenario("SWA-58", "SWA-67")
async def test_a_transfer_answers_both_legs_and_replays_both():
    async with replicas(2) as fleet:
        await fleet.deposit(X, 100)
        first = await fleet.transfer(X, Y, 30, key="T")
        assert first.json() == {
            "from": {"accountId": str(X), "balanceCents": 70, "aggregateVersion": 2},
            "to": {"accountId": str(Y), "balanceCents": 30, "aggregateVersion": 1},
        }
        assert (await fleet.transfer(X, Y, 30, key="T", on=1)).content == first.content
        same = await fleet.transfer(X, X, 30)
        assert (same.status_code, same.json()["code"]) == (422, "VALIDATION_ERROR")
        assert len(await fleet.events(Y)) == 1


@pytest.mark.scenario("SWA-79", "BC-15")
@pytest.mark.parametrize("value", ["", "   ", "x" * 300, "a,b", '"a', "\x07", str(UUID(int=0))])
async def test_a_bad_key_is_400_and_nothing_is_written(value):
    async with replicas() as fleet:
        answer = await fleet.deposit(X, 50, key=value)
        assert answer.status_code == 400
        assert answer.json()["code"] == "BAD_IDEMPOTENCY_KEY"
        assert "idempotency-key" not in answer.headers
        assert await fleet.events(X) == []


@pytest.mark.scenario("SWA-79")
async def test_two_key_lines_are_400():
    async with replicas() as fleet:
        lines = [("Idempotency-Key", "a"), ("Idempotency-Key", "a")]
        answer = await fleet.deposit(X, 50, headers=lines)
        assert (answer.status_code, answer.json()["code"]) == (400, "BAD_IDEMPOTENCY_KEY")
        assert await fleet.events(X) == []


@pytest.mark.scenario("SWA-80")
@pytest.mark.parametrize(
    ("literal", "status"),
    [
        *(("10.5", 400), ("10.0", 400), ('"10"', 400), ("true", 400), ("1e2", 400)),
        *(("null", 400), ("[1]", 400), ("NaN", 400), ("1E0", 400), ("01", 400)),
        *(("0", 422), ("-1", 422), ("2147483648", 422), ("9007199254740993", 422)),
        *(("18446744073709551616", 422), ("-0", 422), ("9" * 5000, 400)),
    ],
)
async def test_an_amount_is_an_integer_literal_in_range_or_nothing_is_written(literal, status):
    async with replicas() as fleet:
        body = f'{{"amountCents":{literal}}}'
        answer = await fleet.post(f"/api/accounts/{X}/deposit", content=body, key="K")
        assert answer.status_code == status
        assert answer.json()["outcome"] == "not_applied"
        assert await fleet.events(X) == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'"x"',
        b"{",
        b'{"amountCents":1}x',
        b'{"amountCents":1,"amountCents":1}',
        b'{"amountCents":1,"memo":{"a":1,"a":2}}',
        b'{"amountCents":1,"memo":"\xff"}',
        b'{"amountCents":1,"memo":"\\ud800"}',
        b'\xef\xbb\xbf{"amountCents":1}',
        b'{"amountCents":1,"memo":' + b"[" * 8000,
        b"{}",
    ],
)
async def test_a_body_that_two_parsers_could_read_differently_is_400(content):
    async with replicas() as fleet:
        answer = await fleet.post(f"/api/accounts/{X}/deposit", content=content, key="K")
        assert (answer.status_code, answer.json()["code"]) == (400, "BAD_REQUEST")
        assert await fleet.events(X) == []


async def test_unknown_members_are_ignored_even_with_numbers_nobody_can_hold():
    async with replicas() as fleet:
        body = b'{"amountCents":5,"ref":18446744073709551617,"ratio":1e400}'
        answer = await fleet.post(f"/api/accounts/{X}/deposit", content=body)
        assert answer.json()["balanceCents"] == 5


@pytest.mark.scenario("SWA-83")
async def test_plain_http_refusals_are_problem_documents_too():
    async with replicas() as fleet:
        deposit = f"/api/accounts/{X}/deposit"
        text = [("Content-Type", "text/plain"), ("Idempotency-Key", "K")]
        latin = [("Content-Type", "application/json; charset=latin-1"), ("Idempotency-Key", "K")]
        client = fleet.clients[0]
        answers = {
            404: [await client.get("/api/account"), await client.get("/api/accounts/")],
            405: [await client.get(deposit), await client.post("/api/info", json={})],
            413: [await client.post(deposit, json={"amountCents": 1, "memo": "x" * 17_000})],
            415: [
                await client.post(deposit, content=b"{}", headers=text),
                await client.post(deposit, content=b"{}", headers=latin),
                await client.post(deposit, content=b"{}"),
            ],
        }
        for status, several in answers.items():
            for answer in several:
                assert answer.status_code == status
                assert answer.headers["content-type"] == "application/problem+json"
                document = answer.json()
                assert document["type"] == "about:blank"
                assert {"title", "status", "detail", "instance", "retryable"} <= set(document)
        assert "allow" in answers[405][0].headers
        assert answers[415][0].headers["idempotency-key"] == "K"
        assert await fleet.events(X) == []


async def test_json_in_utf_8_is_taken_however_its_type_is_spelled():
    async with replicas() as fleet:
        for kind in ('Application/JSON; charset="UTF-8"', "application/json;charset=utf-8"):
            headers = {"Content-Type": kind}
            client = fleet.clients[0]
            path = f"/api/accounts/{X}/deposit"
            answer = await client.post(path, content=b'{"amountCents":1}', headers=headers)
            assert answer.status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/api/accounts/abc/balance",
        f"/api/accounts/{X.hex}/balance",
        f"/api/accounts/{{{X}}}/balance",
        f"/api/accounts/{X}/balance?minVersion=-1",
        f"/api/accounts/{X}/balance?minVersion=1.0",
        f"/api/accounts/{X}/balance?minVersion=1&minVersion=2",
        f"/api/accounts/{X}/balance?minVersion=18446744073709551616",
        f"/api/accounts/{X}/balance?minVersion=%D9%A1",
        f"/api/accounts/{X}/history?limit=0",
        f"/api/accounts/{X}/history?limit=1001",
        f"/api/accounts/{X}/history?fromVersion=x",
    ],
)
async def test_a_path_or_query_that_is_not_plainly_meant_is_400(path):
    async with replicas() as fleet:
        answer = await fleet.get(path)
        assert (answer.status_code, answer.json()["code"]) == (400, "BAD_REQUEST")


@pytest.mark.scenario("SWA-82")
async def test_a_version_not_reached_is_412_and_one_already_folded_needs_no_read():
    async with replicas(2) as fleet:
        never = await fleet.get(f"/api/accounts/{X}/balance")
        assert never.json() == {"accountId": str(X), "balanceCents": 0, "aggregateVersion": 0}
        await fleet.deposit(X, 5)
        beyond = await fleet.get(f"/api/accounts/{X}/balance?minVersion=2", on=1)
        assert beyond.status_code == 412
        assert beyond.json()["code"] == "VERSION_NOT_REACHED"
        assert beyond.json()["aggregateVersion"] == 1
        huge = await fleet.get(f"/api/accounts/{X}/balance?minVersion={2**64 - 1}")
        assert huge.status_code == 412

        reads = 0
        real = fleet.log.read

        async def counted(*arguments, **options):
            nonlocal reads
            reads += 1
            return await real(*arguments, **options)

        fleet.log.read = counted
        there = await fleet.get(f"/api/accounts/{X}/balance?minVersion=1", on=1)
        assert (there.status_code, reads) == (200, 0)
        assert (await fleet.get(f"/api/accounts/{X}/balance", on=1)).status_code == 200
        assert reads == 1


async def test_history_comes_in_pages_newest_last():
    async with replicas() as fleet:
        for cents in (5, 6, 7):
            await fleet.deposit(X, cents, key=f"00000000-0000-4000-8000-00000000000{cents}")
        await fleet.transfer(X, Y, 3)
        first = (await fleet.get(f"/api/accounts/{X}/history?limit=2")).json()
        assert [event["amountCents"] for event in first["events"]] == [5, 6]
        assert (first["nextVersion"], first["currentAggregateVersion"]) == (3, 4)
        assert first["balanceCents"] == 15
        assert "availableFrom" not in first
        rest = (await fleet.get(f"/api/accounts/{X}/history?fromVersion=3")).json()
        assert "nextVersion" not in rest
        seven, out = rest["events"]
        assert seven["eventId"] == "00000000-0000-4000-8000-000000000007"
        assert seven["timestamp"].endswith("Z")
        assert (out["type"], out["toAccountId"]) == ("TransferredOut", str(Y))
        assert "fromAccountId" not in out
        (into,) = (await fleet.get(f"/api/accounts/{Y}/history")).json()["events"]
        assert (into["type"], into["fromAccountId"]) == ("TransferredIn", str(X))
        past = (await fleet.get(f"/api/accounts/{X}/history?fromVersion=99")).json()
        assert past["events"] == []


@pytest.mark.scenario("SWA-70")
@pytest.mark.parametrize("backend", ["memory"], indirect=True)  # where a replica can be cold
async def test_a_trimmed_history_says_where_it_begins_and_a_cold_replica_invents_no_balance():
    async with replicas(2) as fleet:
        for cents in (5, 6, 7):
            await fleet.deposit(X, cents)
        await fleet.log.trim(Trim(account_key(X), 3, ClientId(CLIENT_ID)))
        warm = (await fleet.get(f"/api/accounts/{X}/history?limit=1")).json()
        assert warm["availableFrom"] == 3
        assert [event["aggregateVersion"] for event in warm["events"]] == [3]
        assert warm["balanceCents"] == 18
        cold = await fleet.get(f"/api/accounts/{X}/balance", on=1)
        assert (cold.status_code, cold.json()["code"]) == (500, "INTERNAL_ERROR")
        assert (await fleet.deposit(X, 1, on=1)).status_code == 500


@pytest.mark.scenario("SWA-71")
async def test_a_deleted_account_is_410_and_leaves_the_list():
    async with replicas() as fleet:
        await fleet.deposit(X, 5)
        leg = DeleteLeg(account_key(X), None, allow_recreate=False, allow_continuation=False)
        await fleet.log.delete(Delete(ClientId(CLIENT_ID), (leg,)))
        answer = await fleet.deposit(X, 5)
        assert (answer.status_code, answer.json()["code"]) == (410, "ACCOUNT_CLOSED")
        assert (await fleet.get(f"/api/accounts/{X}/balance")).status_code == 410
        assert (await fleet.get("/api/accounts")).json() == {"accounts": []}


@pytest.mark.scenario("SWA-36")
async def test_one_key_with_two_amounts_at_once_lands_once_and_refuses_the_other():
    async with replicas(2) as fleet:
        answers = await asyncio.gather(
            fleet.deposit(X, 50, key="K", on=0), fleet.deposit(X, 51, key="K", on=1)
        )
        assert sorted(answer.status_code for answer in answers) == [200, 422]
        (refused,) = [answer for answer in answers if answer.status_code == 422]
        assert refused.json()["code"] == "IDEMPOTENCY_KEY_REUSED"
        assert len(await fleet.events(X)) == 1


@pytest.mark.scenario("BC-15", "SWA-64")
async def test_one_key_names_one_request_on_an_account():
    async with replicas() as fleet:
        await fleet.deposit(X, 500, key="abc")
        assert (await fleet.deposit(Y, 700, key="abc")).status_code == 200
        for other in (fleet.withdraw(X, 500, key="abc"), fleet.transfer(X, Y, 500, key="abc")):
            answer = await other
            assert (answer.status_code, answer.json()["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")


@pytest.mark.scenario("BC-15")
async def test_two_callers_with_one_key_never_share_an_answer():
    async with replicas(caller_header="X-Caller") as fleet:
        alice, bob = {"X-Caller": "alice"}, {"X-Caller": "bob"}
        first = await fleet.deposit(X, 500, key="abc", headers=alice)
        second = await fleet.deposit(X, 500, key="abc", headers=bob)
        assert second.json()["balanceCents"] == 1000
        again = await fleet.deposit(X, 500, key="abc", headers=alice)
        assert again.content == first.content
        nobody = await fleet.deposit(X, 500, key="abc")
        assert nobody.status_code == 400
        assert (await fleet.get("/api/accounts")).status_code == 400
        assert (await fleet.get("/healthz")).status_code == 200
        assert len(await fleet.events(X)) == 2


@pytest.mark.scenario("BC-16")
async def test_the_spelling_of_a_body_does_not_matter_its_meaning_does():
    async with replicas(2) as fleet:
        bodies = {
            '{"amountCents":100,"memo":"x"}': 200,
            '{"memo":"x","amountCents":100}': 200,
            ' {\n"memo" : "\\u0078", "amountCents" : 100 } ': 200,
            '{"amountCents":100.0,"memo":"x"}': 400,
            '{"amountCents":1e2,"memo":"x"}': 400,
            '{"amountCents":101,"memo":"x"}': 422,
        }
        for number, (body, status) in enumerate(bodies.items()):
            path = f"/api/accounts/{str(X).upper() if number % 2 else X}/deposit"
            answer = await fleet.post(path, content=body, key="K", on=number % 2)
            assert answer.status_code == status, body
        assert answer.json()["code"] == "IDEMPOTENCY_KEY_REUSED"
        assert len(await fleet.events(X)) == 1


@pytest.mark.scenario("BC-17", "SWA-34", "SWA-35")
async def test_twelve_copies_of_one_request_on_three_replicas_land_once():
    async with replicas(3) as fleet:
        await fleet.deposit(X, 1000)
        answers = await asyncio.gather(
            *(fleet.deposit(X, 500, key="K", on=number % 3) for number in range(12))
        )
        for number, answer in enumerate(answers):
            if answer.status_code != 200:
                assert answer.json()["retryable"] is True
                answers[number] = await fleet.deposit(X, 500, key="K", on=number % 3)
        await asyncio.sleep(60)
        answers += [await fleet.deposit(X, 500, key="K", on=(n + 1) % 3) for n in range(12)]
        assert {answer.status_code for answer in answers} == {200}
        assert len({answer.content for answer in answers}) == 1
        assert answers[0].json()["balanceCents"] == 1500
        assert len(await fleet.events(X)) == 2


@pytest.mark.scenario("SWA-81")
async def test_a_caller_that_goes_away_changes_nothing_about_its_request():
    async with replicas(2) as fleet:
        real, writing = fleet.log.write, asyncio.Event()

        async def seen(*arguments, **options):
            writing.set()
            return await real(*arguments, **options)

        fleet.log.write = seen
        asking = asyncio.create_task(fleet.deposit(X, 50, key="K"))
        await writing.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        again = await fleet.deposit(X, 50, key="K", on=1)
        assert again.headers["idempotency-result"] == "original"
        assert len(await fleet.events(X)) == 1
        # The replica that was left alone recorded what it had begun: it answers without a read.
        fleet.log.read = None
        there = await fleet.get(f"/api/accounts/{X}/balance?minVersion=1")
        assert there.json()["balanceCents"] == 50


async def test_a_deposit_on_a_warm_replica_costs_one_read_and_one_write_of_the_log():
    async with replicas() as fleet:
        await fleet.deposit(X, 5)
        asked: list[str] = []

        def counted(name):
            real = getattr(fleet.log, name)

            async def ask(*arguments, **options):
                asked.append(name)
                return await real(*arguments, **options)

            return ask

        for name in ("read", "write", "details", "info"):
            setattr(fleet.log, name, counted(name))
        assert (await fleet.deposit(X, 5)).status_code == 200
        assert asked == ["read", "write"]


async def test_a_key_can_be_demanded():
    async with replicas(is_key_required=True) as fleet:
        answer = await fleet.deposit(X, 50)
        assert (answer.status_code, answer.json()["code"]) == (400, "BAD_IDEMPOTENCY_KEY")
        assert await fleet.events(X) == []


@pytest.mark.scenario("SWA-76")
async def test_replicas_set_up_alike_have_one_digest_and_others_have_another():
    digests = []
    for settings in ({}, {"caller_header": "X-Caller"}, {"identity": _other_identity()}):
        async with replicas(2, **settings) as fleet:
            headers = {"X-Caller": "me"}
            infos = [(await fleet.get("/api/info", on=on, headers=headers)).json() for on in (0, 1)]
            assert infos[0]["configDigest"] == infos[1]["configDigest"]
            assert infos[0]["replica"] != infos[1]["replica"]
            assert infos[0]["windowSeconds"] == 90
            assert infos[0]["backend"] == "memory"
            digests.append(infos[0]["configDigest"])
    assert len(set(digests)) == 3


def _other_identity() -> ServiceIdentity:
    return ServiceIdentity.from_config("0d9e9cd1-0000-4000-8000-000000000002")


async def test_names_are_listed_before_anything_is_written_and_new_accounts_at_once():
    async with replicas(2, names={Y: "Ada"}) as fleet:
        await fleet.deposit(X, 5)
        listed = (await fleet.get("/api/accounts", on=1)).json()
        assert listed == {"accounts": [{"id": str(Y), "name": "Ada"}, {"id": str(X), "name": ""}]}


async def test_a_replica_is_ready_only_while_its_log_answers():
    async with replicas() as fleet:
        assert (await fleet.get("/readyz")).status_code == 200
        await fleet.log._log.close()
        answer = await fleet.get("/readyz")
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        assert (await fleet.get("/healthz")).status_code == 200
        assert (await fleet.clients[0].head("/")).status_code == 200
        refused = await fleet.deposit(X, 5)
        assert refused.status_code in (409, 503)
        assert refused.json()["retryable"] is True
