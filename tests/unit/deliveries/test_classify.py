"""What becomes of an authentic event, and which payloads count as one."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from landed.deliveries.classify import (
    AcceptedEvent,
    IgnoredEvent,
    QuarantinedEvent,
    QuarantineReason,
    classify,
    fingerprint_event,
    is_beyond_floor,
)
from landed.deliveries.event import Event, IdentityRule
from landed.deliveries.producer import EventType, Invalid, Producer
from landed.deliveries.verify import HmacScheme


def needs_cents(document):
    if "cents" not in document:
        raise Invalid("cents is missing")
    return document["cents"]


SHOP = Producer(
    namespace="shop",
    authentication=HmacScheme(keys=(), header="x"),
    types={
        "paid": EventType(
            name="paid",
            versions={None: needs_cents, "2": None},
            when=lambda data: data != 0,
            when_reason="nothing to pay",
        ),
        "blob": EventType(name="blob", is_opaque=True),
    },
    ignore=frozenset({"viewed"}),
)


def event(data=b'{"cents":5}', type="paid", **more):
    return Event(
        source="s", id="e", identity_rule=IdentityRule.CLOUDEVENTS, type=type, data=data, **more
    )


def test_what_is_declared_is_accepted_with_its_data():
    assert classify(event(), SHOP) == AcceptedEvent(5)
    assert classify(event(b"\xff\x00", "blob"), SHOP) == AcceptedEvent(b"\xff\x00")


def test_what_is_ignored_says_why():
    assert classify(event(type="viewed"), SHOP) == IgnoredEvent("its type is ignored")
    assert classify(event(b'{"cents":0}'), SHOP) == IgnoredEvent("nothing to pay")


@pytest.mark.scenario("AS-07", "AS-08", "BC-20")
@pytest.mark.parametrize(
    ("given_event", "reason"),
    [
        (event(type="acme.unknown.v1"), QuarantineReason.UNSUPPORTED_TYPE),
        (event(schema_version="9"), QuarantineReason.UNSUPPORTED_SCHEMA_VERSION),
        (event(b"{}"), QuarantineReason.SCHEMA_INVALID),
        (event(b"{"), QuarantineReason.SCHEMA_INVALID),
        (event(b"[" * 99 + b"]" * 99), QuarantineReason.SCHEMA_INVALID),
        (event(b'{"cents":1,"cents":2}'), QuarantineReason.AMBIGUOUS_JSON),
        (event(b'{"cents":9007199254740993}'), QuarantineReason.NUMBER_OUT_OF_DOMAIN),
        (event(b'"\xff"'), QuarantineReason.PAYLOAD_ENCODING),
        (event(b"5"), QuarantineReason.SCHEMA_INVALID),
    ],
)
def test_each_way_of_not_being_processable_has_its_reason(given_event, reason):
    disposition = classify(given_event, SHOP)
    assert isinstance(disposition, QuarantinedEvent)
    assert disposition.reason is reason


def test_a_business_condition_that_fails_sets_the_event_aside():
    broken = replace(SHOP.types["paid"], when=lambda data: 1 / 0)
    shop = replace(SHOP, types={"paid": broken})
    assert classify(event(), shop).reason is QuarantineReason.POLICY_HOLD


@given(st.binary(max_size=60), st.sampled_from(["paid", "blob", "viewed", "other"]))
def test_every_payload_has_a_disposition_and_a_fingerprint(data, type):
    assert isinstance(
        classify(event(data, type), SHOP), AcceptedEvent | IgnoredEvent | QuarantinedEvent
    )
    assert len(fingerprint_event(event(data, type)).digest) == 32


@pytest.mark.scenario("AS-12")
def test_members_left_out_do_not_count_and_the_form_says_so():
    out = (("meta", "attempt"),)
    one = event(b'{"meta":{"attempt":1,"x":2},"a":1}')
    two = event(b'{"a":1,"meta":{"x":2,"attempt":7}}')
    other = event(b'{"a":2,"meta":{"x":2,"attempt":7}}')
    assert fingerprint_event(one, out) == fingerprint_event(two, out)
    assert fingerprint_event(one, out) != fingerprint_event(other, out)
    assert fingerprint_event(one) != fingerprint_event(two)
    assert fingerprint_event(one, out).form != fingerprint_event(one).form


@pytest.mark.scenario("AS-08")
def test_a_document_that_means_two_things_is_taken_byte_for_byte():
    assert fingerprint_event(event(b'{"a":1,"a":2}')).form == "raw-1"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(JSON)
def test_spelling_never_changes_a_fingerprint(document):
    plain = json.dumps(document).encode()
    spread = json.dumps(document, indent=2, ensure_ascii=False, sort_keys=True)
    try:
        other = spread.encode()
    except UnicodeEncodeError:
        return  # a lone surrogate has no other spelling
    assert fingerprint_event(event(plain)) == fingerprint_event(event(other))


@pytest.mark.scenario("AS-88")
@pytest.mark.parametrize(
    ("declared", "known", "occurred", "is_beyond"),
    [
        (None, None, 1, False),
        (10, None, 9, True),
        (10, None, 10, False),
        (5, 10, 7, True),
        (10, 5, 7, True),
        (10, 10, None, False),
    ],
)
def test_the_higher_floor_holds(declared, known, occurred, is_beyond):
    shop = replace(SHOP, replay_floor_us=declared)
    assert is_beyond_floor(event(occurred_us=occurred), shop, floor_us=known) is is_beyond
