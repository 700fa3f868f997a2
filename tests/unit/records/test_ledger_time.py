"""The ledger's time on one host, whatever is done to the host's clock (SQ-18)."""

from __future__ import annotations

import threading

import pytest

from landed.clock import LedgerTime, MonotonicMs, WallMs

T_MS = 1_700_000_000_000


class Host:
    """A host whose wall clock can be put anywhere."""

    def __init__(self) -> None:
        self.wall = T_MS
        self.monotonic = 5.0

    def wall_ms(self) -> WallMs:
        return WallMs(self.wall)

    def monotonic_ms(self) -> MonotonicMs:
        return MonotonicMs(self.monotonic)

    def passes(self, ms: int) -> None:
        self.wall += ms
        self.monotonic += ms


@pytest.fixture
def host() -> Host:
    return Host()


def test_it_is_the_wall_clock_while_that_goes_on(host: Host):
    time = LedgerTime(host)
    for ms in (0, 1, 1000, 86_400_000):
        host.passes(ms)
        assert time.now_us() == host.wall * 1000
    host.wall += 3_600_000
    assert time.now_us() == host.wall * 1000, "also where it was put forward, or the host slept"


def test_it_goes_on_where_the_clock_is_put_back(host: Host):
    time = LedgerTime(host)
    before = time.now_us()
    host.wall -= 3_600_000
    assert time.now_us() == before
    host.passes(1500)
    assert time.now_us() == before + 1_500_000
    host.passes(3_600_000)
    assert time.now_us() == before + 1_500_000 + 3_600_000_000, "and does not jump"
    host.wall += 3_600_000
    assert time.now_us() == host.wall * 1000


def test_a_clock_that_was_put_back_while_nobody_asked_is_noticed(host: Host):
    time = LedgerTime(host)
    before = time.now_us()
    host.passes(3_600_000)
    host.wall -= 1_800_000
    assert time.now_us() == before + 3_600_000_000


def test_a_clock_that_is_slower_than_the_monotonic_one_is_followed(host: Host):
    time = LedgerTime(host)
    for _ in range(100):
        host.passes(10_000)
        host.wall -= 1
        assert time.now_us() == host.wall * 1000


def test_it_goes_on_from_what_was_stored(host: Host):
    stored = (T_MS + 60_000) * 1000
    time = LedgerTime(host)
    assert time.not_below(stored) == 60_000_000
    host.passes(10)
    assert time.now_us() == stored + 10_000
    assert time.not_below(stored) == 0, "it is past it"
    assert time.now_us() == stored + 10_000


def test_threads_that_share_it_see_no_time_twice_backwards():
    """A wall clock that trembles, as many threads ask."""
    host = Host()
    time = LedgerTime(host)
    falls: list[int] = []

    def ask(step: int) -> None:
        last = 0
        for _ in range(2000):
            host.wall += step
            host.monotonic += 1
            now = time.now_us()
            if now < last:
                falls.append(now)
            last = now

    threads = [threading.Thread(target=ask, args=(step,)) for step in (3, -2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not falls
