"""What a user may write for an event type, turned into its declaration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from landed.deliveries.producer import Check, EventType, Invalid
from landed.errors import ConfigurationError
from landed.fingerprint import Json

Declared = type[Any] | Check | EventType | None
"""A payload class, a check of one's own, a whole declaration, or None for JSON as it is."""


def event_types(types: Mapping[str, Declared] | Iterable[EventType]) -> dict[str, EventType]:
    """Event types by name."""
    if not isinstance(types, Mapping):
        return {declared.name: declared for declared in types}
    return {name: _event_type(name, declared) for name, declared in types.items()}


def check_of(payload: type[Any]) -> Check:
    """A check that turns JSON into a payload class, or says ``Invalid``.

    Dataclasses, TypedDict, attrs and msgspec structs are converted strictly by msgspec; a class with
    ``model_validate`` (pydantic) by itself.
    """
    validate = getattr(payload, "model_validate", None)
    if validate is not None:
        return _pydantic(validate)

    def _convert(document: Json) -> object:
        try:
            return msgspec.convert(document, type=payload)
        except msgspec.ValidationError as e:
            raise Invalid(str(e)) from None

    return _convert


def _event_type(name: str, declared: Declared) -> EventType:
    if declared is None:
        return EventType(name=name)
    if isinstance(declared, EventType):
        if declared.name != name:
            raise ConfigurationError(f"the type {declared.name} is declared under the name {name}")
        return declared
    check = check_of(declared) if isinstance(declared, type) else declared
    return EventType(name=name, versions={None: check})


def _pydantic(validate: Any) -> Check:
    def _convert(document: Json) -> object:
        try:
            return validate(document)
        except ValueError as e:
            raise Invalid(str(e)) from None

    return _convert
