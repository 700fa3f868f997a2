"""Rules of handling, broken: receipts, effects, attempts, doubt, and the people who are told."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final
from uuid import UUID

from sqlalchemy import func, update

from landed.deliveries import verify
from landed.deliveries.classify import IgnoredEvent, QuarantinedEvent
from landed.effects import doubt, transitions
from landed.effects.answer import Ambiguous, NotExecuted
from landed.effects.state import Finality
from landed.effects.transitions import TABLE, Happening
from landed.errors import PayloadMismatchError
from landed.fingerprint import Fingerprint, keyed_digest
from landed.intake import admission, groups
from landed.intake.groups import Groups, keep_all
from landed.records import attempts, effects, outbox, rebuild, receipts, reviews, tables
from landed.records.session import Books, transact
from landed.relay.port import NotHanded, Taken
from landed.relay.relay import Relay
from landed.sim.ablations.breaking import Ablation, Swap, Wing, ablation
from landed.sim.ablations.shop_ground import SHOP
from landed.workers import attempt, reconciler
from landed.workers.attempt import Attempts

_rule: Final = partial(ablation, Wing.HANDLING, ground=SHOP)


# --- the boundary


@_rule(
    rule="A delivery is authenticated before anything is done with it",
    source="AU-1; Start by naming the trigger",
    patch="every signature passes",
    caught_by="nothing_forged_is_taken",
)
def signature_not_compared(swap: Swap) -> None:
    swap(verify, "_hmac_is", lambda secret, signed, value: True)


@_rule(
    rule="An event is acknowledged only after the commit of its receipt",
    source="RC-2, RC-3; Acknowledge only after that commit",
    patch="the commit is left to the next delivery, the acknowledgement is not",
    caught_by="what_is_acknowledged_is_kept",
)
def acknowledged_before_commit(swap: Swap) -> None:
    keep = Groups._transact

    class _Undo(Exception):  # noqa: N818  # not an error: the way out of a transaction
        pass

    def later(self: Any, group: Any) -> Any:
        waiting = self.__dict__.setdefault("waiting", [])  # gone with the process
        if waiting:
            keep(self, waiting.pop())
        waiting.append(group)
        answers: list[Any] = []

        def judged(conn: Any) -> None:
            answers[:] = keep_all(conn, self._books, group, note=self._note)
            raise _Undo

        with suppress(_Undo):
            transact(self._engine, judged)
        return answers

    swap(Groups, "_transact", later)


@_rule(
    rule="A receipt and its outbox row are one transaction",
    source="RC-1; Make receipt and publication one local decision",
    patch="the receipt is committed, the outbox row is left for later",
    caught_by="an_acknowledged_event_is_handled_once",
)
def receipt_without_outbox(swap: Swap) -> None:
    swap(receipts, "_hand_on", lambda conn, books, fresh: None)


@_rule(
    rule="A repeated delivery is recognised by the event's identity",
    source="RC-6, RC-9; Separate delivery identity from effect identity",
    patch="every delivery counts as another event",
    caught_by="an_acknowledged_event_is_handled_once",
)
def delivery_is_the_identity(swap: Swap) -> None:
    def unique(self: Books, *parts: str) -> bytes:
        more = (str(self.new_id()),) if len(parts) == 3 else ()
        return keyed_digest(self.digest_key, *(part.encode() for part in (*parts, *more)))

    swap(Books, "identity_digest", unique)


@_rule(
    rule="The identity of an event is kept for longer than it may come again",
    source="RT-1, I-10; Retain enough evidence to recover",
    patch="what identifies an event is deleted after half a minute",
    caught_by="an_acknowledged_event_is_handled_once",
)
def identity_deleted_early(swap: Swap) -> None:
    keep = receipts.keep

    def forgetting(conn: Any, books: Any, arrivals: Any) -> Any:
        rows = tables.receipts
        old = rows.c.received_at < books.now_us() - 30_000_000
        conn.execute(update(rows).where(old).values(identity_digest=func.randomblob(32)))
        return keep(conn, books, arrivals)

    swap(groups, "keep", forgetting)


@_rule(
    rule="An event's identity is scoped to its producer",
    source="ID-2; scoped to a verified producer namespace",
    patch="the namespace is left out of the identity",
    caught_by="what_is_acknowledged_is_kept",
)
def identity_without_producer(swap: Swap) -> None:
    def unscoped(self: Books, *parts: str) -> bytes:
        scoped = parts[1:] if len(parts) == 3 else parts
        return keyed_digest(self.digest_key, *(part.encode() for part in scoped))

    swap(Books, "identity_digest", unscoped)


@_rule(
    rule="The same event with another payload is an incident, and the first one stands",
    source="RC-7; canonical payload fingerprint",
    patch="a repeat is never compared with the first",
    caught_by="a_changed_event_is_told_to_a_person",
)
def repeats_not_compared(swap: Swap) -> None:
    def seen(conn: Any, books: Any, arrival: Any, known: Any) -> receipts.Seen:
        return receipts.Seen(known.receipt_id, known.disposition)

    swap(receipts, "_repeat", seen)


@_rule(
    rule="An authentic event of an unsupported type is kept and set aside",
    source="QU-1; receipt and quarantine it",
    patch="what is not understood is acknowledged and ignored",
    caught_by="what_is_not_understood_is_set_aside",
)
def unsupported_is_ignored(swap: Swap) -> None:
    classify = swap.sound(admission, "classify")

    def ignoring(*args: Any, **rest: Any) -> Any:
        found = classify(*args, **rest)
        return IgnoredEvent("not ours") if isinstance(found, QuarantinedEvent) else found

    swap(admission, "classify", ignoring)


@_rule(
    rule="Whatever is set aside opens a review, in the same transaction",
    source="QU-1, I-3; durable alert or review outbox",
    patch="no review is opened",
    caught_by="the_ledgers_invariants_hold",
)
def nobody_is_told(swap: Swap) -> None:
    swap(reviews, "open_review", lambda conn, books, review: None)


# --- what a handler does


@_rule(
    rule="What a handler wrote and the mark that it is done commit together",
    source="HN-1, HN-2; one local decision",
    patch="the done-mark is left out of the handler's transaction",
    caught_by="the_ledgers_invariants_hold",
)
def done_mark_left_out(swap: Swap) -> None:
    swap(outbox, "mark_done", lambda conn, books, ids, **rest: set(ids))


@_rule(
    rule="An effect has one record for its meaning, whatever event asks for it",
    source="EF-1, ID-5; one unique durable effect record per semantic-effect key",
    patch="the event's receipt is made part of the effect's key",
    caught_by="an_effect_acts_at_most_once",
)
def effect_of_an_event(swap: Swap) -> None:
    request = effects.request

    def bound(conn: Any, books: Any, intent: Any, **rest: Any) -> Any:
        key = f"{intent.effect_key}/{intent.cause.id}"
        return request(conn, books, replace(intent, effect_key=key), **rest)

    swap(effects, "request", bound)


@_rule(
    rule="A changed payload under a known key is refused: it is a new decision",
    source="EF-5, EF-6; prove it fails rather than reusing a stored result",
    patch="the effect on record is handed back for any payload",
    caught_by="a_changed_wish_is_told_to_a_person",
)
def changed_wish_passes(swap: Swap) -> None:
    request = effects.request

    def lenient(conn: Any, books: Any, intent: Any, **rest: Any) -> Any:
        try:
            return request(conn, books, intent, **rest)
        except PayloadMismatchError:
            known = effects.view_by_key(conn, books, intent.recipient, intent.effect_key)
            assert known is not None
            same = Fingerprint(intent.fingerprint.form, known.fingerprint)
            return request(conn, books, replace(intent, fingerprint=same), **rest)

    swap(effects, "request", lenient)


# --- attempts


@_rule(
    rule="A timeout is unknown, never a failure",
    source="AT-5, AT-7; Treat timeouts as unknown, not failed",
    patch="an attempt without an answer counts as not executed",
    caught_by="an_effect_acts_at_most_once",
)
def timeout_is_failure(swap: Swap) -> None:
    sent = Attempts._sent

    async def certain(self: Any, *args: Any, **rest: Any) -> Any:
        answer = await sent(self, *args, **rest)
        return NotExecuted() if isinstance(answer, Ambiguous) else answer

    swap(Attempts, "_sent", certain)


@_rule(
    rule="Every attempt shows the recipient the same key",
    source="AT-9, I-6; Never solve ambiguity by issuing a fresh key",
    patch="every attempt takes a fresh idempotency key",
    caught_by="an_effect_keeps_its_key",
)
def fresh_key(swap: Swap) -> None:
    call_of = swap.sound(attempt, "call_of")

    def fresh(begun: Any, *args: Any, **rest: Any) -> Any:
        call = call_of(begun, *args, **rest)
        number = call.idempotency_key.int ^ call.attempt_no
        return replace(call, idempotency_key=UUID(int=number))

    swap(attempt, "call_of", fresh)


@_rule(
    rule="In doubt nothing is sent again unless the recipient makes repeats safe",
    source="AT-9; Retry only after that check",
    patch="every effect in doubt may be sent again",
    caught_by="an_effect_acts_at_most_once",
)
def resent_regardless(swap: Swap) -> None:
    swap(doubt, "may_resend", lambda *args, **rest: True)
    swap(reconciler, "may_resend", lambda *args, **rest: True)
    swap(attempts, "resend_limit_us", lambda *args: None)


@_rule(
    rule="'Not found' proves nothing while the request may still arrive",
    source="RN-2, CT-5; authoritative, final proof that no effect occurred",
    patch="every absence is taken for final",
    caught_by="an_effect_acts_at_most_once",
)
def absence_is_proof(swap: Swap) -> None:
    swap(reconciler, "final_absence", lambda *args, **rest: Finality.QUIESCENCE)


@_rule(
    rule="An attempt that nobody closed is unknown, and never sendable",
    source="CL-4, AT-11; the recipient receives the request before the sender sees a response",
    patch="an abandoned attempt is tried again",
    caught_by="an_effect_acts_at_most_once",
)
def abandoned_is_retried(swap: Swap) -> None:
    row = TABLE[Happening.ABANDONED].replace("unknown", "retry")
    swap(transitions, "TABLE", {**TABLE, Happening.ABANDONED: row})
    swap(doubt, "raises_doubt", lambda answer: isinstance(answer, Ambiguous))


@_rule(
    rule="An answer that comes late is recorded, and counts",
    source="SM-2, AT-6",
    patch="an answer to an attempt that was given up is dropped",
    caught_by="an_answer_is_recorded",
)
def late_answer_dropped(swap: Swap) -> None:
    def dropped(conn: Any, books: Any, one: Any) -> Any:
        found = effects.view(conn, one.effect.effect_id)
        assert found is not None
        return attempts.Ended(found.state, was_late=True)

    swap(attempts, "_late", dropped)


@_rule(
    rule="An ordered effect carries its version, and the recipient refuses an older one",
    source="OR-5, OR-10; Use a recipient-enforced monotonic fence",
    patch="the fence is not sent",
    caught_by="an_order_never_goes_back",
)
def fence_not_sent(swap: Swap) -> None:
    headers_of = swap.sound(attempt, "headers_of")

    def unfenced(*args: Any, **rest: Any) -> dict[str, str]:
        headers = dict(headers_of(*args, **rest))
        headers.pop("Landed-Fence", None)
        return headers

    swap(attempt, "headers_of", unfenced)


@_rule(
    rule="An attempt is durable before its first byte leaves",
    source="AT-1, KP-14 to KP-18; Crash … before the sender sees a response",
    patch="the attempt is written together with its answer",
    caught_by="an_effect_acts_at_most_once",
)
def sent_before_it_is_begun(swap: Swap) -> None:
    begin_all, end_all = attempts.begin_all, attempts.end_all

    def begins_nothing(conn: Any, *args: Any, **rest: Any) -> Any:
        nested = conn.begin_nested()
        begun = begin_all(conn, *args, **rest)
        nested.rollback()
        return begun

    def begins_and_ends(conn: Any, books: Any, answered: Any) -> Any:
        for one in answered:
            fresh = effects.view(conn, one.effect.effect_id)
            assert fresh is not None
            begin_all(conn, books, [(fresh, one.contract)], worker="late")
        return end_all(conn, books, answered)

    swap(attempts, "begin_all", begins_nothing)
    swap(attempts, "end_all", begins_and_ends)


# --- the relay and the schedule


@_rule(
    rule="A publication is done when the destination proves that it has it",
    source="OB-3; a committed outbox is a reliable hand-off",
    patch="a message counts as handed on whatever the destination says",
    caught_by="what_is_published_arrives",
)
def handed_on_without_proof(swap: Swap) -> None:
    write = Relay._write

    def believing(self: Any, conn: Any, sent: Any) -> None:
        taken = [
            one._replace(handed=Taken({})) if isinstance(one.handed, NotHanded) else one
            for one in sent
        ]
        write(self, conn, taken)

    swap(Relay, "_write", believing)


@_rule(
    rule="The schedule can be lost: everything due is found again",
    source="CL-8, I-9; Treat it as local scheduling only",
    patch="making it anew forgets the effects",
    caught_by="the_ledgers_invariants_hold",
)
def rebuild_forgets_effects(swap: Swap) -> None:
    swap(rebuild, "effect_work", lambda conn: [])


HANDLING: Final[tuple[Ablation, ...]] = (
    signature_not_compared,
    acknowledged_before_commit,
    receipt_without_outbox,
    delivery_is_the_identity,
    identity_deleted_early,
    identity_without_producer,
    repeats_not_compared,
    unsupported_is_ignored,
    nobody_is_told,
    done_mark_left_out,
    effect_of_an_event,
    changed_wish_passes,
    timeout_is_failure,
    fresh_key,
    resent_regardless,
    absence_is_proof,
    abandoned_is_retried,
    sent_before_it_is_begun,
    late_answer_dropped,
    fence_not_sent,
    handed_on_without_proof,
    rebuild_forgets_effects,
)
