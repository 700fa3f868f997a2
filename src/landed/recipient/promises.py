"""What this recipient promises, as a document for senders, and the contract a sender makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from landed.effects.contract import (
    Answers,
    Contract,
    Expiry,
    Fence,
    Key,
    Lookup,
    PayloadEquality,
    SameKey,
    Seal,
    StoredErrors,
)
from landed.effects.state import Finality
from landed.recipient.guard import KEY_LENGTH_MAX
from landed.recipient.refusals import STATUS_OF, Reason

WELL_KNOWN: Final = "/.well-known/landed-recipient"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Promises:
    """What a service promises to those who send to it. Times are seconds."""

    key_retention_s: float
    """How long a repeat is given the first answer whole; after a scrub it still does not act."""
    success: tuple[int, ...] = (200, 201)
    """Statuses that mean "done". They are answered after the commit, so success is durable."""
    refusals: tuple[int, ...] = ()
    """Statuses that prove that nothing was done and nothing will be, stored under the key."""
    has_fence: bool = True
    has_seal: bool = True
    has_lookup: bool = True
    expiry_tolerance_s: float | None = 5.0
    """How far our clock may be off; None: deadlines are not enforced."""
    timeout_s: float = 30.0


def describe(promises: Promises) -> dict[str, Any]:
    """The document of ``/.well-known/landed-recipient``."""
    return {
        "version": _VERSION,
        "key": {"header": "Idempotency-Key", "retention_s": promises.key_retention_s},
        "success": list(promises.success),
        "refusals": list(promises.refusals),
        "lookup": {"consistency": "strong"} if promises.has_lookup else None,
        "fence": {"header": "Landed-Fence", "key_first": True} if promises.has_fence else None,
        "seal": {"retention_s": None} if promises.has_seal else None,
        "expiry": (
            None
            if promises.expiry_tolerance_s is None
            else {"header": "Landed-Expires", "tolerance_s": promises.expiry_tolerance_s}
        ),
        "statuses": {reason.value: STATUS_OF[reason] for reason in Reason},
        "timeout_s": promises.timeout_s,
    }


def contract_from(document: Mapping[str, Any], *, source: str) -> Contract:
    """Make a sender's contract of such a document (rule RP-9).

    Args:
        document: what ``/.well-known/landed-recipient`` answered.
        source: where it was read, and when; it becomes part of the contract.

    Raises:
        ValueError: a document of another version, or none.
    """
    if document.get("version") != _VERSION:
        raise ValueError(f"this is no document of version {_VERSION}: {document.get('version')!r}")
    statuses = document["statuses"]
    expiry, fence, lookup = document["expiry"], document["fence"], document["lookup"]
    return Contract(
        source=source,
        key=Key(
            header=document["key"]["header"],
            same_key=SameKey.REPLAYS,
            payload_equality=PayloadEquality.REJECTED,
            retention_s=document["key"]["retention_s"],
            length_max=KEY_LENGTH_MAX,
        ),
        answers=Answers(
            success=tuple(map(str, document["success"])),
            is_success_durable=True,
            refusals=tuple(map(str, document["refusals"])),
            not_executed=(str(statuses[Reason.EXPIRED]),),
            in_flight=(str(statuses[Reason.IN_PROGRESS]),),
            key_conflict=(str(statuses[Reason.KEY_CONFLICT]),),
            gone=(str(statuses[Reason.SEALED]),),
        ),
        # An answer is stored with the change it answers; what was rolled back is not (RP-8).
        stores_errors=StoredErrors.NONE,
        lookup=None
        if lookup is None
        else Lookup(lag_s=0.0, absence=Finality.EXPIRY if expiry else Finality.NONE),
        fence=None
        if fence is None
        else Fence(
            header=fence["header"],
            rejected_by=(int(statuses[Reason.FENCED]),),
            is_key_consulted_first=bool(fence["key_first"]),
        ),
        seal=None if document["seal"] is None else Seal(),
        expiry=None
        if expiry is None
        else Expiry(header=expiry["header"], tolerance_s=expiry["tolerance_s"]),
        timeout_s=document["timeout_s"],
        series_max_s=document["key"]["retention_s"] / 2,
    )
