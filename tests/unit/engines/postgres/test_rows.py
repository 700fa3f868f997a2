"""Rows and statements without a server: a changed column is noticed, whichever it is."""

from __future__ import annotations

from uuid import UUID
from zlib import crc32

import pytest

from landed.conformance.trial import A, key
from landed.engines.postgres import row
from landed.engines.postgres.exchange import Statement
from landed.engines.postgres.page import page_call
from landed.engines.postgres.row import ENTRY_COLUMNS, HEAD_COLUMNS, entry_of, head_of
from landed.engines.postgres.schema import LEGS_MAX, MARGIN, ORDINAL_BITS, STEPS, TURNS_MAX
from landed.errors import StorageDamagedError
from landed.log import Event, Read, ReadFilters
from landed.wire.codec import encode_events

CLIENT, USER = UUID(int=7), UUID(int=8)


def entry(**changes: object) -> tuple[object, ...]:
    body = encode_events((Event.new(1, b"v", client_seq=5, event_id=None),))
    fields = (9, 3, 1, 0, 1, 4, 4, 1, 1_000, 5 - 2**63, 5 - 2**63, len(body))
    check = row.entry_check(fields, CLIENT.bytes, USER.bytes, body)
    made = dict(zip(ENTRY_COLUMNS, (*fields, check, CLIENT, USER, body), strict=True))
    return tuple({**made, **changes}.values())


def head(**changes: object) -> tuple[object, ...]:
    fields = (3, 1, 0, 1, 4, 4, 1, 1_000)
    check = row._head_check(key().packed, fields, CLIENT.bytes, USER.bytes)
    made = dict(zip(HEAD_COLUMNS, (key().packed, *fields, check, CLIENT, USER), strict=True))
    return tuple({**made, **changes}.values())


@pytest.mark.scenario("SC-73")
@pytest.mark.parametrize("column", ENTRY_COLUMNS)
def test_an_entry_with_any_column_changed_is_refused(column: str) -> None:
    assert entry_of(entry()).version == 4
    at = ENTRY_COLUMNS.index(column)
    for other in (changed(entry()[at]), None):
        with pytest.raises(StorageDamagedError):
            entry_of(entry(**{column: other}))


@pytest.mark.scenario("SC-73")
@pytest.mark.parametrize("column", HEAD_COLUMNS)
def test_a_head_with_any_column_changed_is_refused(column: str) -> None:
    assert head_of(head()).head.version == 4
    at = HEAD_COLUMNS.index(column)
    for other in (changed(head()[at]), None):
        with pytest.raises(StorageDamagedError):
            head_of(head(**{column: other}))


def changed(value: object) -> object:
    if isinstance(value, int):
        return value + 1
    if isinstance(value, UUID):
        return UUID(int=value.int ^ 1)
    assert isinstance(value, bytes)
    return value[:-1] + bytes([value[-1] ^ 1])


def test_a_statement_s_name_is_made_of_its_text() -> None:
    assert Statement("SELECT 1").name == Statement("SELECT 1").name != Statement("SELECT 2").name


def test_a_point_lookup_is_answered_from_the_metadata() -> None:
    """Log rule R7: no payload of another batch is read."""
    filters = ReadFilters(min_client_seq=5, max_client_seq=5, include_client=A)
    call = page_call(Read(key(), filters), 1_000)
    assert (
        b"AND client = $5::uuid AND max_seq >= $6::bigint AND min_seq <= $7" in call.statement.sql
    )
    assert call.values[4:] == [A.bytes, *[(5 - 2**63).to_bytes(8, signed=True)] * 2]


def test_a_position_has_room_for_every_leg_and_a_century_of_transactions() -> None:
    assert (TURNS_MAX << ORDINAL_BITS) + LEGS_MAX == 2**63 - 1
    assert TURNS_MAX / (10_000 * 86_400 * 365) > 100
    assert TURNS_MAX // MARGIN > 100_000, "failovers and restores"


def test_released_migrations_are_never_edited() -> None:
    assert {step.number: crc32(step.sql.encode()) for step in STEPS} == RELEASED


RELEASED = {1: 4077765192}
