"""A history as lines that a person can read: who did what, when, and what came back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from landed.accounts.decide import AccountAnswer
from landed.accounts.domain import Deposit, Transfer, Withdrawal, account_key
from landed.commands import Done, Rejected
from landed.ids import AggregateKey
from landed.sim.history import Entry, History
from landed.sim.subject import Wish

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


_IN_WORDS: Final = {
    "net.lost_before": "bytes are lost on their way to {to}",
    "net.lost_after": "the answer of {to} is lost",
    "net.reset": "the connection to {to} is reset after {after} bytes",
    "net.half_closed": "the stream to {to} ends after {after} bytes",
    "net.refused": "a dial of {to} is refused",
    "net.deaf": "a dial of {to} is never answered",
    "disturb.wall_step": "the wall clock steps",
    "disturb.reset_host": "every connection is reset",
    "disturb.slow_flush": "flushes change their pace",
    "disturb.pause_host": "the host stops",
    "engine.busy": "has no room for a write: {legs}",
    "engine.doubtful": "tells a write that landed as unknown",
    "host.resumed": "the host goes on",
    "disk.full": "the disk is full",
    "disk.doubt_lost": "an I/O error at COMMIT; nothing is stored",
    "disk.doubt_kept": "an I/O error at COMMIT; it is stored all the same",
    "disk.crash_before": "the machine dies before the flush",
    "disk.crash_torn": "the machine dies within the flush",
    "disk.crash_after": "the machine dies after the flush",
    "server.crashed": "the server is dead",
    "server.started": "the server lives again, on the same disk",
    "replica.killed": "the replica is killed",
    "replica.started": "the replica lives again, and knows nothing",
    "lane.committed": "flushes {changes} changes",
    "lane.flush_failed": "a flush failed: {error}",
    "garden.trim": "trims {keys} to begin at version {keep_from}",
    "garden.delete": "deletes {keys}",
    "garden.told": "is answered {answer}",
    "caller.unheard": "the caller does not hear the answer",
    "pool.dialled": "dials {node}",
    "pool.dial_failed": "a dial failed: {error}",
    "pool.discarded": "drops a connection: {reason}",
    "pool.unknown": "nobody knows what became of a write: {reason}",
}
"""What facts and faults are called in a story; what is not here is told as it was noted."""


def tell(history: History, *, last: int | None = None) -> list[str]:
    """The timeline, one line an entry; only the last so many that matter, if asked."""
    names = history.names
    began = history.entries[0].at if history.entries else 0.0
    left_out = _TOO_FINE if last is None else _TOO_FINE | _ASIDE
    lines = [
        f"{entry.at - began:10.4f}s  {entry.host:<10} {sentence(entry, names)}"
        for entry in history.entries
        if entry.what not in left_out
    ]
    return lines if last is None else lines[-last:]


def tell_log(history: History) -> list[str]:
    """What the log held at the end, one line a batch."""
    return [
        f"{history.names[key]} version {batch.version}: sequence {event.client_seq}, "
        f"event id {str(event.event_id)[:8]}, {event.value.decode(errors='backslashreplace')}, "
        + ("the fleet's" if batch.client_id == history.service else "a stranger's")
        for key, batches in history.truth.batches.items()
        for batch in batches
        for event in batch.events
    ]


def sentence(entry: Entry, names: Mapping[AggregateKey, str]) -> str:
    """Say an entry of the timeline."""
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
        case "log.read" | "log.details" | "log.info" if "answer" in fields:
            return f"{who}{entry.what.removeprefix('log.')} answered {fields['answer']}"
        case "loop.backed_off":
            pause_ms = 1000 * float(str(fields["pause_s"]))
            return f"{who}waits {pause_ms:.1f} ms, because: {fields['saw']}"
        case what if what in _IN_WORDS:
            told = {name: _say(value, names) for name, value in fields.items()}
            return who + _IN_WORDS[what].format(**told)
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
        case Wish(label=label):
            return label
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
        f"{names[key]} expecting "
        + ("any version" if expected is None else f"version {expected}")
        + f" with sequence {seq}"
        for key, expected, seq in legs
    )


def _outcome(outcome: object) -> str:
    match outcome:
        case None:
            return "cut off"
        case Done() if not all(isinstance(one, AccountAnswer) for one in outcome.results):
            answers = ", ".join(str(one) for one in outcome.results)
            return f"Done, {outcome.how.value}: {answers}"
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
