"""Contracts: what cannot be kept is refused, what is not declared is the worst, and values return."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from landed.effects import answer
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
    StoredErrors,
    check_contract,
    contract_of,
)
from landed.effects.presets import PRESETS
from landed.effects.state import Finality
from landed.errors import ConfigurationError
from landed.recipient import Promises, contract_from, describe

SAFE = Contract(key=Key(same_key=SameKey.REPLAYS, retention_s=7 * 86_400.0))
FINE = Contract(
    key=Key(
        same_key=SameKey.REPLAYS,
        payload_equality=PayloadEquality.REJECTED,
        retention_s=7 * 86_400.0,
    ),
    answers=Answers(success=("200",), is_success_durable=True),
    stores_errors=StoredErrors.NONE,
)


def check(contract, *, is_ordered=False, is_commutative=False):
    return check_contract(
        contract, recipient="acme", is_ordered=is_ordered, is_commutative=is_commutative
    )


def test_a_contract_without_weakness_has_no_warning():
    assert check(FINE) == ()


@pytest.mark.scenario("AS-83", "CT-3")
@pytest.mark.parametrize(
    ("contract", "ordered", "sentence"),
    [
        (FINE, True, "refuse an older version"),
        (Contract(), False, "the same key is not safe"),
        (replace(FINE, ambiguity=Ambiguity.DUPLICATES_TOLERATED), False, "nobody says why"),
        (replace(FINE, answers=Answers(success=("200",))), False, "success is not durable"),
        (replace(FINE, series_max_s=8 * 86_400.0), False, "forgets the key"),
        (
            replace(FINE, lookup=Lookup(lag_s=None, absence=Finality.EXPIRY)),
            False,
            "without a lag bound",
        ),
        (replace(FINE, lookup=Lookup(absence=Finality.QUIESCENCE)), False, "quiescence_s"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_a_sentence(contract, ordered, sentence):
    with pytest.raises(ConfigurationError, match=sentence) as raised:
        check(contract, is_ordered=ordered)
    assert str(raised.value).startswith("recipient acme: ")


@pytest.mark.scenario("CT-3")
@pytest.mark.parametrize(
    ("contract", "flags"),
    [
        (replace(FINE, fence=Fence()), {"is_ordered": True}),
        (replace(FINE, seal=Seal()), {"is_ordered": True}),
        (FINE, {"is_ordered": True, "is_commutative": True}),
        (Contract(lookup=Lookup()), {}),
        (Contract(evidence_events=("paid",)), {}),
        (Contract(ambiguity_reason="a person looks"), {}),
        (replace(FINE, series_max_s=8 * 86_400.0, lookup=Lookup()), {}),
    ],
)
def test_what_can_be_kept_passes(contract, flags):
    check(contract, **flags)


@pytest.mark.scenario("CT-4")
def test_weak_promises_are_warned_of():
    warnings = " ".join(
        check(
            replace(
                SAFE,
                key=Key(same_key=SameKey.REPLAYS),
                lookup=Lookup(absence=Finality.QUIESCENCE, quiescence_s=5.0),
            )
        )
    )
    for word in ("payload", "not known", "errors are stored", "contractual"):
        assert word in warnings


@pytest.mark.scenario("CT-2", "AS-59")
@given(st.text(max_size=5))
def test_what_a_contract_does_not_list_is_ambiguous_whatever_its_number(code):
    assert isinstance(Contract().meaning_of(code), answer.Ambiguous)


@pytest.mark.scenario("CT-2")
@pytest.mark.parametrize("code", ["200", "404", "429", "500", "503", "504"])
def test_no_status_is_safe_by_default(code):
    assert isinstance(Contract().meaning_of(code), answer.Ambiguous)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("200", answer.Success),
        ("202", answer.Accepted),
        ("402", answer.Refused),
        ("410", answer.Fenced),
        ("412", answer.Fenced),
        ("429", answer.NotExecuted),
        ("409", answer.InFlight),
        ("422", answer.KeyConflict),
        ("418", answer.Ambiguous),
    ],
)
def test_what_a_contract_lists_means_what_it_says(code, kind):
    contract = Contract(
        answers=Answers(
            success=("200",),
            is_success_durable=True,
            accepted=("202",),
            refusals=("402",),
            not_executed=("429",),
            in_flight=("409",),
            key_conflict=("422",),
            gone=("410",),
        ),
        fence=Fence(),
    )
    assert type(contract.meaning_of(code)) is kind
    weak = replace(contract, answers=replace(contract.answers, is_success_durable=False))
    if kind is answer.Success:
        assert type(weak.meaning_of(code)) is answer.Accepted


CODES = st.lists(st.sampled_from(["200", "409", "x"]), max_size=2).map(tuple)
SECONDS = st.sampled_from([0.0, 1.5, 86_400.0])
CONTRACTS = st.builds(
    Contract,
    key=st.none()
    | st.builds(Key, same_key=st.sampled_from(SameKey), retention_s=st.none() | SECONDS),
    answers=st.builds(Answers, success=CODES, refusals=CODES, is_success_durable=st.booleans()),
    stores_errors=st.sampled_from(StoredErrors),
    lookup=st.none()
    | st.builds(Lookup, lag_s=st.none() | SECONDS, absence=st.sampled_from(Finality)),
    fence=st.none() | st.builds(Fence, rejected_by=st.just((412, 409))),
    seal=st.none() | st.builds(Seal, retention_s=st.none() | SECONDS),
    expiry=st.none() | st.builds(Expiry),
    evidence_events=CODES,
    ambiguity=st.sampled_from(Ambiguity),
    source=st.text(max_size=8).filter(str.isprintable),
)


@pytest.mark.scenario("CT-5")
@given(CONTRACTS)
def test_a_contract_comes_back_from_its_declaration_as_it_was(contract):
    again = contract_of(contract.declaration())
    assert again == contract
    assert again.digest() == contract.digest()


def test_a_contract_of_another_version_is_not_guessed_at():
    with pytest.raises(ValueError, match="does not know"):
        contract_of(FINE.declaration().replace(b'"source"', b'"sauce"'))


@pytest.mark.scenario("CT-8")
@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_can_be_declared_and_says_that_nobody_has_confirmed_it(name):
    preset = PRESETS[name]
    is_ordered = preset.fence is not None or preset.seal is not None
    told = check_contract(preset, recipient=name, is_ordered=is_ordered, is_commutative=False)
    assert any("is a preset" in warning for warning in told)
    confirmed = replace(preset, source="its own documents")
    told = check_contract(confirmed, recipient=name, is_ordered=is_ordered, is_commutative=False)
    assert not any("is a preset" in warning for warning in told)
    assert confirmed.digest() != preset.digest()


@pytest.mark.scenario("CT-8", "RP-9")
def test_the_preset_of_our_own_recipients_is_what_their_document_says():
    document = describe(Promises(key_retention_s=30 * 86_400.0))
    preset = PRESETS["landed_recipient"]
    assert contract_from(document, source=preset.source) == preset
