"""CloudEvents 1.0 over HTTP: binary, structured and batch mode to ``Event``; nothing else is read.

Called only after authentication. What breaks the transport's syntax is refused before any receipt;
what is well formed but unknown is not judged here (classify.py).
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from landed.deliveries.event import Event, IdentityRule, Rejected
from landed.fingerprint import DEPTH_MAX, Json, NotExactError, parse_json

STRUCTURED: Final = "application/cloudevents+json"
BATCH: Final = "application/cloudevents-batch+json"
SPEC_VERSIONS: Final = frozenset({"1.0"})
BATCH_EVENTS_MAX: Final = 1000
"""Events of one batch delivery; a batch is one body and bounded by its size as well."""
TEXT_CHARS_MAX: Final = 2048
"""Length of one attribute. An identity longer than this is a payload."""

_EXTENSION: Final = re.compile(r"[a-z0-9]{1,64}\Z")
_KNOWN: Final = frozenset(
    {"id", "source", "type", "specversion", "subject", "time", "datacontenttype", "dataschema"}
)
_DATA: Final = frozenset({"data", "data_base64"})


def is_cloudevent(headers: Mapping[str, Sequence[str]]) -> bool:
    """Say whether a delivery claims to be a CloudEvent, by its headers (lower-case names)."""
    return "ce-specversion" in headers or media_type(headers) in (STRUCTURED, BATCH)


def media_type(headers: Mapping[str, Sequence[str]]) -> str:
    """The media type without parameters, lower case; empty where there is none."""
    lines = headers.get("content-type", ())
    return lines[0].partition(";")[0].strip().lower() if lines else ""


def read(
    headers: Mapping[str, Sequence[str]], body: bytes, *, depth_max: int = DEPTH_MAX
) -> tuple[Event, ...] | Rejected:
    """Read the events of one delivery: one in binary and structured mode, any number in a batch."""
    kind = media_type(headers)
    if kind == BATCH:
        return _batch(body, depth_max)
    if kind == STRUCTURED:
        event = _structured_body(body, depth_max)
        return event if isinstance(event, Rejected) else (event,)
    if "ce-specversion" in headers:
        event = _binary(headers, body)
        return event if isinstance(event, Rejected) else (event,)
    return _bad("not a CloudEvent: no ce-specversion, and not its media type")


def _binary(headers: Mapping[str, Sequence[str]], body: bytes) -> Event | Rejected:
    attributes: dict[str, str] = {}
    for name, lines in headers.items():
        if not name.startswith("ce-"):
            continue
        if len(lines) != 1:
            return _bad(f"{name} occurs more than once")
        attributes[name[3:]] = _percent_decoded(lines[0])
    content_type = next(iter(headers.get("content-type", ())), None)
    return _event(attributes, body, content_type)


def _structured_body(body: bytes, depth_max: int) -> Event | Rejected:
    try:
        return _structured(parse_json(body, depth_max=depth_max))
    except NotExactError as e:
        if e.reason not in ("repeated_member", "number_out_of_domain"):
            return _bad(f"the body is not a JSON document ({e.reason})")
    # It parses, but its data mean two things at once. If the envelope itself is exact the event has
    # an identity and can be receipted and quarantined, with the whole document as its data.
    outermost: list[tuple[str, Json]] = []

    def keep_last(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
        outermost[:] = pairs
        return dict(pairs)

    try:
        envelope: Json = json.loads(body, object_pairs_hook=keep_last)
    except (ValueError, RecursionError):
        # The reader above stopped at the first fault, and this one came after it.
        return _bad("the body is not a JSON document (syntax)")
    if not isinstance(envelope, dict) or len(envelope) != len(outermost):
        return _bad("an attribute occurs twice")
    event = _structured({name: v for name, v in envelope.items() if name not in _DATA})
    return event if isinstance(event, Rejected) else replace(event, data=body)


def _structured(document: Json) -> Event | Rejected:
    if not isinstance(document, dict):
        return _bad("a structured CloudEvent is a JSON object")
    attributes: dict[str, str] = {}
    for name, value in document.items():
        if name in _DATA or value is None:
            continue
        if isinstance(value, bool):
            attributes[name] = "true" if value else "false"
        elif isinstance(value, str | int):
            attributes[name] = str(value)
        else:
            return _bad(f"attribute {name[:64]!r} is not a text, an integer or a boolean")
        if isinstance(value, int) and name in _KNOWN:
            return _bad(f"attribute {name!r} is a text")
    if "data" in document and "data_base64" in document:
        return _bad("data and data_base64 exclude each other")
    content_type = attributes.get("datacontenttype")
    if "data_base64" in document:
        data = _from_base64(document["data_base64"])
        if data is None:
            return _bad("data_base64 is not base64")
    elif "data" not in document:
        data = b""
    else:
        try:
            data = _data_bytes(document["data"], content_type)
        except UnicodeEncodeError:
            return _not_unicode("data")
    return _event(attributes, data, content_type or "application/json")


def _batch(body: bytes, depth_max: int) -> tuple[Event, ...] | Rejected:
    document = _document(body, depth_max)
    if isinstance(document, Rejected):
        return document
    if not isinstance(document, list):
        return _bad("a batch is a JSON array")
    if len(document) > BATCH_EVENTS_MAX:
        return Rejected(
            status=413, reason="too_large", detail=f"more than {BATCH_EVENTS_MAX} events"
        )
    events = []
    for item in document:
        event = _structured(item)
        if isinstance(event, Rejected):
            # One member that is no event makes the delivery's syntax broken; none is kept.
            return event
        events.append(event)
    return tuple(events)


def _event(
    attributes: Mapping[str, str], data: bytes, content_type: str | None
) -> Event | Rejected:
    for name, value in attributes.items():
        if name not in _KNOWN and not _EXTENSION.match(name):
            return _bad(
                f"attribute name {name[:64]!r} has other than lower-case letters and digits"
            )
        if len(value) > TEXT_CHARS_MAX:
            return _bad(f"attribute {name!r} is longer than {TEXT_CHARS_MAX} characters")
        if not _is_unicode(value):
            return _not_unicode(f"attribute {name!r}")
    version = attributes.get("specversion", "")
    if version not in SPEC_VERSIONS:
        return _bad(f"specversion {version[:16]!r} is not supported")
    for name in ("id", "source", "type"):
        if not attributes.get(name):
            return _bad(f"{name} is missing or empty")
    occurred = attributes.get("time")
    occurred_us = None
    if occurred is not None:
        occurred_us = timestamp_us(occurred)
        if occurred_us is None:
            return _bad("time is not an RFC 3339 timestamp")
    return Event(
        source=attributes["source"],
        id=attributes["id"],
        identity_rule=IdentityRule.CLOUDEVENTS,
        type=attributes["type"],
        schema_version=attributes.get("dataschema"),
        subject=attributes.get("subject"),
        occurred_us=occurred_us,
        sequence=attributes.get("sequence"),
        content_type=content_type,
        data=data,
        extensions={name: text for name, text in attributes.items() if name not in _KNOWN},
    )


def timestamp_us(text: str) -> int | None:
    """Microseconds since 1970 of an RFC 3339 timestamp with an offset, or None."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None or len(text) < len("2026-01-01T00:00:00Z"):
        return None
    return int(moment.timestamp()) * 1_000_000 + moment.microsecond


