"""What a recipient promises, declared; and what its answers mean under that promise.

A contract is a value, versioned by its own digest and never changed. What it does not declare is
taken as the worst case (rule CT-2): unsafe same key, no look-up, absence never final, success not
durable, every error ambiguous.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from landed.effects.answer import (
    Accepted,
    Ambiguous,
    AttemptAnswer,
    Fenced,
    InFlight,
    KeyConflict,
    NotExecuted,
    Refused,
    Success,
)
from landed.effects.state import Finality
from landed.errors import ConfigurationError
from landed.fingerprint import Json, canonical_json, parse_json

PRESET: Final = "preset, not confirmed yet: "
"""How the source of a contract begins that nobody has compared with the real recipient."""


class SameKey(StrEnum):
    """What happens to a second request under one key."""

    UNSAFE = "unsafe"
    ACTS_ONCE = "acts_once_without_result"
    REPLAYS = "replays_first_result"


class PayloadEquality(StrEnum):
    NOT_CHECKED = "not_checked"
    IGNORED = "ignores_difference"
    REJECTED = "rejects_difference"


class StoredErrors(StrEnum):
    NONE = "none"
    AFTER_EXECUTION = "after_execution_began"
    ALL = "all"


class Ambiguity(StrEnum):
    """What to do when nothing can settle a doubt."""

    HUMAN = "human"
    DUPLICATES_TOLERATED = "duplicates_tolerated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """How the idempotency key travels and what it is worth. Times are seconds."""

    header: str = "Idempotency-Key"
    scope: str = "account"
    same_key: SameKey = SameKey.UNSAFE
    payload_equality: PayloadEquality = PayloadEquality.NOT_CHECKED
    retention_s: float | None = None
    """From the recipient's first sight of the key. None: not known."""
    length_max: int = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """A question by key, correlation or query."""

    lag_s: float | None = 0.0
    """How long after the last possible send an absence means nothing; 0 for a strong look-up,
    None for an eventual one whose lag nobody states."""
    absence: Finality = Finality.NONE
    """What makes "not found" final, if anything does (EXPIRY, FENCE, SEAL or QUIESCENCE)."""
    quiescence_s: float | None = None
    """For QUIESCENCE: how long after the last possible send nothing can arrive any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """A check at the recipient that refuses a version older than the newest it has taken."""

    header: str = "Landed-Fence"
    rejected_by: tuple[int, ...] = (412,)
    is_key_consulted_first: bool = False
    retention_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """A call after which an identity can never act there."""

    retention_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """A deadline that travels with the request and that the recipient enforces."""

    header: str = "Landed-Expires"
    tolerance_s: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Which answers, by HTTP status or the text code of another transport, mean what.

    An answer that stands in none of the lists is ambiguous, whatever its number (rule AT-5).
    """

    success: tuple[str, ...] = ()
    is_success_durable: bool = False
    """Success is durable on its own. If not, it only counts as accepted until looked up."""
    accepted: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    not_executed: tuple[str, ...] = ()
    in_flight: tuple[str, ...] = ()
    key_conflict: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    """The identity is sealed there (a tombstone)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """One recipient's promises. Times are seconds."""

    source: str = ""
    """Where each promise is written down: a page, a version, a person."""
    key: Key | None = None
    answers: Answers = field(default_factory=Answers)
    stores_errors: StoredErrors = StoredErrors.ALL
    lookup: Lookup | None = None
    fence: Fence | None = None
    seal: Seal | None = None
    expiry: Expiry | None = None
    evidence_events: tuple[str, ...] = ()
    """Event types from that recipient that settle an effect."""
    timeout_s: float = 30.0
    """One attempt, from the first byte to the answer."""
    concurrency: int = 8
    rate_per_s: float | None = None
    series_max_s: float = 24 * 3600.0
    """How long attempts and questions about one effect may go on before a person is asked."""
    non_acts_max: int = 20
    """Attempts proven not to have acted before the effect is parked."""
    ambiguity: Ambiguity = Ambiguity.HUMAN
    ambiguity_reason: str = ""

    def declaration(self) -> bytes:
        """The contract as canonical bytes; its digest is its version."""
        return canonical_json(_plain(asdict(self)))

    def digest(self) -> bytes:
        """SHA-256 of the declaration, 32 bytes."""
        return hashlib.sha256(self.declaration()).digest()

    @property
    def is_same_key_safe(self) -> bool:
        return self.key is not None and self.key.same_key is not SameKey.UNSAFE

    @property
    def is_answer_final_for_all(self) -> bool:
        """A definite answer speaks for every earlier attempt under the key (rule AT-7)."""
        return self.key is not None and self.key.same_key is SameKey.REPLAYS

    def meaning_of(
        self,
        code: str,
        *,
        result: bytes = b"",
        recipient_ref: str | None = None,
        retry_after_s: float | None = None,
    ) -> AttemptAnswer:
        """Say what an answer means. The law decides, never a sender (rule AT-3).

        Args:
            code: the HTTP status as text, or another transport's code, as the lists spell it.
            result: what to keep of the answer's body.
            recipient_ref: the recipient's own id of what it did.
            retry_after_s: what the answer asked for, seconds.
        """
        answers = self.answers
        if code in answers.success:
            if answers.is_success_durable:
                return Success(result, recipient_ref, code)
            return Accepted(recipient_ref, code)
        if code in answers.accepted:
            return Accepted(recipient_ref, code)
        if code in answers.refusals:
            return Refused(result, code)
        if code in answers.gone or (
            self.fence is not None and code in map(str, self.fence.rejected_by)
        ):
            return Fenced(code)
        if code in answers.in_flight:
            return InFlight(retry_after_s, code)
        if code in answers.key_conflict:
            return KeyConflict(code)
        if code in answers.not_executed:
            return NotExecuted(retry_after_s, code)
        return Ambiguous(f"the contract does not say what {code} means", code)


