"""CloudEvents over HTTP: three modes, one meaning, and 400 for whatever is none."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from landed.deliveries.classify import fingerprint_event
from landed.deliveries.cloudevents import BATCH, STRUCTURED, is_cloudevent, read
from landed.deliveries.event import Event, Rejected

ATTRIBUTES = {"id": "e1", "source": "/shop", "type": "invoice.finalized", "specversion": "1.0"}


def binary(body=b'{"a":1}', content_type="application/json", **changes):
    headers = {f"ce-{name}": [value] for name, value in {**ATTRIBUTES, **changes}.items()}
    if content_type is not None:
        headers["content-type"] = [content_type]
    return read(headers, body)


def structured(document, content_type=STRUCTURED):
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return read({"content-type": [content_type]}, body)


def refused(result):
    return isinstance(result, Rejected) and result.status == 400


@pytest.mark.scenario("BC-20", "AS-19")
def test_all_modes_of_one_event_have_one_identity_and_one_fingerprint():
    (a,) = binary(b'{"a": 1}')
    (b,) = structured({**ATTRIBUTES, "data": {"a": 1.0}})
    (c,) = structured(
        {**ATTRIBUTES, "data_base64": base64.b64encode(b'{"a":1}').decode()},
        f"{STRUCTURED}; charset=utf-8",
    )
    (d,) = structured([{**ATTRIBUTES, "data": {"a": 1}}], BATCH)
    assert len({(e.source, e.id, e.type) for e in (a, b, c, d)}) == 1
    assert len({fingerprint_event(e) for e in (a, b, c, d)}) == 1


@pytest.mark.scenario("BC-20")
def test_empty_bodies_and_missing_content_types_are_kept_as_bytes():
    assert binary(b"")[0].data == b""
    (event,) = binary(b"hello", content_type=None)
    assert (event.data, event.content_type) == (b"hello", None)


@pytest.mark.scenario("BC-20")
@pytest.mark.parametrize("body", [b"[]", b"null", b'"x"', b"", b"123", b"{", b"\xff"])
def test_a_structured_body_that_is_no_object_is_bad_syntax(body):
    assert refused(structured(body))


@pytest.mark.scenario("BC-20")
@pytest.mark.parametrize(
    "changes",
    [
        {"id": ""},
        {"source": ""},
        {"type": ""},
        {"specversion": "9.9"},
        {"example-extension": "x"},
        {"time": "yesterday"},
        {"id": "x" * 3000},
    ],
)
def test_broken_attributes_are_bad_syntax_in_every_mode(changes):
    assert refused(binary(**changes))
    assert refused(structured({**ATTRIBUTES, **changes}))
    assert refused(structured([{**ATTRIBUTES, **changes}], BATCH))


def test_a_body_without_any_sign_of_a_cloudevent_is_bad_syntax():
    headers = {"content-type": ["application/json"]}
    assert not is_cloudevent(headers)
    assert refused(read(headers, b"123"))


def test_data_that_mean_two_things_keep_an_exact_envelope_and_the_whole_document():
    body = b'{"id":"e","source":"s","type":"t","specversion":"1.0","data":{"a":1,"a":2}}'
    (event,) = structured(body)
    assert (event.id, event.data) == ("e", body)
    assert refused(structured(body.replace(b'"id":"e"', b'"id":"e","id":"f"')))


def test_a_percent_encoded_attribute_is_what_it_encodes():
    (event,) = binary(subject="caf%C3%A9")
    assert event.subject == "café"


NAMES = st.sampled_from(
    ["ce-id", "ce-source", "ce-type", "ce-specversion", "ce-time", "ce-x", "content-type", "x"]
)
VALUES = st.sampled_from(["1.0", STRUCTURED, BATCH, "application/json", "", "%ff", "é"]) | st.text(
    max_size=12
)


@given(st.dictionaries(NAMES, st.lists(VALUES, max_size=2)), st.binary(max_size=60))
def test_whatever_arrives_is_read_or_refused_and_nothing_raises(headers, body):
    result = read(headers, body)
    assert isinstance(result, Rejected) or all(isinstance(event, Event) for event in result)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["id", "data", "source", "x"]), inner, max_size=3)
        ),
        max_leaves=8,
    )
)
def test_whatever_document_arrives_is_read_or_refused(document):
    for kind in (STRUCTURED, BATCH):
        result = structured(document, kind)
        assert isinstance(result, tuple | Rejected)


def test_a_content_type_without_a_line_is_none() -> None:
    headers = {
        "ce-specversion": ["1.0"],
        "ce-id": ["1"],
        "ce-source": ["s"],
        "ce-type": ["t"],
        "content-type": [],
    }
    (event,) = read(headers, b"")
    assert event.content_type is None


ENVELOPE = b'"specversion":"1.0","id":"e","source":"/s","type":"t"'


@pytest.mark.parametrize("kind", [STRUCTURED, BATCH])
@pytest.mark.parametrize(
    ("reason", "body"),
    [
        ("not_unicode", b"{" + ENVELOPE + rb',"data":"\ud800"}'),
        ("not_unicode", b"{" + ENVELOPE + rb',"data":{"a":["\udfff"]}}'),
        ("not_unicode", b"{" + ENVELOPE + rb',"datacontenttype":"text/plain","data":"\ud800"}'),
        ("not_unicode", b"{" + ENVELOPE.replace(b'"e"', rb'"\ud800"') + b"}"),
        ("not_unicode", b"{" + ENVELOPE + rb',"ext":"\ud800"}'),
        ("bad_syntax", b"{" + ENVELOPE + b',"data":{"a":1,"a":2}} x'),
        ("bad_syntax", b"{" + ENVELOPE + b',"data":12345678901234567890123} x'),
        ("bad_syntax", b"{" + ENVELOPE + b',"data":{"a":1,"a":' + b"9" * 5000 + b"}}"),
        ("bad_syntax", b"{" + ENVELOPE + b',"data":{"a":1,"a":2'),
    ],
)
def test_what_breaks_after_the_first_fault_or_is_no_text_is_refused_and_never_raised(
    reason, body, kind
):
    whole = body if kind == STRUCTURED else b"[" + body + b"]"
    found = read({"content-type": [kind]}, whole)
    assert isinstance(found, Rejected)
    assert (found.status, found.reason) == (400, reason)
