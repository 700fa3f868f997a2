"""Places within an order, fences at a recipient, and how long anything must be remembered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from landed.effects.horizon import (
    DAY_S,
    HouseSpans,
    ProducerSpans,
    RecipientSpans,
    effect_horizon,
    receipt_horizon,
)
from landed.effects.identity import idempotency_key
from landed.effects.order import FenceVerdict, Placed, SameVersion, compare_fence, place

H = 3600.0
HOUSE = HouseSpans(
    backlog_s=1 * H, operator_s=2 * H, look_back_s=3 * H, clock_tolerance_s=60, scrub_every_s=60
)
MARGIN = 120.0


@pytest.mark.scenario("OR-3", "OR-4", "AS-84")
@given(st.integers(1, 9), st.none() | st.integers(1, 9), st.booleans())
def test_a_version_is_taken_once_and_an_old_one_is_behind_the_head(version, head, is_taken):
    placed = place(version, head_version=head, is_version_taken=is_taken)
    if is_taken:
        assert isinstance(placed, SameVersion)
    else:
        assert placed == Placed(is_behind_head=head is not None and version <= head)


@pytest.mark.scenario("OR-5", "OG-4")
@given(st.lists(st.tuples(st.integers(1, 6), st.sampled_from("ab")), max_size=12))
def test_what_a_fence_takes_never_goes_back(requests):
    taken: tuple[int, str] | None = None
    for version, key in requests:
        verdict = compare_fence(
            version,
            key,
            taken_version=None if taken is None else taken[0],
            taken_key=None if taken is None else taken[1],
        )
        if verdict is FenceVerdict.TAKE:
            assert taken is None or version > taken[0] or (version, key) == taken
            taken = (version, key)
        else:
            assert taken is not None
            assert version < taken[0] or (version == taken[0] and key != taken[1])


@pytest.mark.scenario("AS-89")
@pytest.mark.parametrize(
    ("producer", "house", "binding", "length"),
    [
        (ProducerSpans(retry_s=10 * H, transit_s=0), HOUSE, "replayed by people", 12 * H),
        (ProducerSpans(retry_s=1 * H, transit_s=1 * H), HOUSE, "backfilled", 5 * H),
        (
            ProducerSpans(retry_s=1 * H, transit_s=1 * H, replay_s=9 * H),
            HOUSE,
            "replayed by people",
            13 * H,
        ),
        (
            ProducerSpans(retry_s=1 * H),
            HouseSpans(
                operator_s=0,
                look_back_s=0,
                audit_s=90 * DAY_S,
                clock_tolerance_s=60,
                scrub_every_s=60,
            ),
            "audit",
            90 * DAY_S,
        ),
        (
            ProducerSpans(retry_s=1 * H),
            HouseSpans(
                operator_s=0,
                look_back_s=0,
                legal_s=99 * DAY_S,
                clock_tolerance_s=60,
                scrub_every_s=60,
            ),
            "legal",
            99 * DAY_S,
        ),
        (ProducerSpans(retry_s=None), HOUSE, "redelivery", None),
        (ProducerSpans(retry_s=1, replay_s=None), HOUSE, "replayed by people", None),
        (
            ProducerSpans(retry_s=1),
            HouseSpans(look_back_s=None, clock_tolerance_s=60, scrub_every_s=60),
            "backfilled",
            None,
        ),
    ],
)
def test_the_longest_chain_binds_a_receipt_and_an_unknown_input_is_endless(
    producer, house, binding, length
):
    horizon = receipt_horizon(producer, house)
    assert horizon.binding.name == binding
    assert horizon.length_s == (None if length is None else length + MARGIN)
    assert bool(horizon.unknown_inputs) is (length is None)


@pytest.mark.scenario("AS-89")
@pytest.mark.parametrize(
    ("recipient", "producers", "binding", "length"),
    [
        (RecipientSpans(series_s=1 * H, key_retention_s=24 * H), (), "recipient memory", 26 * H),
        (
            RecipientSpans(
                series_s=1 * H,
                key_retention_s=1 * H,
                control_retention_s=48 * H,
                evidence_lag_s=1 * H,
            ),
            (),
            "recipient memory",
            51 * H,
        ),
        (RecipientSpans(series_s=1 * H, key_retention_s=None), (), "recipient memory", None),
        (
            RecipientSpans(series_s=1 * H, key_retention_s=1 * H),
            (ProducerSpans(retry_s=72 * H, transit_s=0),),
            "replayed by people",
            74 * H,
        ),
    ],
)
def test_an_effect_lives_as_long_as_its_recipients_memory_or_any_causes_receipts(
    recipient, producers, binding, length
):
    horizon = effect_horizon(recipient, producers, HOUSE)
    assert horizon.binding.name == binding
    assert horizon.length_s == (None if length is None else length + MARGIN)


SPANS = st.floats(0, 1e7)


@given(SPANS, SPANS, SPANS, SPANS, SPANS)
def test_a_horizon_is_never_below_any_single_input(retry, transit, replay, operator, look_back):
    producer = ProducerSpans(retry_s=retry, transit_s=transit, replay_s=replay)
    house = HouseSpans(operator_s=operator, look_back_s=look_back)
    horizon = receipt_horizon(producer, house)
    assert horizon.length_s is not None
    assert horizon.length_s >= max(retry, transit, replay, operator, look_back)


@pytest.mark.scenario("AS-51", "EF-6")
@given(st.text(max_size=5), st.text(max_size=5), st.text(max_size=5))
def test_a_recipients_key_depends_on_ledger_recipient_and_meaning_alone(ledger, recipient, key):
    made = idempotency_key(ledger, recipient, key)
    assert made == idempotency_key(ledger, recipient, key)
    assert made.version == 8
    assert made != idempotency_key(ledger + "x", recipient, key)
    assert made != idempotency_key(ledger, recipient + "x", key)
    assert made != idempotency_key(ledger, recipient, key + "x")


def test_parts_of_a_key_never_run_into_each_other():
    assert idempotency_key("a", "bc", "d") != idempotency_key("ab", "c", "d")


@pytest.mark.scenario("AS-51")
def test_the_derivation_is_frozen_because_recipients_remember_what_it_gave():
    assert str(idempotency_key("tests", "acme", "invoice/1")) == (
        "a1ac810a-8ce6-8486-b820-95db55e1f335"
    )
