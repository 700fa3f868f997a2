"""From the bytes of an authentic delivery to events with an identity (rules ID-1 to ID-5).

Called after authentication only: nothing of a body is looked at before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Final

from landed.deliveries import cloudevents
from landed.deliveries.event import Event, IdentityRule, Rejected
from landed.deliveries.producer import Producer
from landed.deliveries.verify import StandardWebhooks
from landed.fingerprint import NotExactError, parse_json
from landed.records.texts import is_storable

Headers = Mapping[str, Sequence[str]]
"""By lower-case name, every line of each."""

_NOT_EXACT: Final = frozenset({"repeated_member", "number_out_of_domain"})
"""The body parses, but does not say one thing: it has an identity and is set aside (QU-2)."""


def read_events(producer: Producer, headers: Headers, body: bytes) -> tuple[Event, ...] | Rejected:
    """Read the events of a delivery by the producer's identity rule.

    Source: rule ID-3. An identity is a claim within the producer's own namespace and nowhere else.
    """
    encoding = headers.get("content-encoding", ())
    if any(line.strip().lower() not in ("", "identity") for line in encoding):
        return Rejected(status=415, reason="media_type", detail="a compressed body is not read")
    try:
        if producer.identity is IdentityRule.CLOUDEVENTS:
            events = _cloudevents(producer, headers, body)
        else:
            event = _webhook(producer, headers, body)
            events = event if isinstance(event, Rejected) else (event,)
    except (ValueError, OverflowError, RecursionError):
        # Texts that are no Unicode, numbers no machine holds, times before all time.
        return _bad("the delivery holds a value that cannot be read")
    if isinstance(events, Rejected):
        return events
    for found in events:
        if not all(map(is_storable, _texts(found))):
            return _bad("an attribute holds a character that no text has")
    return events


def _texts(event: Event) -> list[str]:
    wanted = (
        event.source,
        event.id,
        event.type,
        event.schema_version,
        event.subject,
        event.sequence,
        event.content_type,
    )
    return [text for text in wanted if text is not None]


def _cloudevents(producer: Producer, headers: Headers, body: bytes) -> tuple[Event, ...] | Rejected:
    if not cloudevents.is_cloudevent(headers):
        kind = cloudevents.media_type(headers)
        if kind.startswith("application/cloudevents"):
            return Rejected(status=415, reason="media_type", detail="only the JSON format is read")
    return cloudevents.read(headers, body, depth_max=producer.depth_max)


def _webhook(producer: Producer, headers: Headers, body: bytes) -> Event | Rejected:
    kind = cloudevents.media_type(headers)
    opaque = next((name for name, declared in producer.types.items() if declared.is_opaque), None)
    if opaque is None and kind and kind != "text/plain" and not kind.endswith(("/json", "+json")):
        return Rejected(status=415, reason="media_type", detail="this producer sends JSON")
    document = _document(body, producer.depth_max)
    if isinstance(document, Rejected) and (
        opaque is None or producer.identity is IdentityRule.FIELD
    ):
        return document
    id = _identity(producer, headers, body, document)
    if isinstance(id, Rejected):
        return id
    if isinstance(document, Rejected):
        event_type: object = opaque
        occurred = None
    else:
        event_type = _at(document, producer.type_field)
        occurred = _at(document, ("timestamp",))
    return Event(
        source=producer.namespace,
        id=id,
        identity_rule=producer.identity,
        # Authentic and identified, but without a type that we know: set aside, never dropped.
        type=event_type[:200] if isinstance(event_type, str) else "",
        occurred_us=cloudevents.timestamp_us(occurred) if isinstance(occurred, str) else None,
        content_type=headers.get("content-type", (None,))[0],
        data=body,
    )


def _identity(
    producer: Producer, headers: Headers, body: bytes, document: object
) -> str | Rejected:
    match producer.identity:
        case IdentityRule.WEBHOOK_ID:
            scheme = producer.authentication
            name = scheme.headers[0] if isinstance(scheme, StandardWebhooks) else "webhook-id"
            lines = headers.get(name, ())
            # Only what is signed may identify; the Standard Webhooks scheme signs its id.
            id: object = lines[0] if len(lines) == 1 else None
        case IdentityRule.FIELD:
            id = _at(document, producer.identity_field)
            if isinstance(id, _Number):
                id = id.text
        case _:
            id = hashlib.sha256(body).hexdigest()
    if not isinstance(id, str) or not id:
        return _bad("the delivery has no id, or more than one")
    if len(id) > cloudevents.TEXT_CHARS_MAX:
        return _bad(f"the id is longer than {cloudevents.TEXT_CHARS_MAX} characters")
    return id


class _Members(list[tuple[str, object]]):
    """An object with its members as written, so that one that occurs twice is seen."""


class _Number:
    """A number as it is spelled; no double comes between us and a producer's id."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


def _document(body: bytes, depth_max: int) -> object | Rejected:
    try:
        parse_json(body, depth_max=depth_max)
    except NotExactError as e:
        if e.reason not in _NOT_EXACT:
            return _bad(f"the body is not a JSON document ({e.reason})")
    # ValueError where it was refused before its end was read.
    document: object = json.loads(
        body.decode(), object_pairs_hook=_Members, parse_int=_Number, parse_float=_Number
    )
    return document


def _at(document: object, path: tuple[str, ...]) -> object:
    """The one value at a path; None if there is none, or more than one."""
    for name in path:
        if not isinstance(document, _Members):
            return None
        found = [value for member, value in document if member == name]
        if len(found) != 1:
            return None
        document = found[0]
    return document


def _bad(detail: str) -> Rejected:
    return Rejected(status=400, reason="bad_syntax", detail=detail)
