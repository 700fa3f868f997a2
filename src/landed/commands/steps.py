"""The steps of the write loop. Each does one thing and says, in the table's words, what it saw.

Which step comes next is none of their business: that is in moves.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from landed.commands.call import Call
from landed.commands.catch_up import Broken, catch_up, is_other_wish
from landed.commands.command import Accept, Reject
from landed.commands.moves import (
    At,
    Attempt,
    Saw,
    Weighed,
    is_behind,
    next_seq,
    next_versions,
    weigh,
)
from landed.commands.outcome import FaultKind
from landed.commands.ownership import Ours, Sibling, find_request, who_owns
from landed.commands.setback import read_failed, write_failed
from landed.errors import LandedError, StorageError
from landed.log import Event, Leg, Write
from landed.projections.port import Advance, Answered, Entry

S = TypeVar("S")
R = TypeVar("R")

# Named here because looking a member up in its enumeration costs as much as a step.
_WELL_FORMED: Final = Saw.WELL_FORMED
_NO_HIT: Final = Saw.NO_HIT
_CLEAR: Final = Saw.CLEAR
_ACCEPTED: Final = Saw.ACCEPTED
_LANDED: Final = Saw.LANDED
_KEPT: Final = Saw.KEPT


async def enter(call: Call[S, R]) -> Saw:
    """Look at the wish itself; nothing has been read yet (SW-84)."""
    command = call.command
    call.rejection = command.malformed
    targets = command.targets
    if call.rejection is None and len(targets) > 1 and len(set(targets)) < len(targets):
        call.rejection = Reject("same_target", "every target must be another aggregate")
    return _WELL_FORMED if call.rejection is None else Saw.MALFORMED


async def catch_up_all(call: Call[S, R]) -> Saw:
    """Look for the request, fold what is new of every target, and look again (SW-16, SW-17)."""
    reader, targets = call.reader, call.command.targets
    call.broken = None
    try:
        call.views = await reader.projection.load(targets, call.event_id, reader.domain)
        saw = _recognise(call)
        if saw is not _NO_HIT:
            return saw
        if not call.known_log.is_known:
            await call.known_log.ask(reader, reader.projection)
            # Another call may have folded the request meanwhile: look before reading past it.
            call.views = await reader.projection.load(targets, call.event_id, reader.domain)
            saw = _recognise(call)
            if saw is not _NO_HIT:
                return saw
        for index, view in enumerate(call.views):
            caught_up = await catch_up(reader, view, call.event_id, is_doubted=call.is_doubted)
            if caught_up is view:
                # Nothing is new, and the request was looked for in it already.
                continue
            if isinstance(caught_up, Broken):
                # Another leg may still prove that the whole request landed (SW-85).
                call.broken = caught_up
                continue
            call.views = (*call.views[:index], caught_up, *call.views[index + 1 :])
            if caught_up.answered is not None:
                return _recognise(call)
        if call.broken is not None:
            return Saw.BROKEN
        if call.policy.scan_horizon_s is not None and not call.has_scanned:
            return await _scan(call, call.policy.scan_horizon_s)
    except LandedError as error:
        return read_failed(call, error)
    return _NO_HIT


async def judge(call: Call[S, R]) -> Saw:
    """Weigh every unknown attempt against what is visible now (SW-30)."""
    if not call.unknown:
        return _CLEAR
    live = []
    for attempt in call.unknown:
        weighed, legs = weigh(attempt, call.views)
        if weighed is Weighed.LIVE:
            live.append(attempt)
        elif weighed is Weighed.ASK_OWNER:
            saw = await _ask_owners(call, attempt, legs)
            if saw is not Saw.SIBLING:
                return saw
    call.unknown = tuple(live)
    if call.is_last_look:
        return Saw.LAST_LOOK
    return Saw.LIVE if live else Saw.DEAD


async def decide(call: Call[S, R]) -> Saw:
    """Run the business rules, and make the write that they ask for."""
    command, views = call.command, call.views
    decision = command.decide(tuple([view.state for view in views]))
    if isinstance(decision, Reject):
        call.rejection = decision
        return Saw.REJECTED_IN_DOUBT if call.unknown else Saw.REJECTED
    _check_shape(decision, len(views))
    if call.is_deriving:
        client_seqs = tuple([next_seq(view) for view in views])
        call.is_deriving = False
    else:
        client_seqs = call.attempt.client_seqs
    fold, event_id = call.reader.domain.fold, call.event_id
    guards, legs, states = [], [], []
    for view, first_seq, proposed in zip(views, client_seqs, decision.events, strict=True):
        key, state, version = view[:3]
        events = []
        for client_seq, new in enumerate(proposed, first_seq):
            major, value, minor, event_ms, iv = new
            event = Event(client_seq, 0, event_id, event_ms, major, minor, value, iv)
            # Folded before it is sent, so that a mistake in a domain cannot hide a success.
            state = fold(state, event, key)
            events.append(event)
        states.append(state)
        # The guard is this attempt's own cursor, and only a cursor of 0 may create (SW-26, SW-27).
        guards.append(version)
        legs.append(Leg(key, tuple(events), version, version == 0, True))
    call.attempt = Attempt(client_seqs, tuple(guards))
    call.next_states = tuple(states)
    call.write = Write(call.identity.client_id, tuple(legs))
    return _ACCEPTED


async def send(call: Call[S, R]) -> Saw:
    """Send the write, once."""
    assert call.write is not None
    timeout_s = call.reader.timeout_s()
    if timeout_s <= 0:
        return Saw.OUT_OF_TIME
    try:
        landed = await call.reader.log.write(call.write, timeout_s=timeout_s)
    except LandedError as error:
        call.last_sent = write_failed(call, error)
        return call.last_sent
    call.versions = landed.versions
    call.is_landed = True
    return _LANDED


async def record(call: Call[S, R]) -> Saw:
    """Keep the answer and move the cursor, all legs in one step (SW-52, SW-62, SW-87).

    A projection that fails here changes nothing for the caller: the event is in the log, and the
    next catch-up folds it (SW-71).
    """
    assert call.write is not None
    expected = next_versions(call.attempt)
    versions = call.versions or expected
    steps = []
    for index, leg in enumerate(call.write.legs):
        answered = Answered(call.next_states[index], versions[index], call.command.fingerprint)
        call.answers[index] = answered
        steps.append(
            Advance(
                leg.key,
                call.attempt.guards[index],
                answered.state,
                answered.version,
                leg.events[-1].client_seq,
                call.views[index].newest_ms,
                (Entry(call.event_id, answered, call.policy.life_ms),),
            )
        )
    if len(steps) > 1:
        steps.sort(key=lambda step: step.key)
    try:
        await call.projection.record(steps)
    except StorageError as error:
        call.note("loop.record_failed", {"event_id": call.event_id, "detail": str(error)})
    if versions != expected:
        call.broken = Broken(
            FaultKind.REGRESSED, f"landed at versions {versions} instead of {expected}"
        )
        return Saw.ASTRAY
    return _KEPT


async def verify(call: Call[S, R]) -> Saw:
    """Ask the log who owns the sequences of the attempt that was refused (SW-86)."""
    saw = await _ask_owners(call, call.attempt, tuple(range(len(call.attempt.client_seqs))))
    if saw is Saw.UNWRITTEN:
        await _raise_floors(call)
    return saw


async def settle(call: Call[S, R]) -> Saw:
    """Find the answer of a request that is in the log, or rebuild it (SW-85).

    Each leg without an answer is caught up anew, since what was seen of it before may be older
    than the proof.
    """
    call.is_landed = True
    reader = call.reader
    try:
        for index, key in enumerate(call.command.targets):
            if call.answers[index] is not None:
                continue
            (view,) = await reader.projection.load((key,), call.event_id, reader.domain)
            if view.answered is None:
                # A leg that landed was written: "not found" is always looked into here.
                caught_up = await catch_up(reader, view, call.event_id, is_doubted=True)
                if isinstance(caught_up, Broken):
                    call.broken = caught_up
                    return Saw.BROKEN
                view = caught_up
            answered = view.answered
            if answered is None:
                version = call.landed_at.get(index, 1)
                if is_behind(view, version):
                    call.detail = f"version {version} of {key} is not readable yet"
                    return Saw.BEHIND
                answered = Answered(view.state, view.version, None, is_exact=False)
            elif is_other_wish(answered.fingerprint, call.command.fingerprint):
                return Saw.OTHER_FINGERPRINT
            call.answers[index] = answered
    except LandedError as error:
        saw = read_failed(call, error)
        return Saw.BEHIND if saw is Saw.READ_FAILED else saw
    return Saw.ANSWERED


STEPS: Final[dict[At, Callable[[Call[Any, Any]], Awaitable[Saw]]]] = {
    At.ENTER: enter,
    At.CATCH_UP: catch_up_all,
    At.JUDGE: judge,
    At.DECIDE: decide,
    At.SEND: send,
    At.RECORD: record,
    At.VERIFY: verify,
    At.SETTLE: settle,
}


def _recognise(call: Call[S, R]) -> Saw:
    """Say whether the views hold the request's answer, wholly, in part, or somebody else's wish."""
    call.answers = [view.answered for view in call.views]
    if call.answers.count(None) == len(call.answers):
        return _NO_HIT
    known = [answered for answered in call.answers if answered is not None]
    if any(is_other_wish(answered.fingerprint, call.command.fingerprint) for answered in known):
        return Saw.OTHER_FINGERPRINT
    return Saw.HIT if len(known) == len(call.answers) else Saw.PARTIAL_HIT


async def _scan(call: Call[S, R], horizon_s: float) -> Saw:
    """Look back in the log for a request whose answer has expired (SW-74 to SW-76)."""
    reader = call.reader
    views = list(call.views)
    for index, view in enumerate(views):
        if not view.version:
            continue
        found = await find_request(
            reader.page,
            view.key,
            client_id=call.identity.client_id,
            event_id=call.event_id,
            since_ms=view.newest_ms - int(horizon_s * 1000),
            domain=reader.domain,
        )
        if found is None:
            continue
        if is_behind(view, found.version):
            # It landed after this attempt's catch-up: the view is older than the answer.
            call.has_scanned = True
            call.landed_at = {**call.landed_at, index: found.version}
            is_other = is_other_wish(found.fingerprint, call.command.fingerprint)
            return Saw.OTHER_FINGERPRINT if is_other else Saw.PARTIAL_HIT
        answered = Answered(view.state, view.version, found.fingerprint, is_exact=False)
        entry = Entry(call.event_id, answered, call.policy.life_ms)
        await reader.projection.advance(
            Advance(
                view.key,
                view.version,
                view.state,
                view.version,
                view.client_seq,
                view.newest_ms,
                (entry,),
            )
        )
        views[index] = view._replace(answered=answered)
    call.has_scanned = True
    call.views = tuple(views)
    return _recognise(call)


async def _ask_owners(call: Call[S, R], attempt: Attempt, legs: tuple[int, ...]) -> Saw:
    """Ask about each leg: any of them ours proves the whole, any sibling's disproves it."""
    is_sibling = False
    try:
        for index in legs:
            owner = await who_owns(
                call.reader.page,
                call.command.targets[index],
                client_seq=attempt.client_seqs[index],
                client_id=call.identity.client_id,
                event_id=call.event_id,
                domain=call.reader.domain,
            )
            if isinstance(owner, Ours):
                call.note("loop.asked_owner", {"event_id": call.event_id, "owner": "ours"})
                call.landed_at = {**call.landed_at, index: owner.version}
                if is_other_wish(owner.fingerprint, call.command.fingerprint):
                    return Saw.OTHER_FINGERPRINT
                return Saw.OURS
            is_sibling = is_sibling or isinstance(owner, Sibling)
    except LandedError as error:
        return read_failed(call, error)
    saw = Saw.SIBLING if is_sibling else Saw.UNWRITTEN
    call.note("loop.asked_owner", {"event_id": call.event_id, "owner": saw.value})
    return saw


async def _raise_floors(call: Call[S, R]) -> None:
    """Remember, for later calls, how far the log says the sequence is taken (SW-45).

    Never used inside this call: the taken sequence may be on our own event, out of sight.
    """
    taken = call.taken
    if taken is None or taken.highest_seq is None:
        return
    for key, client_seq in zip(call.command.targets, call.attempt.client_seqs, strict=True):
        is_named = taken.key == key if taken.key is not None else True
        if is_named and taken.attempted_seq in (None, client_seq):
            try:
                await call.projection.raise_floor(key, taken.highest_seq)
            except StorageError as error:
                call.note("loop.record_failed", {"event_id": call.event_id, "detail": str(error)})


def _check_shape(decision: Accept, targets: int) -> None:
    if len(decision.events) != targets or not all(decision.events):
        raise ValueError(
            f"a decision holds events for each of the {targets} targets, at least one each; "
            f"got {[len(events) for events in decision.events]}"
        )
