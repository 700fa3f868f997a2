"""Columns as the server reads them: the driver reads back what was encoded."""

from __future__ import annotations

import struct
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.adapt import Transformer
from psycopg.pq import Format

from landed.engines.postgres.arrays import blobs, ints, uuids

INTS, BLOBS, UUIDS = 1016, 1001, 2951
"""What PostgreSQL calls the array types."""


def read_back(data: bytes, oid: int) -> object:
    return Transformer().get_loader(oid, Format.BINARY).load(data)


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_numbers_are_read_back(values: list[int]) -> None:
    assert read_back(ints(values), INTS) == values


@given(st.lists(st.none() | st.binary()))
def test_byte_strings_are_read_back(values: list[bytes | None]) -> None:
    assert read_back(blobs(values), BLOBS) == values


@given(st.lists(st.none() | st.uuids()))
def test_uuids_are_read_back(values: list[UUID | None]) -> None:
    assert read_back(uuids([value and value.bytes for value in values]), UUIDS) == values


def test_a_number_beyond_the_column_is_refused() -> None:
    with pytest.raises(struct.error):
        ints([2**63])
