"""What callers of real processes asked and were told, as the history that the simulator's checkers judge."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Final
from uuid import UUID

import httpx
import msgspec
import pytest

import landed
from landed.accounts.decide import AccountAnswer
from landed.accounts.domain import Deposit, Order, Transfer, account_key
from landed.commands import (
    Applied,
    Conflicted,
    Done,
    Fault,
    FaultKind,
    How,
    KeyReused,
    Outcome,
    Reject,
    Rejected,
    Unavailable,
    Unresolved,
)
from landed.errors import AggregateMissingError
from landed.ids import AggregateKey, EventId
from landed.log import Batch, FeedEntry, FeedRead, Read
from landed.sim.history import Call, History, Look, Request, Truth
from landed.sim.invariants import INVARIANTS
from tests.integration.accounts_process import CLIENT_ID, Process

Told = Outcome[AccountAnswer, int]
SHOWN_MAX: Final = 10
"""Of the sentences about what is wrong; the first is the cause."""


class Recorder:
    """Callers with a memory: every call and every look goes through here."""

    def __init__(self, http: httpx.AsyncClient, accounts: Sequence[UUID], *, window_s: float):
        self._http = http
        self.accounts = accounts
        names = {account_key(account): f"account {n}" for n, account in enumerate(accounts, 1)}
        self.history = History(service=UUID(CLIENT_ID), window_s=window_s, names=names)
        self.history.now = time.monotonic
        self.acknowledged: set[int] = set()
        """Numbers of the requests that were answered with a success."""

    def request(self, key: UUID, order: Order) -> Request:
        """Note a new intent."""
        request = Request(len(self.history.requests) + 1, EventId(key), order)
        self.history.requests.append(request)
        return request

    async def call(
        self, on: Process, request: Request, *, timeout_s: float, is_last: bool = False
    ) -> Call:
        """Ask one replica for a request, and note what came of it."""
        path, body = _http_of(request.order)
        call = self.history.begin(request, on.url, is_last=is_last)
        try:
            answer = await self._http.post(
                f"{on.url}{path}",
                json=body,
                headers={"Idempotency-Key": str(request.event_id)},
                timeout=timeout_s,
            )
        except httpx.HTTPError:
            return call
        call.outcome = _outcome_of(request.order, answer)
        call.ended_at = self.history.now()
        if call.done is not None:
            self.acknowledged.add(request.number)
        return call

    async def look(self, on: Process, account: UUID, *, timeout_s: float) -> Look | None:
        """Read a balance through one replica; None if it was not told."""
        began_at = self.history.now()
        try:
            answer = await self._http.get(
                f"{on.url}/api/accounts/{account}/balance", timeout=timeout_s
            )
        except httpx.HTTPError:
            return None
        if answer.status_code != 200:
            assert answer.json()["retryable"] is True, answer.text
            return None
        told = msgspec.json.decode(answer.content, type=AccountAnswer)
        look = Look(
            account_key(account),
            on.url,
            began_at,
            self.history.now(),
            told.balance_cents,
            told.aggregate_version,
        )
        self.history.looks.append(look)
        return look

    async def read_log(self, url: str) -> None:
        """Note what the log holds in the end: each account's history, and the feed."""
        async with await landed.connect(url) as log:
            batches: dict[AggregateKey, tuple[Batch, ...]] = {}
            for key in self.history.names:
                with suppress(AggregateMissingError):
                    batches[key] = tuple([batch async for batch in log.read_all(Read(key))])
            feed: list[FeedEntry] = []
            after, is_at_end = 0, False
            while not is_at_end:
                entries, after, is_at_end = await log.feed(FeedRead(after))
                feed += entries
        self.history.truth = Truth(batches, tuple(feed))

    def judge(self, excused: Collection[int] = ()) -> None:
        """The checkers of the simulator, each with its own question, and none may find an answer.

        Args:
            excused: numbers of calls that may have been told that a human is needed.
        """
        faults = [
            call
            for call in self.history.calls
            if isinstance(call.outcome, Fault) and call.number not in excused
        ]
        assert not faults, faults[0]
        wrong = [sentence for invariant in INVARIANTS for sentence in invariant(self.history)]
        assert not wrong, "\n".join(wrong[:SHOWN_MAX])

    def landed_ids(self) -> dict[AggregateKey, list[tuple[int, UUID | None]]]:
        """Version and event id of everything that the log tells, to be held against its rows."""
        told: dict[AggregateKey, list[tuple[int, UUID | None]]] = defaultdict(list)
        for key, batches in self.history.truth.batches.items():
            told[key] += [
                (batch.version, event.event_id) for batch in batches for event in batch.events
            ]
        return told

    def counts(self) -> str:
        """What happened, in numbers."""
        calls = self.history.calls
        unknown = sum(
            call.outcome is None
            or (isinstance(call.outcome, Unresolved) and call.outcome.applied is Applied.UNKNOWN)
            for call in calls
        )
        refused = sum(isinstance(call.outcome, Unavailable | Conflicted) for call in calls)
        return (
            f"{len(self.history.requests)} requests, {len(self.acknowledged)} acknowledged, "
            f"{len(calls) - len(self.history.requests)} retried, {unknown} calls unknown, "
            f"{refused} not applied"
        )


def tell(request: pytest.FixtureRequest, text: str) -> None:
    """Say it at the end of the run."""
    request.node.user_properties.append(("told", text))


def _http_of(order: Order) -> tuple[str, dict[str, object]]:
    if isinstance(order, Transfer):
        source, target = str(order.source), str(order.target)
        body = {"fromAccountId": source, "toAccountId": target, "amountCents": order.amount_cents}
        return "/api/transfers", body
    verb = "deposit" if isinstance(order, Deposit) else "withdraw"
    return f"/api/accounts/{order.account}/{verb}", {"amountCents": order.amount_cents}


class _Both(msgspec.Struct):
    """What a transfer is answered with."""

    from_: AccountAnswer = msgspec.field(name="from")
    to: AccountAnswer


def _outcome_of(order: Order, answer: httpx.Response) -> Told:
    """From what HTTP says back to what the loop said."""
    if answer.status_code == 200:
        if isinstance(order, Transfer):
            both = msgspec.json.decode(answer.content, type=_Both)
            results: tuple[AccountAnswer, ...] = (both.from_, both.to)
        else:
            results = (msgspec.json.decode(answer.content, type=AccountAnswer),)
        how = How(answer.headers["Idempotency-Result"])
        return Done(results, tuple([one.aggregate_version for one in results]), how)
    problem = answer.json()
    outcome = _problem_of(problem["code"], Applied(problem["outcome"]), problem["detail"])
    assert outcome.is_retryable is problem["retryable"], answer.text
    return outcome


def _problem_of(code: str, applied: Applied, detail: str) -> Told:
    match code:
        case "CONFLICT":
            return Conflicted()
        case "OUTCOME_UNKNOWN" | "RESULT_UNAVAILABLE":
            return Unresolved(applied, detail)
        case "SERVICE_UNAVAILABLE":
            return Unavailable(detail)
        case "IDEMPOTENCY_KEY_REUSED":
            return KeyReused()
        case "INSUFFICIENT_FUNDS":
            return Rejected(Reject(code, detail), ())
        case _:
            return Fault(FaultKind.REFUSED, applied, f"{code}: {detail}")
