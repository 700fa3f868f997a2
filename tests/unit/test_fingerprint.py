"""Two spellings of one document are one payload; two documents never are."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from landed.fingerprint import (
    EXACT_INTEGER_MAX,
    NotExactError,
    canonical_json,
    fingerprint_json,
    fingerprint_raw,
    join_parts,
    parse_json,
)

DOCUMENTS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-EXACT_INTEGER_MAX, EXACT_INTEGER_MAX)
    | st.floats(allow_nan=False, allow_infinity=False, min_value=-1e15, max_value=1e15)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
    ),
    max_leaves=20,
)


@given(DOCUMENTS)
def test_the_canonical_form_means_the_same_document_and_is_its_own_canonical_form(document) -> None:
    canonical = canonical_json(document)
    assert document == json.loads(canonical)
    assert canonical == canonical_json(parse_json(canonical))


@given(DOCUMENTS)
def test_spelling_does_not_matter(document) -> None:
    spelled = json.dumps(document, indent=2, ensure_ascii=True).encode()
    assert fingerprint_json(document) == fingerprint_json(parse_json(spelled))


@pytest.mark.parametrize(
    ("number", "printed"),
    [
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (1.5e-5, "0.000015"),
        (-0.0, "0"),
        (4.50, "4.5"),
        (1.234e-10, "1.234e-10"),
        (333333333.33333329, "333333333.3333333"),
        (1.0, "1"),
        (1e2, "100"),
    ],
)
def test_numbers_are_printed_as_ecmascript_prints_them(number: float, printed: str) -> None:
    assert printed.encode() == canonical_json(number)


def test_members_are_sorted_by_utf16_code_units() -> None:
    # The example of RFC 8785, 3.2.3: the surrogate pair sorts before U+FB33.
    assert b'{"\xe2\x82\xac":1,"\xf0\x9f\x98\x80":2,"\xef\xac\xb3":3}' == canonical_json(
        {"\u20ac": 1, "\ufb33": 3, "\U0001f600": 2}
    )


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"[" * 65 + b"]" * 65, "too_deep"),
        (b'{"a":1,"b":2,"a":1}', "repeated_member"),
        (b'[{"a":{"x":1,"x":1}}]', "repeated_member"),
        (b"9007199254740992", "number_out_of_domain"),
        (b"-9007199254740993", "number_out_of_domain"),
        (b"1e400", "number_out_of_domain"),
        (b"NaN", "number_out_of_domain"),
        (b"9" * 100_000, "number_out_of_domain"),
        (b'"\xff"', "encoding"),
        (b"{", "syntax"),
        (b"", "syntax"),
    ],
)
def test_what_canonical_json_cannot_hold_is_refused_with_its_reason(
    data: bytes, reason: str
) -> None:
    with pytest.raises(NotExactError) as caught:
        parse_json(data)
    assert reason == caught.value.reason


def test_brackets_inside_texts_are_not_nesting() -> None:
    text = '"' + "[" * 1000 + r"\"[" + '"'
    assert json.loads(text) == parse_json(text.encode())


def test_composed_and_decomposed_text_differ() -> None:
    assert fingerprint_json("\u00e9") != fingerprint_json("e\u0301")


@given(st.lists(st.binary()), st.lists(st.binary()))
def test_different_lists_of_parts_never_join_to_the_same_bytes(
    one: list[bytes], other: list[bytes]
) -> None:
    assert (one == other) == (join_parts(one) == join_parts(other))


def test_a_raw_fingerprint_is_over_the_bytes() -> None:
    assert hashlib.sha256(b" {}").digest() == fingerprint_raw(b" {}").digest
