"""Accounts that may be trimmed: a snapshot event stands for everything before it."""

from __future__ import annotations

from landed.accounts.domain import Accounts, account_key
from landed.ids import AggregateKey
from landed.log import ANY, Event, Write
from tests.stories.fleet import FOREIGNER, Fleet

SNAPSHOT = 9


class SnapshotAccounts(Accounts):
    def fold(self, state: int, event: Event, key: AggregateKey, /) -> int:
        return int(event.value) if self.is_snapshot(event) else super().fold(state, event, key)

    def is_snapshot(self, event: Event, /) -> bool:
        return event.type_major == SNAPSHOT


async def take_snapshot(it: Fleet, account: object, balance: int) -> None:
    """An operator's tool writes the balance down, under its own client id."""
    event = Event.new(SNAPSHOT, b"%d" % balance, client_seq=1, event_id=None)
    await it.log.write(
        Write.to(account_key(account), [event], client_id=FOREIGNER, expected_version=ANY)
    )
