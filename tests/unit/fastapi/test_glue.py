"""Beside a user's own routes: nothing of theirs is changed, and everything of ours is safe."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from uuid import UUID

import httpx
import pytest
from fastapi import Depends, FastAPI, HTTPException, Request, Response
from pydantic import BaseModel

from landed.client.embedded import EmbeddedLog
from landed.commands import Command, NewEvent, Policy, ServiceIdentity, fingerprint
from landed.engines.memory import open_memory
from landed.errors import OutcomeUnknownError
from landed.fastapi import ProblemError, RequestKey, SafeWrites, problem_documents, read_json
from landed.ids import AggregateKey
from landed.limits import Limits
from landed.log import Read
from landed.sim import HostClock

IDENTITY = ServiceIdentity.from_config("0d9e9cd1-0000-4000-8000-000000000001")
COUNTER = AggregateKey(UUID(int=1), UUID(int=2), UUID(int=3))


class Counter:
    """Counts up by what each event holds."""

    def initial(self, _key):
        return 0

    def fold(self, state, event, _key):
        return state + int(event.value)

    def fingerprint_of(self, event, _key):
        return fingerprint("add", ("by", int(event.value)))


class Add(BaseModel):
    by: int


@asynccontextmanager
async def counting(*, is_documented: bool = False, policy: Policy | None = None):
    clock = HostClock(asyncio.get_running_loop().time)
    log = EmbeddedLog(await open_memory(limits=Limits(), clock=clock))

    async def open_log():
        return log

    safe = SafeWrites(
        open_log, identity=IDENTITY, domain=Counter(), clock=clock, policy=policy, replica="me"
    )
    app = FastAPI()
    safe.install(app)
    if is_documented:
        problem_documents(app, safe)

    @app.post("/add")
    async def add(body: Add, key: RequestKey = Depends(safe.key)) -> Response:  # noqa: B008
        command = Command.on(
            COUNTER,
            event_id=key.event_id,
            fingerprint=fingerprint("add", ("by", body.by)),
            decide=lambda _state: NewEvent(1, str(body.by).encode()),
            respond=lambda state, version: {"count": state, "version": version},
        )
        return await safe.answer(command, key)

    @app.get("/theirs")
    async def theirs(status: int = 200) -> dict[str, int]:
        if status == 500:
            raise RuntimeError("a bug")
        if status != 200:
            raise HTTPException(status, "theirs")
        return {"status": status}

    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with safe.running(), httpx.AsyncClient(transport=transport, base_url="http://a") as http:
        yield safe, http


async def add(http, by, key="K"):
    return await http.post("/add", json={"by": by}, headers={"Idempotency-Key": key})


async def test_a_route_of_ones_own_lands_once_and_answers_the_same_again():
    async with counting() as (safe, http):
        first = await add(http, 5)
        again = await add(http, 5)
        assert first.json() == again.json() == {"count": 5, "version": 1}
        assert again.headers["idempotency-replayed"] == "true"
        other = await add(http, 6)
        assert other.json()["code"] == "IDEMPOTENCY_KEY_REUSED"
        batches = [batch async for batch in safe.log.read_all(Read(COUNTER))]
        assert len(batches) == 1


async def test_other_routes_keep_their_own_way_with_errors():
    async with counting() as (_, http):
        answer = await http.get("/theirs?status=404")
        assert answer.json() == {"detail": "theirs"}
        assert answer.headers["service-replica"] == "me"
        assert "idempotency-key" not in answer.headers
        assert (await http.post("/add", json={"by": "x"})).status_code == 422


async def test_with_problem_documents_every_error_is_one():
    async with counting(is_documented=True) as (_, http):
        for status, code in ((404, "NOT_FOUND"), (418, "HTTP_418"), (500, "INTERNAL_ERROR")):
            answer = await http.get(f"/theirs?status={status}")
            document = answer.json()
            assert (answer.status_code, document["status"]) == (status, status)
            assert document["code"] == code
            assert document["instance"] == f"urn:uuid:{answer.headers['request-id']}"
        bad = await http.post("/add", json={"by": "x"}, headers={"Idempotency-Key": "K"})
        assert (bad.status_code, bad.json()["code"]) == (400, "BAD_REQUEST")
        assert bad.headers["idempotency-key"] == "K"


async def test_an_outcome_nobody_knows_is_told_as_one_and_the_retry_settles_it():
    policy = Policy(attempts_max=1)
    async with counting(policy=policy) as (safe, http):
        real = safe.log.write

        async def lost(_write, **_options):
            raise OutcomeUnknownError("timeout")

        safe.log.write = lost
        answer = await add(http, 5)
        assert answer.status_code == 409
        assert answer.json()["outcome"] == "unknown"
        assert int(answer.headers["retry-after"]) >= 1
        safe.log.write = real
        assert (await add(http, 5)).json() == {"count": 5, "version": 1}


async def test_a_command_under_another_key_than_its_requests_is_a_bug():
    async with counting() as (safe, _):
        key = RequestKey("K", "K", IDENTITY.event_id_of("K"), is_minted=False)
        command = Command.on(
            COUNTER,
            event_id=UUID(int=9),
            fingerprint=b"",
            decide=lambda _state: NewEvent(1, b"1"),
            respond=lambda state, _version: state,
        )
        with pytest.raises(AssertionError):
            await safe.answer(command, key)


async def test_a_stopping_app_finishes_what_it_executes_before_it_closes_the_log():
    async with counting() as (safe, http):
        real, writing = safe.log.write, asyncio.Event()

        async def slow(write, **options):
            writing.set()
            await asyncio.sleep(3)
            return await real(write, **options)

        safe.log.write = slow
        asking = asyncio.create_task(add(http, 5))
        await writing.wait()
        asking.cancel()
        log = safe.log
        batches: list[object] = []
        real_close = log.close

        async def close():
            batches.extend([batch async for batch in log.read_all(Read(COUNTER))])
            await real_close()

        log.close = close
        with pytest.raises(asyncio.CancelledError):
            await asking
    assert len(batches) == 1


def test_problem_errors_name_themselves():
    from landed.fastapi import refuse

    with pytest.raises(ProblemError, match="CONFLICT"):
        raise refuse("CONFLICT")


async def test_a_caller_who_hangs_up_in_the_middle_of_a_body_is_no_bug():
    messages = [
        {"type": "http.request", "body": b'{"by":', "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive():
        return messages.pop(0)

    scope = {"type": "http", "headers": [(b"content-type", b"application/json")]}
    with pytest.raises(ProblemError) as raised:
        await read_json(Request(scope, receive))
    assert raised.value.problem.code == "BAD_REQUEST"


@pytest.mark.parametrize("window_s", [90, 100.5, 604_800, 2_592_000])
async def test_the_window_is_told_as_a_plain_number(window_s):
    async with counting(policy=Policy(window_s=window_s)) as (_, http):
        told = (await add(http, 5)).headers["idempotency-window"]
    assert told == str(window_s)
