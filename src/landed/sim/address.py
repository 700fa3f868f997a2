"""Addresses of the simulated network, and what stands in for a socket there."""

from __future__ import annotations

import errno
import os
import socket

Address = tuple[str, int]


def connection_error(code: int) -> OSError:
    """The OSError that a real socket would raise: its class follows from the number."""
    return OSError(code, os.strerror(code))


class SimSocket:
    """What ``get_extra_info("socket")`` gives: it has addresses and takes every option."""

    family = socket.AF_INET
    type = socket.SOCK_STREAM
    proto = socket.IPPROTO_TCP

    def __init__(self, here: Address, there: Address | None) -> None:
        self._here = here
        self._there = there

    def getsockname(self) -> Address:
        """The address of this side."""
        return self._here

    def getpeername(self) -> Address:
        """The address of the other side."""
        if self._there is None:
            raise connection_error(errno.ENOTCONN)
        return self._there

    def setsockopt(self, *_option: object) -> None:
        """Take any option; none matters here."""

    def getsockopt(self, *_option: object) -> int:
        """Every option reads as 0."""
        return 0

    def fileno(self) -> int:
        """There is no file behind it."""
        return -1
