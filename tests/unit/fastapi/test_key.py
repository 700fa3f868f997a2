"""A key is read the same on every replica, and a bad one is never replaced."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from landed.commands import ServiceIdentity
from landed.fastapi.key import BadKeyError, RequestKey, key_text, read_key

CLIENT = "0d9e9cd1-0000-4000-8000-000000000001"
IDENTITY = ServiceIdentity.from_config(CLIENT)
SOME_UUID = "8e03978e-40d5-43e8-bc93-6894a57f9324"


def read(*lines: str, scope: str = "", identity: ServiceIdentity = IDENTITY) -> RequestKey:
    return read_key(lines, identity, scope=scope, mint=uuid4)


@pytest.mark.scenario("SWA-79")
def test_quoted_and_bare_forms_of_one_text_are_one_key():
    assert read('"abc"').event_id == read("abc").event_id
    assert read('"abc";owner=me; n=1;q').event_id == read("abc").event_id
    assert read(f'"{SOME_UUID}"').event_id == UUID(SOME_UUID)


@pytest.mark.scenario("SWA-79")
def test_a_uuid_in_upper_and_lower_case_is_one_key_with_or_without_a_scope():
    for scope in ("", "alice"):
        upper = read(SOME_UUID.upper(), scope=scope)
        assert upper.event_id == read(SOME_UUID, scope=scope).event_id


def test_only_the_dashed_form_is_a_uuid():
    assert read(SOME_UUID.replace("-", "")).event_id != UUID(SOME_UUID)
    assert read(f"urn:uuid:{SOME_UUID}").event_id != UUID(SOME_UUID)


@pytest.mark.scenario("SWA-79", "BC-15")
@pytest.mark.parametrize(
    "value",
    [
        "",
        "   ",
        '""',
        '"   "',
        '"abc',
        'abc"',
        '"a" "b"',
        '"a", "b"',
        "a,b",
        "a b",
        "käse",
        '"käse"',
        "tab\there",
        '"\x07"',
        '"bad \\escape"',
        '"abc" ; owner=me',
        '"abc";',
        "x" * 256,
        '"' + "x" * 256 + '"',
        "x" * 300,
        "00000000-0000-0000-0000-000000000000",
        '"00000000-0000-0000-0000-000000000000"',
        "{abc}",
        "1;q=2",
    ],
)
def test_what_is_no_key_is_refused_and_never_minted_anew(value):
    with pytest.raises(BadKeyError):
        read(value)


def test_two_lines_are_refused_even_if_they_agree():
    with pytest.raises(BadKeyError, match="more than one"):
        read("abc", "abc")


def test_the_longest_key_is_taken():
    assert read("x" * 255).text == "x" * 255
    assert read('"' + "\\\\" * 255 + '"').text == "\\" * 255


@pytest.mark.scenario("BC-15")
def test_requests_without_a_key_never_share_one():
    first, second = read(), read()
    assert first.is_minted
    assert first.event_id != second.event_id
    assert read(first.echo).event_id == first.event_id


@pytest.mark.scenario("BC-15")
def test_callers_of_different_scopes_and_services_never_share_an_event_id():
    other = ServiceIdentity.from_config("0d9e9cd1-0000-4000-8000-000000000002")
    ids = {read("abc", scope=scope).event_id for scope in ("", "alice", "bob")}
    ids |= {read(SOME_UUID, scope=scope).event_id for scope in ("", "alice", "bob")}
    ids.add(read("abc", identity=other).event_id)
    # A scope must not be able to run into the text behind it.
    ids.add(read("bc", scope="a").event_id)
    ids.add(read("c", scope="ab").event_id)
    assert len(ids) == 9


def test_a_minted_key_sent_back_replays_within_its_scope():
    minted = read(scope="alice")
    assert read(minted.echo, scope="alice").event_id == minted.event_id
    assert read(minted.echo, scope="bob").event_id != minted.event_id


def test_absence_is_refused_where_a_key_is_required():
    with pytest.raises(BadKeyError):
        read_key((), IDENTITY, scope="", mint=uuid4, is_required=True)


@given(st.text(alphabet=st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=255))
def test_every_printable_text_can_be_said_quoted(text):
    quoted = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if not text.strip() or text == str(UUID(int=0)):
        with pytest.raises(BadKeyError):
            key_text(quoted)
    else:
        assert key_text(quoted) == text


@given(st.text(max_size=300))
def test_any_header_value_is_a_key_or_refused_and_nothing_else(value):
    try:
        text = key_text(value)
    except BadKeyError:
        return
    assert 1 <= len(text) <= 255
    assert text.isascii()
    assert text.isprintable()
