"""What must hold after anything: the invariants of a ledger, and that a piece of code sends nothing."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from landed.ledger import Ledger
from landed.records.invariants import check


def invariants(ledger: Ledger) -> None:
    """Fail, in words, if an invariant of the ledger's records is broken. Reads only.

    Raises:
        AssertionError: with one line for each breach.
    """
    with ledger.engine.connect() as conn:
        broken = check(conn, ledger.books)
    if broken:
        lines = "\n".join(f"  {found.rule}: {found.detail} ({found.subject})" for found in broken)
        raise AssertionError(f"broken invariants of ledger {ledger.name!r}:\n{lines}")


@contextmanager
def no_sockets() -> Iterator[None]:
    """Within the block, connecting anywhere but to a local socket file raises ``AssertionError``.

    A handler that calls the network from its transaction is found by it.
    """
    connect, connect_ex = socket.socket.connect, socket.socket.connect_ex

    def _connect(self: socket.socket, address: Any) -> None:
        _check(self, address)
        connect(self, address)

    def _connect_ex(self: socket.socket, address: Any) -> int:
        _check(self, address)
        return connect_ex(self, address)

    with (
        patch.object(socket.socket, "connect", _connect),
        patch.object(socket.socket, "connect_ex", _connect_ex),
    ):
        yield


def _check(opened: socket.socket, address: object) -> None:
    if opened.family in (socket.AF_INET, socket.AF_INET6):
        raise AssertionError(f"a connection to {address} was opened where none may be")
