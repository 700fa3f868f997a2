"""Starting declarations for kinds of recipients (rule CT-8), to be confirmed against the real one.

Take one, change what differs, and say where you read it:
``replace(PRESETS["stored_result_api"], source="acme's API guide, March 2026")``. Until then a warning
says that nobody has confirmed it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from landed.effects.contract import (
    PRESET,
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
)
from landed.effects.state import Finality

_DAY_S: Final = 86_400.0
_FOR_EVER_S: Final = 30 * 365 * _DAY_S
"""A span that outlasts every series of attempts, for a recipient that never forgets."""

_LANDED_LOG: Final = Contract(
    source=PRESET + "landed_log",
    key=Key(
        header="event-id",
        scope="aggregate",
        same_key=SameKey.REPLAYS,
        payload_equality=PayloadEquality.REJECTED,
        retention_s=_FOR_EVER_S,
    ),
    answers=Answers(success=("landed", "had landed"), is_success_durable=True),
    stores_errors=StoredErrors.NONE,
    # A look-up that finds nothing is no verdict: the write may still be on its way (rule CT-9).
    lookup=Lookup(lag_s=0.0, absence=Finality.NONE),
)
"""The event id is key and look-up key; a guarded first write to an aggregate of its own lands once."""

_LANDED_RECIPIENT: Final = Contract(
    source=PRESET + "landed_recipient",
    key=Key(
        same_key=SameKey.REPLAYS,
        payload_equality=PayloadEquality.REJECTED,
        retention_s=30 * _DAY_S,
    ),
    answers=Answers(
        success=("200", "201"),
        is_success_durable=True,
        not_executed=("408",),
        in_flight=("409",),
        key_conflict=("422",),
        gone=("410",),
    ),
    stores_errors=StoredErrors.NONE,
    lookup=Lookup(lag_s=0.0, absence=Finality.EXPIRY),
    fence=Fence(is_key_consulted_first=True),
    seal=Seal(),
    expiry=Expiry(),
    series_max_s=15 * _DAY_S,
)
"""A service that uses ``landed.recipient``; better is ``contract_from`` over its own document."""

_IDEMPOTENCY_KEY_DRAFT: Final = Contract(
    source=PRESET + "idempotency_key_draft",
    key=Key(same_key=SameKey.REPLAYS, payload_equality=PayloadEquality.REJECTED),
    answers=Answers(
        success=("200", "201", "204"),
        is_success_durable=True,
        in_flight=("409",),
        key_conflict=("422",),
    ),
)
"""The IETF draft on the Idempotency-Key header. How long a key is remembered, each server says."""

_STORED_RESULT_API: Final = Contract(
    source=PRESET + "stored_result_api",
    key=Key(
        same_key=SameKey.REPLAYS,
        payload_equality=PayloadEquality.REJECTED,
        retention_s=_DAY_S,
    ),
    answers=Answers(
        success=("200", "201"),
        is_success_durable=True,
        refusals=("402",),
        not_executed=("429",),
        in_flight=("409",),
    ),
    stores_errors=StoredErrors.AFTER_EXECUTION,
    series_max_s=_DAY_S / 2,
)
"""A payment API that keeps the first result for about a day, errors too once execution began."""

_CONDITIONAL_PUT: Final = Contract(
    source=PRESET + "conditional_put",
    answers=Answers(success=("200", "201", "204"), is_success_durable=True),
    lookup=Lookup(lag_s=0.0, absence=Finality.FENCE),
    fence=Fence(header="If-Match", rejected_by=(412,)),
)
"""A resource with a version: the write is refused if it has moved on, and reading it is the look-up."""

_JETSTREAM: Final = Contract(
    source=PRESET + "jetstream",
    key=Key(
        header="Nats-Msg-Id",
        scope="stream",
        same_key=SameKey.ACTS_ONCE,
        payload_equality=PayloadEquality.IGNORED,
        retention_s=120.0,
    ),
    answers=Answers(success=("ack", "duplicate"), is_success_durable=True),
    stores_errors=StoredErrors.NONE,
    timeout_s=5.0,
    series_max_s=45.0,
)
"""A stream with its default window of two minutes, in which a message id is stored once."""

_SMTP_LIKE: Final = Contract(
    source=PRESET + "smtp_like",
    answers=Answers(success=("250",), is_success_durable=True, refusals=("550", "553", "554")),
    ambiguity_reason="it has no key and cannot be asked; a person decides whether to send again",
)
"""No key and no look-up: what is in doubt stays so until a person says what became of it."""

_STANDARD_WEBHOOK: Final = Contract(
    source=PRESET + "standard_webhook",
    key=Key(
        header="webhook-id",
        scope="endpoint",
        same_key=SameKey.ACTS_ONCE,
        payload_equality=PayloadEquality.NOT_CHECKED,
    ),
    answers=Answers(success=("200", "201", "202", "204"), is_success_durable=True),
    stores_errors=StoredErrors.NONE,
)
"""A receiver of Standard Webhooks, which is asked to know repeats by their id."""

PRESETS: Final[Mapping[str, Contract]] = MappingProxyType(
    {
        "landed_log": _LANDED_LOG,
        "landed_recipient": _LANDED_RECIPIENT,
        "idempotency_key_draft": _IDEMPOTENCY_KEY_DRAFT,
        "stored_result_api": _STORED_RESULT_API,
        "conditional_put": _CONDITIONAL_PUT,
        "jetstream": _JETSTREAM,
        "smtp_like": _SMTP_LIKE,
        "standard_webhook": _STANDARD_WEBHOOK,
    }
)
"""By the name of the kind."""
