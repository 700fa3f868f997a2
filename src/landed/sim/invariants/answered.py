"""Is every answered success in the log, with the version and the balance that were told?"""

from __future__ import annotations

from collections.abc import Iterator

from landed.accounts.domain import decode, order_of
from landed.commands import How
from landed.ids import AggregateKey
from landed.log import Event
from landed.sim.history import Call, History


def every_success_is_in_the_log(history: History) -> Iterator[str]:
    """A success speaks of an event that is there, is this order's, and adds up to the balance."""
    balances = {key: balances_of(history, key) for key in history.truth.batches}
    for call in history.calls:
        done = call.done
        if done is None:
            continue
        for key, answer in zip(call.request.targets, done.results, strict=True):
            told = f"call {call.number} told version {answer.aggregate_version} of {history.names[key]}"
            landed = history.landed(key, call.request.event_id)
            if not any(_is_of(call, key, batch.events) for batch in landed):
                yield f"{told}, but no event of request {call.request.number} is in the log"
                continue
            known = balances[key]
            if not 1 <= answer.aggregate_version <= len(known):
                yield f"{told}, but it has {len(known)} versions"
            elif known[answer.aggregate_version - 1] != answer.balance_cents:
                yield (
                    f"{told} with balance {answer.balance_cents}, "
                    f"but it was {known[answer.aggregate_version - 1]}"
                )
            elif answer.aggregate_version < landed[0].version:
                yield f"{told}, which is older than the event at version {landed[0].version}"
            elif done.how is not How.REBUILT and answer.aggregate_version != landed[0].version:
                yield f"{told}, but the event is at version {landed[0].version}"


def balances_of(history: History, key: AggregateKey) -> list[int]:
    """The balance after each version, from the log's bytes alone."""
    balance = 0
    balances = []
    for batch in history.truth.batches[key]:
        for event in batch.events:
            balance += decode(event).signed_cents
        balances.append(balance)
    return balances


def _is_of(call: Call, key: AggregateKey, events: tuple[Event, ...]) -> bool:
    return any(order_of(key.id, decode(event)) == call.request.order for event in events)