def contract_of(declaration: bytes) -> Contract:
    """Read a contract back from its declaration; the digest is the same.

    Raises:
        ValueError: it declares something this version does not know, so its meaning is not known.
    """
    document = parse_json(declaration)
    if not isinstance(document, dict):
        raise ValueError("a contract is declared as a JSON object")  # noqa: TRY004  # bytes are bad
    fields = dict(document)
    for name, part in _PARTS.items():
        if fields.get(name) is not None:
            fields[name] = _rebuilt(part, fields[name])
    contract: Contract = _rebuilt(Contract, fields)
    return contract


_PARTS: Final[Mapping[str, type]] = MappingProxyType(
    {
        "key": Key,
        "answers": Answers,
        "lookup": Lookup,
        "fence": Fence,
        "seal": Seal,
        "expiry": Expiry,
    }
)
_WORDS: Final[Mapping[str, type[StrEnum]]] = MappingProxyType(
    {
        "same_key": SameKey,
        "payload_equality": PayloadEquality,
        "stores_errors": StoredErrors,
        "ambiguity": Ambiguity,
        "absence": Finality,
    }
)


def _rebuilt(part: type, fields: Any) -> Any:
    values = {
        name: tuple(value)
        if isinstance(value, list)
        else _WORDS[name](value)
        if name in _WORDS
        else value
        for name, value in fields.items()
    }
    try:
        return part(**values)
    except TypeError as e:
        raise ValueError(f"this version does not know all of the contract: {e}") from None


RESEND_MARGIN_S: Final = 60.0
"""Clock difference between us and a recipient, on top of one whole attempt (rule CT-6)."""


def resend_margin_s(contract: Contract) -> float:
    """How long before the end of the recipient's memory the last resend must begin."""
    return RESEND_MARGIN_S + contract.timeout_s


def check_contract(
    contract: Contract, *, recipient: str, is_ordered: bool, is_commutative: bool
) -> tuple[str, ...]:
    """Refuse a contract that cannot be kept; return warnings about what is weak (CT-3, CT-4).

    Raises:
        ConfigurationError: with the sentence to show to a person.
    """
    for sentence in _faults(contract, is_ordered=is_ordered, is_commutative=is_commutative):
        raise ConfigurationError(f"recipient {recipient}: {sentence}")
    return tuple(_warnings(contract))


def _faults(contract: Contract, *, is_ordered: bool, is_commutative: bool) -> list[str]:
    faults = []
    if is_ordered and not is_commutative and contract.fence is None and contract.seal is None:
        faults.append(
            "an ordered effect needs a recipient that can refuse an older version (fence) or seal an "
            "identity (seal); declare one, or declare the effect commutative and say why"
        )
    can_settle = contract.lookup or contract.seal or contract.evidence_events
    states_ambiguity = contract.ambiguity is not Ambiguity.HUMAN or contract.ambiguity_reason
    if not contract.is_same_key_safe and not can_settle and not states_ambiguity:
        faults.append(
            "the same key is not safe and nothing can settle a doubt (no look-up, seal or evidence "
            "event); state what to do then: ambiguity with a reason"
        )
    if contract.ambiguity is Ambiguity.DUPLICATES_TOLERATED and not contract.ambiguity_reason:
        faults.append("duplicates are tolerated, but nobody says why: give ambiguity_reason")
    if (
        contract.answers.success
        and not contract.answers.is_success_durable
        and not contract.lookup
        and not contract.evidence_events
    ):
        faults.append(
            "success is not durable and there is neither a look-up nor an evidence event to "
            "confirm it later"
        )
    retention = contract.key.retention_s if contract.key is not None else None
    if (
        contract.is_same_key_safe
        and retention is not None
        and contract.series_max_s > retention - resend_margin_s(contract)
        and not contract.lookup
        and not contract.seal
    ):
        faults.append(
            f"attempts may go on for {contract.series_max_s:g} s, but the recipient forgets the key "
            f"after {retention:g} s (less {resend_margin_s(contract):g} s of margin) and no look-up "
            "or seal takes over; shorten series_max_s"
        )
    if (
        contract.lookup is not None
        and contract.lookup.lag_s is None
        and contract.lookup.absence is not Finality.NONE
    ):
        faults.append("an eventual look-up without a lag bound cannot make an absence final")
    if (
        contract.lookup is not None
        and contract.lookup.absence is Finality.QUIESCENCE
        and contract.lookup.quiescence_s is None
    ):
        faults.append("absence by quiescence needs quiescence_s, the bound it rests on")
    return faults


def _warnings(contract: Contract) -> list[str]:
    warnings = []
    if contract.source.startswith(PRESET):
        warnings.append(
            "its contract is a preset; compare it with the recipient and say the source"
        )
    if contract.key is not None:
        if contract.key.payload_equality is not PayloadEquality.REJECTED:
            warnings.append("a changed payload under the same key is not rejected there")
        if contract.key.retention_s is None:
            warnings.append("how long the key is remembered is not known")
    if contract.stores_errors is not StoredErrors.NONE and contract.is_same_key_safe:
        warnings.append("errors are stored there: a resend may replay one")
    if contract.lookup is not None and contract.lookup.absence is Finality.QUIESCENCE:
        warnings.append("absence rests on quiescence: shown as contractual, not proven")
    return warnings


def _plain(value: object) -> Json:
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return str(value) if isinstance(value, StrEnum) else value
    raise TypeError(f"a contract holds no {type(value).__name__}")
