"""What was committed is held against the rules, and every answer against what could be seen."""

from __future__ import annotations

import pytest

from landed import sim
from landed.conformance.trial import A, B, delete, key, write
from landed.engines.ask import ask
from landed.engines.lane import Lane
from landed.engines.port import Stored
from landed.facts import forget
from landed.limits import Limits
from landed.log import (
    AggregateMissing,
    BelowFloor,
    Deleted,
    FeedPage,
    FeedRead,
    GetDetails,
    Landed,
    Page,
    Read,
    Trim,
    Trimmed,
)
from landed.sim.disk import Disk
from landed.sim.filed import filed
from landed.sim.spindle import SimStore

ONE, TWO = key(1), key(2)


class Life:
    """A lane on a disk, of which every group that is committed is published at once."""

    def __init__(self, lane: Lane, store: SimStore, disk: Disk) -> None:
        self.lane, self.store, self.disk = lane, store, disk

    async def does(self, request):
        """Ask, and insist that the true answer is taken for true."""
        seen = self.store.see(request)
        answer = await ask(self.lane, request)
        self.store.published()
        assert list(self.store.untrue(request, answer, seen)) == []
        assert self.disk.durable.broken == []
        return answer

    def is_untrue(self, request, answer) -> bool:
        return bool(list(self.store.untrue(request, answer, self.store.see(request))))


@pytest.fixture(params=["memory", "sqlite"])
def disk(request):
    disk = Disk(request.param)
    yield disk
    disk.erase()


async def born(disk: Disk) -> Life:
    store = disk.insert(on_crash=lambda: None, note=forget)
    lane = Lane(store, limits=Limits(), clock=sim.sim_loop().clock("server"))
    await lane.open()
    return Life(lane, store, disk)


async def test_what_was_deleted_may_not_be_shown_again(disk: Disk):
    life = await born(disk)
    assert isinstance(await life.does(write(ONE, 1, 2)), Landed)
    page = await life.does(Read(ONE))
    assert isinstance(page, Page)
    assert page.batches
    assert isinstance(await life.does(delete(ONE, recreate=True)), Deleted)
    assert isinstance(await life.does(Read(ONE)), AggregateMissing)
    assert life.is_untrue(Read(ONE), page)
    assert isinstance(await life.does(write(ONE, 3)), Landed)
    assert life.is_untrue(Read(ONE), page)
    assert life.is_untrue(Read(ONE), AggregateMissing(ONE))
    await life.lane.close()


async def test_a_page_between_two_states_may_show_either(disk: Disk):
    life = await born(disk)
    await life.does(write(ONE, 1))
    before = await life.does(Read(ONE))
    seen = life.store.see(Read(ONE))
    await life.does(write(ONE, 2))
    after = await life.does(Read(ONE))
    assert before != after
    for page in (before, after):
        assert list(life.store.untrue(Read(ONE), page, seen)) == []
    assert life.is_untrue(Read(ONE), before)
    await life.lane.close()


async def test_what_was_trimmed_may_not_be_shown_again_and_the_rest_must_be(disk: Disk):
    life = await born(disk)
    for seq in (1, 2, 3):
        await life.does(write(ONE, seq))
    whole = await life.does(Read(ONE))
    details = await life.does(GetDetails(ONE))
    feed = await life.does(FeedRead(0))
    assert life.is_untrue(Trim(ONE, 2, A), Trimmed())
    assert isinstance(await life.does(Trim(ONE, 2, A)), Trimmed)
    assert isinstance(await life.does(Read(ONE)), BelowFloor)
    left = await life.does(Read(ONE, Read(ONE).filters._replace(from_version=2)))
    assert isinstance(left, Page)
    assert life.is_untrue(Read(ONE), whole)
    assert life.is_untrue(GetDetails(ONE), details)
    assert life.is_untrue(FeedRead(0), feed)
    above = Read(ONE, Read(ONE).filters._replace(from_version=2))
    assert life.is_untrue(above, left._replace(batches=left.batches[1:]))
    assert life.is_untrue(above, left._replace(batches=left.batches[:1]))
    now = await life.does(FeedRead(0))
    assert isinstance(now, FeedPage)
    assert life.is_untrue(FeedRead(0), now._replace(entries=now.entries[1:]))
    await life.lane.close()


async def test_a_sequence_from_before_a_delete_may_not_land_again(disk: Disk):
    life = await born(disk)
    await life.does(write(ONE, 1))
    await life.does(delete(ONE, recreate=True))
    again = write(ONE, 1)
    seen = life.store.see(again)
    assert any("landed again" in told for told in life.store.untrue(again, Landed((1,)), seen))
    assert isinstance(await life.does(write(ONE, 1, client=B)), Landed)
    await life.lane.close()


async def test_a_life_that_reads_back_something_else_is_noticed(disk: Disk, monkeypatch):
    life = await born(disk)
    for seq in (1, 2):
        await life.does(write(ONE, seq))
    await life.does(Trim(ONE, 2, A))
    await life.lane.close()
    load = SimStore.load

    def lossy(self, keys, pairs):
        stored = load(self, keys, pairs)
        heads = {one: head._replace(floor=1) for one, head in stored.heads.items()}
        return Stored(heads, {})

    later = await born(disk)
    assert disk.durable.broken == []
    monkeypatch.setattr(SimStore, "load", lossy)
    told = list(disk.durable.disagrees(later.store))
    assert len(told) == 2  # the floor, and the mark
    await later.lane.close()


async def test_a_file_may_lack_only_what_is_dead():
    disk = Disk("sqlite")
    life = await born(disk)
    for seq in (1, 2, 3):
        await life.does(write(ONE, seq))
    await life.does(write(TWO, 1))
    await life.does(Trim(ONE, 3, A))
    assert await life.lane.reclaim() == 2
    await life.lane.close()
    assert disk.path is not None
    acts = filed(disk.path).acts
    durable = disk.durable
    assert len(acts) == len(durable.acts) - 2
    assert list(durable.misses(acts)) == []
    for at in range(len(acts)):
        assert len(list(durable.misses([*acts[:at], *acts[at + 1 :]]))) == 1
    assert list(durable.misses([*acts, acts[0]._replace(position=99)]))
    changed = acts[0]._replace(version=7)
    assert list(durable.misses([changed, *acts[1:]]))
    disk.erase()
