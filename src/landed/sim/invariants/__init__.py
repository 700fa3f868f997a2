"""What must hold at the end of every world: small modules, one question each.

Each takes the history of a world and yields a sentence for whatever is wrong. They look at the
batches of the log, never at what the replicas believe; where a promise has a stated limit (the
window), the invariant states it too. Nothing in them knows of the simulation: the tests of real fleets
hand them what real processes were asked and told.
"""

from collections.abc import Callable, Iterator

from landed.sim.history import History
from landed.sim.invariants.answered import every_success_is_in_the_log
from landed.sim.invariants.balances import balances_fold_from_the_log
from landed.sim.invariants.calm import every_request_ends_in_calm
from landed.sim.invariants.contiguous import versions_have_no_gap
from landed.sim.invariants.denied import (
    a_call_told_not_applied_did_not_land,
    what_is_not_applied_has_no_event,
)
from landed.sim.invariants.feed import the_feed_agrees_with_the_log
from landed.sim.invariants.filed import the_file_holds_what_was_told
from landed.sim.invariants.once import a_request_lands_at_most_once
from landed.sim.invariants.original import a_retry_gets_the_original_answer
from landed.sim.invariants.recent import a_look_sees_what_was_answered_before
from landed.sim.invariants.reused import key_reused_is_said_of_reused_keys
from landed.sim.invariants.sent import a_write_is_sent_at_most_once
from landed.sim.invariants.shipped import an_unguarded_writer_lands_once
from landed.sim.invariants.spoken import (
    a_command_lands_whole,
    every_success_is_at_its_version,
    the_subject_is_sound,
)
from landed.sim.invariants.taken import taken_is_said_behind_the_guard
from landed.sim.invariants.tended import what_was_told_of_beds_is_kept
from landed.sim.invariants.whole import a_transfer_lands_whole

Invariant = Callable[[History], Iterator[str]]

INVARIANTS: tuple[Invariant, ...] = (
    versions_have_no_gap,
    a_request_lands_at_most_once,
    a_transfer_lands_whole,
    every_success_is_in_the_log,
    a_retry_gets_the_original_answer,
    what_is_not_applied_has_no_event,
    a_call_told_not_applied_did_not_land,
    key_reused_is_said_of_reused_keys,
    balances_fold_from_the_log,
    a_look_sees_what_was_answered_before,
    the_feed_agrees_with_the_log,
    the_file_holds_what_was_told,
    a_write_is_sent_at_most_once,
    taken_is_said_behind_the_guard,
    an_unguarded_writer_lands_once,
    what_was_told_of_beds_is_kept,
    every_request_ends_in_calm,
)
"""In the order in which a reader wants to hear of them: the first cause first."""

OF_A_SUBJECT: tuple[Invariant, ...] = (
    versions_have_no_gap,
    a_request_lands_at_most_once,
    a_command_lands_whole,
    every_success_is_at_its_version,
    a_retry_gets_the_original_answer,
    what_is_not_applied_has_no_event,
    a_call_told_not_applied_did_not_land,
    key_reused_is_said_of_reused_keys,
    a_look_sees_what_was_answered_before,
    the_feed_agrees_with_the_log,
    the_file_holds_what_was_told,
    a_write_is_sent_at_most_once,
    taken_is_said_behind_the_guard,
    every_request_ends_in_calm,
    the_subject_is_sound,
)
"""The same for a user's own commands, whose events only he understands."""

__all__ = ["INVARIANTS", "OF_A_SUBJECT", "Invariant"]
