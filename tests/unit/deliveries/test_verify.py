"""Signatures: over the raw bytes, by any key that is valid, within bounds, and never an exception."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from landed.deliveries.event import Rejected, Verified
from landed.deliveries.verify import (
    TOKENS_MAX,
    HmacScheme,
    SigningKey,
    StandardWebhooks,
    verify,
)

NOW = 1_767_225_610_000_000
BODY = bytes.fromhex(
    "7b22616d6f756e745f63656e7473223a20353030302c20226e6f7465223a20226361665c7530306539205c2f206f"
    "6b222c20227a223a20312c202261223a20312e307d0a"
)
ONE = SigningKey(id="one", secret=b"landed-test-secret-1")
TWO = SigningKey(id="two", secret=b"landed-test-secret-2")
HEX_1 = "58276c529fec1453ede399036e93ea7c1da91ab0efb68773c9232b712a9d1883"
HEX_2 = "adab36981d1a0c2935319ac3e3b41c1700afe3c145fe5659586c8fbd80ca23ce"
B64_1 = "Eiw9x/+y0pymNF1ENLl6qKlbJkXQCnKf97/ma2jhqZA="
B64_2 = "Bdji3tuO+Dj/8jjhl+l3inkavgysbpC02BphrJ3VRoQ="
VENDOR = HmacScheme(keys=(ONE,), header="X-Signature")
STANDARD = StandardWebhooks(keys=(ONE,))


def vendor(signature, body=BODY, scheme=VENDOR, **more):
    headers = {"x-signature": [signature]}
    return verify(scheme, namespace="shop", headers=headers, body=body, now_us=NOW, **more)


def standard(signature, body=BODY, scheme=STANDARD, id="msg_0001", time="1767225600", **more):
    headers = {
        "webhook-id": [id],
        "webhook-timestamp": [time],
        "webhook-signature": [signature],
    }
    return verify(scheme, namespace="shop", headers=headers, body=body, now_us=NOW, **more)


def key_of(found):
    return found.key_id if isinstance(found, Verified) else found.reason


@pytest.mark.scenario("BC-19")
def test_the_case_vectors_verify_over_the_raw_bytes_and_over_nothing_else():
    assert len(BODY) == 68
    assert key_of(vendor(f"t=1767225600,v1={HEX_1}")) == "one"
    assert key_of(standard(f"v1,{B64_1}")) == "one"
    compact = json.dumps(json.loads(BODY), separators=(",", ":")).encode()
    for body in (BODY[:-1], compact):
        assert key_of(vendor(f"t=1767225600,v1={HEX_1}", body)) == "unauthenticated"
        assert key_of(standard(f"v1,{B64_1}", body)) == "unauthenticated"


@pytest.mark.scenario("BC-19", "AS-04")
@pytest.mark.parametrize("keys", [(ONE,), (TWO,), (ONE, TWO), (TWO, ONE)])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_during_rotation_any_signature_by_a_known_key_counts(keys, order):
    hexes, texts = [HEX_2, HEX_1], [B64_2, B64_1]
    header = "t=1767225600," + ",".join(f"v1={hexes[n]}" for n in order)
    found = vendor(header, scheme=replace(VENDOR, keys=keys))
    assert isinstance(found, Verified)
    assert found.key_id in {key.id for key in keys}
    tokens = " ".join(f"v1,{texts[n]}" for n in order)
    found = standard("v9,junk nocomma " + tokens, scheme=StandardWebhooks(keys=keys))
    assert isinstance(found, Verified)
    assert found.key_id in {key.id for key in keys}


@pytest.mark.scenario("AS-03", "AU-5")
def test_a_key_outside_its_time_signs_nothing():
    for late in (
        replace(ONE, not_after_us=NOW),
        replace(ONE, not_before_us=NOW + 1),
    ):
        assert key_of(standard(f"v1,{B64_1}", scheme=StandardWebhooks(keys=(late,)))) == (
            "unauthenticated"
        )


@pytest.mark.scenario("AS-05", "AS-104")
def test_an_old_attempt_is_refused_unless_a_run_approves_it_and_a_wrong_signature_never_passes():
    old = str(1767225610 - 360)
    signed = f"msg_0001.{old}.".encode() + BODY
    value = base64.b64encode(hmac.digest(ONE.secret, signed, hashlib.sha256)).decode()
    assert standard(f"v1,{value}", time=old) == Rejected(
        status=401, reason="not_fresh", detail="the signed time is too far off"
    )
    approved = standard(f"v1,{value}", time=old, is_stale_approved=True)
    assert approved.result == "verified-stale-approved"
    assert key_of(standard(f"v1,{B64_1}", time=old, is_stale_approved=True)) == "unauthenticated"


@pytest.mark.scenario("AS-06")
def test_no_more_than_the_bound_of_tokens_is_tried():
    junk = " ".join(["v1," + base64.b64encode(b"x" * 32).decode()] * (TOKENS_MAX - 1))
    assert key_of(standard(f"{junk} v1,{B64_1}")) == "one"
    assert key_of(standard(f"{junk} v1,eA== v1,{B64_1}")) == "unauthenticated"
    assert key_of(standard("v1,x " * 10_000)) == "unauthenticated"


@given(st.text(max_size=200), st.text(max_size=40), st.text(max_size=20), st.binary(max_size=80))
def test_nothing_that_is_sent_verifies_by_chance_or_raises(signature, id, time, body):
    assert isinstance(standard(signature, body, id=id, time=time), Rejected)
    assert isinstance(vendor(signature, body), Rejected)


@given(st.binary(max_size=80), st.integers(0, 79), st.integers(1, 255))
def test_one_changed_byte_breaks_the_signature(body, at, flip):
    signed = b"1767225600." + body
    value = hmac.digest(ONE.secret, signed, hashlib.sha256).hex()
    assert key_of(vendor(f"t=1767225600,v1={value}", body)) == "one"
    if at < len(body):
        changed = body[:at] + bytes([body[at] ^ flip]) + body[at + 1 :]
        assert key_of(vendor(f"t=1767225600,v1={value}", changed)) == "unauthenticated"


def test_a_key_never_shows_its_secret():
    assert "landed-test-secret" not in repr(ONE) + repr(STANDARD) + repr(VENDOR)
