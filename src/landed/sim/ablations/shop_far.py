"""The far side of a shop: four recipients, what they promise, and what befalls what is sent to them.

They are objects of this process, so that what they did is known whatever the ledger believes. Each
keeps exactly the promises of its contract and none beyond it: the bank forgets a key when its time is
over, look-ups take time and may be behind, and what was given up arrives later.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from landed.effects.answer import AttemptAnswer, LookupAnswer, SealAnswer
from landed.effects.contract import (
    Ambiguity,
    Answers,
    Contract,
    Expiry,
    Fence,
    Key,
    Lookup,
    PayloadEquality,
    SameKey,
    Seal,
)
from landed.effects.headers import parse_expires, parse_fence
from landed.effects.state import Finality
from landed.registry.calls import Ask, Call, SealAsk
from landed.sim.ablations.deeds import Acted, Seen, Terms
from landed.sim.ablations.shop_hours import Hours

CONTROL_S: Final = 6 * 3_600.0
"""For how long fences and tombstones are declared to be kept; here they are kept for good."""
HELD_S: Final = 60.0
"""How long a sender is paused, or an answer takes: longer than an attempt, with its grace."""
_TRANSIT_S: Final = 0.2
_SLOW: Final = 0.85
"""The share of a question's time that one slow leg of it takes."""
_SLACK_S: Final = 30.0
"""After an attempt's deadline its request may be this late and still counts as sent in time: half of
what the last resend keeps clear of the end of the bank's memory (rule CT-6)."""
_ANSWERS: Final = Answers(
    success=("200",),
    is_success_durable=True,
    not_executed=("503",),
    key_conflict=("422",),
    gone=("410",),
)


def bank_contract(terms: Terms) -> Contract:
    """Knows keys for a while, refuses older versions, and can be asked in some worlds."""
    return Contract(
        source="the bank of this world",
        key=Key(
            same_key=SameKey.REPLAYS,
            payload_equality=PayloadEquality.REJECTED,
            retention_s=terms.retention_s,
        ),
        answers=_ANSWERS,
        lookup=Lookup(lag_s=terms.lag_s) if terms.is_bank_asked else None,
        fence=Fence(is_key_consulted_first=True, retention_s=CONTROL_S),
        timeout_s=5.0,
        series_max_s=terms.retention_s / 2,
    )


def post_contract(terms: Terms) -> Contract:
    """Writes a letter for each request, and can be asked; when "not found" is final is agreed."""
    is_expiry = terms.absence is Finality.EXPIRY
    return Contract(
        source="the post of this world",
        answers=_ANSWERS,
        lookup=Lookup(
            lag_s=terms.lag_s,
            absence=terms.absence,
            quiescence_s=_quiet_s(terms) if terms.absence is Finality.QUIESCENCE else None,
        ),
        expiry=Expiry(tolerance_s=5.0 + 2 * terms.error_s) if is_expiry else None,
        timeout_s=30.0,
    )


PAGER: Final = Contract(
    source="the pager of this world",
    answers=_ANSWERS,
    ambiguity=Ambiguity.HUMAN,
    ambiguity_reason="nobody but the person paged can tell",
    timeout_s=5.0,
)
"""Pages for each request, and cannot be asked."""
OFFICE: Final = Contract(
    source="the office of this world",
    key=Key(),
    answers=_ANSWERS,
    seal=Seal(retention_s=CONTROL_S),
    timeout_s=5.0,
)
"""Enters each request into its register, compares no versions, and can seal a key for ever."""

_TOLD: Final = {
    "busy": "it does not act now, and says so",
    "drop": "the request is lost",
    "late": "no answer in time, and the request is still on its way",
    "slow": "it takes so long that the attempt is given up",
    "held": "the worker is paused before the request leaves, and another takes over",
    "lose": "the answer is lost",
}


class _Late(NamedTuple):
    """A request that is still on its way."""

    due_s: float
    deadline_s: float
    """When its attempt was over, at the latest."""
    recipient: str
    call: Call


class _Known(NamedTuple):
    """What a recipient has under a key."""

    since_s: float
    body: bytes
    result: bytes


