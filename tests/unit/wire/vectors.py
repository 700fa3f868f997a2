"""The specification's frames, and what their JSON says they mean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

from landed.ids import AggregateKey
from landed.log import (
    Batch,
    Delete,
    Deleted,
    DeleteLeg,
    Details,
    Event,
    GetDetails,
    Landed,
    Leg,
    Page,
    Read,
    ReadFilters,
    Trim,
    Trimmed,
    Write,
)
from landed.wire.messages import AccessLevel, Identified, Identify, Operation

HEADER_SIZE = 17
_DATA = json.loads((Path(__file__).parent / "vectors.json").read_text())

OPERATION_OF_ANSWER = {
    1: Operation.DETAILS,
    2: Operation.READ,
    3: Operation.WRITE,
    4: Operation.TRIM,
    5: Operation.DELETE,
    16: Operation.IDENTIFY,
}


class Vector:
    """One frame with its name and meaning."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.name: str = data["name"]
        self.type: int = data.get("message_type", 0)
        self.is_request: bool = data.get("direction", "request") == "request"
        self.frame = bytes.fromhex(data["hex"])
        self.body = self.frame[HEADER_SIZE:]
        self.decoded: dict[str, Any] = data.get("decoded", {})

    @property
    def operation(self) -> Operation:
        return Operation(self.type) if self.is_request else OPERATION_OF_ANSWER[self.type]

    @property
    def correlation(self) -> bytes | None:
        return maybe(bytes.fromhex, self.decoded["correlation_id"])

    @property
    def value(self) -> Any:
        return MEANINGS[self.is_request, self.type](self.decoded)

    def __repr__(self) -> str:
        return self.name


def section(name: str) -> list[Vector]:
    return [Vector(data) for data in _DATA[name]]


def requests(name: str) -> list[Vector]:
    return [vector for vector in section(name) if vector.is_request]


def successes(name: str) -> list[Vector]:
    return [v for v in section(name) if not v.is_request and v.type not in {6, 7}]


def named(name: str) -> Vector:
    return next(v for kind in _DATA if kind != "about" for v in section(kind) if v.name == name)


def maybe(kind: Any, value: Any) -> Any:
    return None if value is None else kind(value)


def key(data: dict[str, str]) -> AggregateKey:
    return AggregateKey(
        *(UUID(data[part]) for part in ("org_id", "aggregate_type_id", "aggregate_id"))
    )


def event(data: dict[str, Any]) -> Event:
    return Event(
        client_seq=data["client_seq"],
        event_seq=data["event_seq"],
        event_id=maybe(UUID, data["event_id"]),
        event_ms=data["event_timestamp"],
        type_major=data["event_type_major"],
        type_minor=data["event_type_minor"],
        value=bytes.fromhex(data["event_value"]),
        iv=maybe(bytes.fromhex, data["iv"]),
    )


def batch(data: dict[str, Any]) -> Batch:
    return Batch(
        version=data["aggregate_version"],
        client_id=UUID(data["client_id"]),
        user_id=maybe(UUID, data["user_id"]),
        server_ms=data["server_timestamp"],
        events=tuple(event(item) for item in data["events"]),
    )


def filters(data: dict[str, Any]) -> ReadFilters:
    ids = ("exclude_client_id", "include_client_id", "exclude_user_id", "include_user_id")
    values = [maybe(UUID, value) if name in ids else value for name, value in data.items()]
    return ReadFilters(values[0], values[1], maybe(tuple, values[2]), *values[3:])


def leg(entry: dict[str, Any]) -> Leg:
    value = entry["value"]
    return Leg(
        key=key(entry["key"]),
        events=tuple(event(item) for item in value["events"]),
        expected_version=value["expected_version"],
        allow_create=value["allow_create"],
        enforce_sequence=value["enforce_client_idempotency"],
    )


def delete_leg(entry: dict[str, Any]) -> DeleteLeg:
    value = entry["value"]
    return DeleteLeg(
        key=key(entry["key"]),
        expected_version=value["expected_version"],
        allow_recreate=value["allow_recreate"],
        allow_continuation=value["allow_sequence_continuation"],
    )


def identified(data: dict[str, Any]) -> Identified:
    levels = {None: None, "ReadWrite": AccessLevel.READ_WRITE, "ReadOnly": AccessLevel.READ_ONLY}
    return Identified(
        client_id=maybe(UUID, data["client_id"]),
        access_level=levels[data["access_level"]],
        dictionary_sha256=data["compression_dict_sha256"],
        dictionary=maybe(bytes.fromhex, data["compression_dict_bytes"]),
    )


def details(data: dict[str, Any]) -> Details:
    return Details(
        first_version=data["min_aggregate_version"],
        version=data["max_aggregate_version"],
        event_seq=data["max_event_seq"],
        is_deleted=data["is_deleted"],
        allow_recreate=data["allow_recreate"],
        allow_continuation=data["allow_sequence_continuation"],
        last_server_ms=data["last_server_timestamp"],
        last_client_id=UUID(data["last_client_id"]),
        last_user_id=maybe(UUID, data["last_user_id"]),
    )


MEANINGS = {
    (True, 1): lambda d: GetDetails(key(d["aggregate_key"])),
    (True, 2): lambda d: Read(key(d["aggregate_key"]), filters(d["filters"])),
    (True, 3): lambda d: Write(
        UUID(d["client_id"]), tuple(map(leg, d["writes"])), maybe(UUID, d["user_id"])
    ),
    (True, 4): lambda d: Trim(
        key(d["aggregate_key"]),
        d["keep_from_aggregate_version"],
        UUID(d["client_id"]),
        maybe(UUID, d["user_id"]),
    ),
    (True, 5): lambda d: Delete(
        UUID(d["client_id"]), tuple(map(delete_leg, d["deletes"])), maybe(UUID, d["user_id"])
    ),
    (True, 14): lambda d: Identify(
        d["public_key"], d["nonce"], d["signature"], d["api_key"], d["known_dict_sha256"]
    ),
    (False, 1): details,
    (False, 2): lambda d: Page(tuple(map(batch, d["event_batches"])), d["next_aggregate_version"]),
    (False, 3): lambda d: Landed(
        () if d["max_aggregate_version"] is None else (d["max_aggregate_version"],)
    ),
    (False, 4): lambda _: Trimmed(),
    (False, 5): lambda _: Deleted(),
    (False, 16): identified,
}
