"""A history as lines that a person can read: who did what, when, and what came back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from landed.accounts.domain import Deposit, Transfer, Withdrawal, account_key
from landed.commands import Done, Rejected
from landed.ids import AggregateKey
from landed.sim.history import Entry, History

_TOO_FINE: Final = frozenset({"net.landed", "loop.ended"})
"""True, and of no use to a reader: every segment that arrives, and ends that are told twice."""
_ASIDE: Final = frozenset(
    {
        "loop.ended",
        "loop.asked_owner",
        "pool.dialled",
        "pool.discarded",
        "engine.took",
        "log.details",
    }
)
"""What is told once more by somebody else, or is the daily life of connections."""


def tell(history: History, *, last: int | None = None) -> list[str]:
    """The timeline, one line an entry; only the last so many that matter, if asked."""
    names = history.names
    began = history.entries[0].at if history.entries else 0.0
    left_out = _TOO_FINE if last is None else _TOO_FINE | _ASIDE
    lines = [
        f"{entry.at - began:10.4f}s  {entry.host:<10} {_sentence(entry, names)}"
        for entry in history.entries
        if entry.what not in left_out
    ]
    return lines if last is None else lines[-last:]


def tell_log(history: History) -> list[str]:
    """What the log held at the end, one line a batch."""
    return [
        f"{history.names[key]} version {batch.version}: sequence {event.client_seq}, "
        f"event id {str(event.event_id)[:8]}, {event.value.decode()}, "
        + ("the fleet's" if batch.client_id == history.service else "a stranger's")
        for key, batches in history.truth.batches.items()
        for batch in batches
        for event in batch.events
    ]


def _sentence(entry: Entry, names: Mapping[AggregateKey, str]) -> str:
    fields = dict(entry.fields)
    call = fields.pop("call", None)
    who = f"call {call}: " if call else ""
    match entry.what:
        case "call.began":
            order = _say(fields["order"], names)
            return f"{who}begins, request {fields['request']}: {order}"
        case "call.ended":
            return f"{who}ends: {_outcome(fields['outcome'])}"
        case "log.write":
            return f"{who}writes {_legs(fields['legs'], names)}"
        case "log.again":
            return f"{who}{fields['why']}: writes again {_legs(fields['legs'], names)}"
        case "engine.took":
            return f"takes a write: {_legs(fields['legs'], names)}"
        case "log.wrote":
            detail = fields.get("detail")
            return f"{who}write answered {fields['answer']}" + (f" ({detail})" if detail else "")
        case "log.read" if "key" in fields:
            since, versions = fields["since"], fields["versions"]
            return f"{who}reads {_say(fields['key'], names)} from {since}: {versions}"
        case _:
            pass
    rest = ", ".join(f"{name} {_say(value, names)}" for name, value in fields.items())
    return f"{who}{entry.what}" + (f" ({rest})" if rest else "")


def _say(value: object, names: Mapping[AggregateKey, str]) -> str:
    match value:
        case (str() as host, int() as port):
            return f"{host}:{port}"
        case AggregateKey():
            return names.get(value, str(value))
        case Deposit(account, cents):
            return f"deposit {cents} into {names[account_key(account)]}"
        case Withdrawal(account, cents):
            return f"withdraw {cents} from {names[account_key(account)]}"
        case Transfer(source, target, cents):
            return (
                f"transfer {cents} from {names[account_key(source)]} to "
                f"{names[account_key(target)]}"
            )
        case _:
            return str(value)


def _legs(legs: object, names: Mapping[AggregateKey, str]) -> str:
    assert isinstance(legs, tuple)
    return " and ".join(
        f"{names[key]} expecting version {expected} with sequence {seq}"
        for key, expected, seq in legs
    )


def _outcome(outcome: object) -> str:
    match outcome:
        case None:
            return "cut off"
        case Done():
            results = ", ".join(
                f"{answer.balance_cents} at version {answer.aggregate_version}"
                for answer in outcome.results
            )
            return f"Done, {outcome.how.value}: {results}"
        case Rejected():
            return f"Rejected, {outcome.reason.code}, on {outcome.states}"
        case _:
            return str(outcome)