class FarSide:
    """All recipients of one world."""

    def __init__(
        self, terms: Terms, hours: Hours, seen: Seen, take_over: Callable[[], Awaitable[None]]
    ) -> None:
        self.accidents: list[str] = []
        """What befalls the next requests and publications."""
        self.asked: list[str] = []
        """What befalls the next questions."""
        self._terms = terms
        self._hours = hours
        self._seen = seen
        self._take_over = take_over
        self._late: list[_Late] = []
        self._known: dict[tuple[str, str], _Known] = {}
        self._fences: dict[str, tuple[int, str]] = {}
        self._sealed: set[str] = set()

    # --- Requests -------------------------------------------------------------------------------

    async def send(self, recipient: str, call: Call) -> AttemptAnswer:
        """What the sender of an effect type does."""
        is_befallen = self._terms.focus in ("", recipient)
        accident = next_of(self.accidents) if is_befallen else ""
        identity = (recipient, what_of(call.body))
        self._seen.keys.setdefault(identity, set()).add(str(call.idempotency_key))
        doing = f"{recipient} is asked for {identity[1]}, attempt {call.attempt_no}"
        self._tell(f"{doing}; {_TOLD[accident]}" if accident else doing)
        deadline_s = self._hours.now_s() + call.timeout_s
        match accident:
            case "busy":
                return call.answer("503")
            case "drop":
                raise ConnectionResetError(accident)
            case "late":
                due_s = self._due_s(recipient, call, deadline_s)
                self._late.append(_Late(due_s, deadline_s, recipient, call))
                raise TimeoutError
            case "held":
                await self._take_over()
                held = _Late(0.0, deadline_s, recipient, call)
                if not self._still_arrives(held, self._hours.now_s()):
                    raise TimeoutError
            case _:
                await self._pass(_TRANSIT_S)
        code, result = self._act(recipient, call, self._hours.now_s())
        if accident == "slow":
            await self._take_over()
        if accident == "lose":
            raise ConnectionResetError(accident)
        if code == "200":
            self._seen.answered.add(identity)
        return call.answer(code, result=result)

    def arrive(self) -> None:
        """Whatever is still on its way arrives now."""
        late, self._late = self._late, []
        for one in late:
            self._arrived(one, self._hours.now_s())

    def turn(self, seconds: float) -> None:
        """Let time pass; what is due meanwhile arrives at its own moment."""
        end_s = self._hours.now_s() + seconds
        for one in sorted(self._late, key=lambda one: one.due_s):
            if one.due_s < end_s:
                self._hours.turn(max(0.0, one.due_s - self._hours.now_s()))
                self._arrive_due()
        self._hours.turn(max(0.0, end_s - self._hours.now_s()))

    async def _pass(self, seconds: float) -> None:
        """Let time pass in which others go on."""
        await asyncio.sleep(seconds)
        self._arrive_due()

    def _arrive_due(self) -> None:
        now_s = self._hours.now_s()
        due = [one for one in self._late if one.due_s <= now_s]
        self._late = [one for one in self._late if one.due_s > now_s]
        for one in due:
            self._arrived(one, one.due_s)

    def _arrived(self, one: _Late, at_s: float) -> None:
        if self._still_arrives(one, at_s):
            self._tell(f"a late request arrives at the {one.recipient}")
            self._act(one.recipient, one.call, at_s)

    def _due_s(self, recipient: str, call: Call, deadline_s: float) -> float:
        """The worst moment that the contract allows; without a bound, what the world draws."""
        if "Landed-Expires" in call.headers:
            now_s = self._hours.now_s()
            expires_ms = parse_expires(call.headers["Landed-Expires"]) / 1000
            return now_s + (expires_ms - self._hours.wall_ms_at(now_s)) / 1000
        if recipient == "post" and self._terms.absence is Finality.QUIESCENCE:
            return deadline_s + self._terms.bound_s
        return deadline_s + self._terms.late_s

    def _still_arrives(self, one: _Late, at_s: float) -> bool:
        """Where the promise ends: a request that outlives what its contract reckons with.

        Nobody can promise anything of a request that comes once the recipient has forgotten its key,
        or after the bound by which all was said to have arrived. It counts as lost here.
        """
        key = str(one.call.idempotency_key)
        if one.recipient == "bank" and at_s > one.deadline_s + _SLACK_S:
            known = self._known.get(("bank", key))
            is_over = known is not None and not self._remembers(known, at_s)
        else:
            is_bounded = self._terms.absence is Finality.QUIESCENCE
            bound_s = one.deadline_s + self._terms.bound_s
            is_over = one.recipient == "post" and is_bounded and at_s > bound_s
        if is_over:
            self._tell(f"a request to the {one.recipient} is too late to count, and is dropped")
        return not is_over

    # --- What they do ---------------------------------------------------------------------------

    def _act(self, recipient: str, call: Call, at_s: float) -> tuple[str, bytes]:
        """Act as the recipient's contract says, and in no other case; at a moment that may be over."""
        key, what = str(call.idempotency_key), what_of(call.body)
        known = self._known.get((recipient, key))
        if recipient == "bank" and known is not None and self._remembers(known, at_s):
            return ("200", known.result) if known.body == call.body else ("422", b"")
        if recipient == "office" and key in self._sealed:
            self._tell(f"  the office refuses {what}: it is sealed")
            return "410", b""
        if "Landed-Expires" in call.headers:
            expires_ms = parse_expires(call.headers["Landed-Expires"]) / 1000
            if self._hours.wall_ms_at(at_s) > expires_ms:
                self._tell(f"  the {recipient} refuses {what}: it came after its deadline")
                return "400", b""
        if "Landed-Fence" in call.headers:
            fence = parse_fence(call.headers["Landed-Fence"])
            version, holder = self._fences.get(fence.key, (0, ""))
            if fence.version < version or (fence.version == version and holder != key):
                self._tell(f"  the {recipient} refuses version {fence.version}: it has {version}")
                return "412", b""
            self._fences[fence.key] = (fence.version, key)
        self._tell(f"  the {recipient} acts: {what}")
        self._seen.acted.append(
            Acted(recipient, what, call.version or 0, key, call.attempt_no, at_s)
        )
        self._known[recipient, key] = _Known(at_s, call.body, f"{what} done".encode())
        return "200", self._known[recipient, key].result

    def _remembers(self, known: _Known, at_s: float) -> bool:
        return at_s < known.since_s + self._terms.retention_s

    # --- Questions ------------------------------------------------------------------------------

    async def look(self, recipient: str, ask: Ask) -> LookupAnswer:
        """What the look-up of an effect type does: the question travels, then the answer does."""
        accident = next_of(self.asked)
        slow_s = _SLOW * ask.timeout_s
        await self._pass(slow_s if accident == "far" else _TRANSIT_S)
        key = str(ask.idempotency_key)
        shown_s = self._hours.now_s() - self._terms.lag_s
        is_there = any(
            (one.recipient, one.key) == (recipient, key) and one.at_s <= shown_s
            for one in self._seen.acted
        )
        self._tell(f"the {recipient} is asked, and {'has' if is_there else 'does not have'} it")
        await self._pass(slow_s if accident == "slow" else _TRANSIT_S)
        if accident == "lose":
            raise ConnectionResetError(accident)
        return ask.present(self._known[recipient, key].result) if is_there else ask.absent()

    async def seal(self, ask: SealAsk) -> SealAnswer:
        """What the office does when it is asked for a tombstone."""
        accident = next_of(self.asked)
        await self._pass(_SLOW * ask.timeout_s if accident == "far" else _TRANSIT_S)
        key = str(ask.idempotency_key)
        known = self._known.get(("office", key))
        self._tell(f"the office {'acted already' if known else 'seals it'}")
        if known is None:
            self._sealed.add(key)
        await self._pass(_SLOW * ask.timeout_s if accident == "slow" else _TRANSIT_S)
        if accident == "lose":
            raise ConnectionResetError(accident)
        return ask.sealed() if known is None else ask.already_acted(known.result)

    def _tell(self, line: str) -> None:
        self._seen.told.append(line)


def next_of(accidents: list[str]) -> str:
    """Take what befalls the next one; nothing, once they are used up."""
    return accidents.pop(0) if accidents else ""


def what_of(body: bytes) -> str:
    """The business identity of a request."""
    document = json.loads(body)
    return f"terms {document['version']}" if "version" in document else f"invoice {document['id']}"


def _quiet_s(terms: Terms) -> float:
    """The bound that is declared: what is true, and how far two readings of the clock may differ."""
    return terms.bound_s + 2 * terms.error_s
