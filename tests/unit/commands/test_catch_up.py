"""A catch-up that has to begin again, because what it folded was evicted meanwhile."""

from math import inf
from uuid import UUID

from landed.accounts.domain import Accounts, Kind, Movement, account_key, encode
from landed.commands.catch_up import Reader, catch_up
from landed.ids import ClientId, EventId
from landed.log import Batch, Event, Page
from landed.projections import Ours
from landed.projections.port import Answered, View

KEY = account_key(UUID(int=7))
ID, OTHER = EventId(UUID(int=1)), EventId(UUID(int=2))
CLIENT = ClientId(UUID(int=5))
BEFORE = View(KEY, 0, 1, 1, 0, 0, None)
THE_ANSWER = Answered(10, 1, None)


class OneBatchMore:
    """A log that holds one batch behind the view, of another request."""

    async def read(self, _read, **_rest):
        movement = Movement(Kind.DEPOSITED, 1)
        event = Event(2, 2, OTHER, 0, movement.kind, 0, encode(movement), None)
        return Page((Batch(2, CLIENT, None, 1, (event,)),), None)


class Evicting:
    """A projection that has lost the aggregate, and knows the request when it is loaded again."""

    async def advance(self, _step):
        return False

    async def load(self, keys, event_id, _domain):
        answered = THE_ANSWER if event_id == ID else None
        return tuple(BEFORE._replace(key=key, answered=answered) for key in keys)


async def test_it_looks_for_its_request_again_when_it_begins_again():
    ours = Ours(CLIENT, frozenset({CLIENT}), 1_000.0)
    reader = Reader(OneBatchMore(), Evicting(), Accounts(), ours, lambda: 0.0, inf, 1.0)
    view = await catch_up(reader, BEFORE, ID, is_doubted=False)
    assert view.answered is THE_ANSWER
