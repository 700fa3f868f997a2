"""When an absence can be believed for good. Elapsed time alone is never a reason (rule RN-5)."""

from __future__ import annotations

from landed.effects.contract import Contract
from landed.effects.doubt import weakest
from landed.effects.state import Certainty, Finality


def final_absence(
    contract: Contract,
    *,
    asked_us: int,
    last_send_deadline_us: int | None,
    newer_confirmed_us: int | None,
) -> Finality:
    """Say why an absence found now would be final; NONE if it is not.

    Behind a fence nothing older acts once a newer version is confirmed (rule OR-8). For the rest, the
    clock starts at the last *possible* send, the deadline of the last attempt, whatever became of its
    worker (rule RN-6). An eventual look-up shows what was done only its lag later, so the lag comes on
    top of the last moment at which the effect may have acted, whatever bounds that moment.

    Args:
        contract: the one the effect is bound to.
        asked_us: the database's time when the question was asked, not when it was answered.
        last_send_deadline_us: until when the last attempt may have been sent; None: none was begun.
        newer_confirmed_us: since when a newer version of its order key is confirmed at this recipient,
            by the database's time; None: none is.
    """
    lookup = contract.lookup
    if lookup is None or lookup.lag_s is None:
        return Finality.NONE
    shown_us = asked_us - _us(lookup.lag_s)
    if (
        contract.fence is not None
        and newer_confirmed_us is not None
        and shown_us >= newer_confirmed_us
    ):
        return Finality.FENCE
    if last_send_deadline_us is None:
        return Finality.NONE
    if lookup.absence is Finality.EXPIRY and contract.expiry is not None:
        # The request carries its deadline as its expiry, and the recipient enforces it.
        if shown_us >= last_send_deadline_us + _us(contract.expiry.tolerance_s):
            return Finality.EXPIRY
    elif (
        lookup.absence is Finality.QUIESCENCE
        and lookup.quiescence_s is not None
        and shown_us >= last_send_deadline_us + _us(lookup.quiescence_s)
    ):
        return Finality.QUIESCENCE
    return Finality.NONE


def certainty_of(finality: Finality, *, so_far: Certainty | None) -> Certainty:
    """How sure a state is that rests on this absence, and on what came before (rule AT-14)."""
    rests = Certainty.CONTRACTUAL if finality is Finality.QUIESCENCE else Certainty.PROVEN
    return weakest(rests, so_far)


def _us(seconds: float) -> int:
    return int(seconds * 1_000_000)