def _document(body: bytes, depth_max: int) -> Json | Rejected:
    try:
        return parse_json(body, depth_max=depth_max)
    except NotExactError as e:
        # The envelope itself must be exact: an identity that can be read in two ways is none.
        return _bad(f"the body is not an exact JSON document ({e.reason})")


def _data_bytes(data: Json, content_type: str | None) -> bytes:
    if isinstance(data, str) and content_type is not None and not _is_json(content_type):
        return data.encode()
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind.endswith(("/json", "+json"))


def _from_base64(value: Json) -> bytes | None:
    if not isinstance(value, str):
        return None
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return None


def _percent_decoded(text: str) -> str:
    """Undo the percent-encoding that the HTTP binding prescribes for attribute values."""
    if "%" not in text:
        return text
    raw = re.sub(
        rb"%([0-9A-Fa-f]{2})",
        lambda found: bytes([int(found.group(1), 16)]),
        text.encode(),
    )
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return text


def _is_unicode(text: str) -> bool:
    """Whether a text can be written at all: JSON's escapes can spell half of a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _not_unicode(what: str) -> Rejected:
    """JSON allows half of a surrogate pair; nothing can store it, and nothing means it."""
    return Rejected(
        status=400, reason="not_unicode", detail=f"{what} holds half of a surrogate pair"
    )


def _bad(detail: str) -> Rejected:
    return Rejected(status=400, reason="bad_syntax", detail=detail)
