"""Many replicas, one client id, nothing in common but the log."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from landed.accounts.domain import Deposit, Order, Transfer, Withdrawal, account_key
from landed.commands import Done, How, Seen, ServiceIdentity
from landed.log import ANY, Write
from tests.stories.fleet import SERVICE, X, Y, deposit_event, done, fleet, key


@pytest.mark.scenario("SWA-77")
async def test_five_replicas_and_500_requests_with_duplicates_keep_the_ledger_right() -> None:
    rng = Random(77)
    accounts = [X, Y, key("account Z")]
    async with fleet(5, holding=10_000) as it:
        requests: list[tuple[Order, str]] = []
        for number in range(500):
            if requests and rng.random() < 0.2:
                requests.append(rng.choice(requests))
                continue
            source, target = rng.sample(accounts, 2)
            cents = rng.randint(1, 50)
            order = rng.choice(
                [Deposit(source, cents), Withdrawal(source, cents), Transfer(source, target, cents)]
            )
            requests.append((order, f"K{number}"))
        for start in range(0, len(requests), 5):
            await asyncio.gather(
                *[
                    rng.choice(it.replicas).do(order, key(name))
                    for order, name in requests[start : start + 5]
                ]
            )
        assert sum(isinstance(call.outcome, Done) for call in it.calls) > 250


@pytest.mark.scenario("SWA-78")
async def test_another_services_event_with_the_same_event_id_is_not_our_answer() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        await it.write_foreign(X, 50, event_id=key("K1"))
        first = done(await a.deposit(X, 50, key("K1")))
        assert (first.how, first.result.balance_cents) == (How.FRESH, 200)
        assert done(await b.deposit(X, 50, key("K1"))).results == first.results
        assert await it.count(key("K1")) == 1


async def test_requests_of_a_previous_client_id_are_recognised_and_its_sequences_are_not() -> None:
    new = ServiceIdentity.from_config(
        "0d9e9cd1-0000-4000-8000-000000000002", previous_client_ids=[SERVICE]
    )
    async with fleet(1, holding=None, identity=new) as it:
        (a,) = it.replicas
        event = deposit_event(50, 700, key("K1"))
        await it.log.write(
            Write.to(
                account_key(X),
                [event],
                client_id=ServiceIdentity.from_config(SERVICE).client_id,
                expected_version=ANY,
            )
        )
        assert done(await a.deposit(X, 50, key("K1"))).how is How.ORIGINAL
        done(await a.deposit(X, 1, key("K2")))
        assert a.sent_seqs() == [1]


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
async def test_a_log_that_was_swapped_is_noticed_and_folded_anew() -> None:
    async with fleet(1) as it:
        (a,) = it.replicas
        done(await a.deposit(X, 50, key("K1")))
        async with fleet(1, holding=7) as other:
            a.log.swap(other.log)
            a.loop._known_log.is_known = False
            other.lane._store.identity = other.lane.identity._replace(restore_epoch=1)
            assert await a.loop.look(a.key_of(X)) == Seen(7, 1)
            a.log.swap(it.log)
            a.loop._known_log.is_known = False
            assert await a.loop.look(a.key_of(X)) == Seen(150, 2)


@pytest.mark.scenario("SWA-82")
async def test_a_read_that_is_recent_enough_does_not_touch_the_log() -> None:
    async with fleet(1) as it:
        (a,) = it.replicas
        assert await a.loop.look(account_key(X)) == Seen(100, 1)
        reads = len(a.log.reads)
        assert await a.loop.look(account_key(X), at_least=1) == Seen(100, 1)
        assert len(a.log.reads) == reads
        assert await a.loop.look(account_key(X), at_least=2) == Seen(100, 1)
        assert len(a.log.reads) == reads + 1
        assert await a.loop.look(account_key(Y)) == Seen(0, 0)


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
async def test_pages_are_followed_to_the_end_of_a_long_history() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        for number in range(30):
            await a.deposit(X, 1, key(f"K{number}"))
        it.lane._reads._limits = it.lane._limits.__class__(max_response_size=400)
        b.forget()
        assert await b.loop.look(b.key_of(X)) == Seen(130, 31)
        assert len(b.log.reads) > 3
        assert done(await b.deposit(X, 1, key("K7"))).how is How.ORIGINAL
