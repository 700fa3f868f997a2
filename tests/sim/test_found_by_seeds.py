"""Faults that a world showed first, each told again as a story that a person can follow."""

import asyncio
from random import Random
from uuid import UUID

from landed import sim
from landed.accounts.decide import command_of
from landed.accounts.domain import Accounts, Deposit, account_key
from landed.client.embedded import EmbeddedLog
from landed.commands import Done, How, Policy, SafeLoop, ServiceIdentity
from landed.engines.ask import ask
from landed.engines.lane import Lane
from landed.engines.memory import MemoryStore, open_memory
from landed.ids import EventId
from landed.limits import Limits
from landed.log import Event, Landed, Page, Read, Write
from landed.projections import MemoryProjection

ACCOUNT = UUID(int=7)
KEY = account_key(ACCOUNT)
ID = EventId(UUID(int=1001))
OTHER = EventId(UUID(int=1002))
IDENTITY = ServiceIdentity.from_config(UUID(int=5))
SCANNING = Policy(
    deadline_s=2, attempt_timeout_s=1, window_s=4, window_margin_s=1, scan_horizon_s=3600
)


class Wrapped(EmbeddedLog):
    """A log of which a test may delay or watch one verb."""

    async def before_info(self):
        """Called before each ``info``."""

    async def before_read(self, read):
        """Called before each ``read``."""

    async def info(self, **rest):
        await self.before_info()
        return await super().info(**rest)

    async def read(self, read, **rest):
        await self.before_read(read)
        return await super().read(read, **rest)


def replica(log, policy=None):
    return SafeLoop(
        log,
        identity=IDENTITY,
        projection=MemoryProjection(clock=sim.sim_loop().clock()),
        domain=Accounts(),
        policy=policy or Policy(),
        rng=Random(1),
    )


def deposit(cents, event_id):
    return command_of(Deposit(ACCOUNT, cents), event_id)


async def opened():
    return await open_memory(limits=Limits(), clock=sim.sim_loop().clock())


async def versions(engine):
    page = await ask(engine, Read(KEY))
    assert isinstance(page, Page)
    return len(page.batches)


async def test_a_call_that_waited_to_learn_which_log_it_is_looks_for_its_request_again():
    engine = await opened()
    log = Wrapped(engine)
    ours, theirs = replica(log), replica(EmbeddedLog(engine))
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def hold_the_first():
        if not asked.is_set():
            asked.set()
            await go_on.wait()

    log.before_info = hold_the_first
    retry = asyncio.create_task(ours.execute(deposit(50, ID)))
    await asked.wait()
    assert isinstance(await theirs.execute(deposit(50, ID)), Done)
    await ours.look(KEY)  # another request folds the event on this replica meanwhile
    assert isinstance(await theirs.execute(deposit(1, OTHER)), Done)
    go_on.set()
    outcome = await retry
    assert isinstance(outcome, Done)
    assert (How.ORIGINAL, 50) == (outcome.how, outcome.result.balance_cents)
    assert await versions(engine) == 2
    await engine.close()


async def test_a_scan_that_finds_what_landed_after_the_catch_up_does_not_answer_from_before_it():
    engine = await opened()
    log = Wrapped(engine)
    ours, theirs = replica(log, SCANNING), replica(EmbeddedLog(engine))
    await theirs.execute(deposit(7, OTHER))

    async def let_it_land(read):
        if read.filters.min_server_ms is not None:
            await theirs.execute(deposit(50, ID))

    log.before_read = let_it_land
    outcome = await ours.execute(deposit(50, ID))
    assert isinstance(outcome, Done)
    assert (57, 2) == (outcome.result.balance_cents, outcome.result.aggregate_version)
    assert await versions(engine) == 2
    await engine.close()


async def test_a_replica_that_only_ever_wrote_still_scans_for_a_request():
    engine = await opened()
    ours = replica(EmbeddedLog(engine), SCANNING)
    assert isinstance(await ours.execute(deposit(50, ID)), Done)
    await asyncio.sleep(60)  # its answer has expired
    outcome = await ours.execute(deposit(50, ID))
    assert isinstance(outcome, Done)
    assert outcome.how is How.REBUILT
    assert await versions(engine) == 1
    await engine.close()


def test_a_lookup_that_ends_late_does_not_take_a_change_back():
    async def read_beside_the_first_write():
        slow = MemoryStore(Limits(), log_id=UUID(int=1))
        lane = Lane(slow, limits=Limits(), clock=sim.sim_loop().clock())
        await lane.open()
        event = Event.new(1, b"", client_seq=1, event_id=ID)
        write = Write.to(KEY, [event], client_id=UUID(int=5), expected_version=0)
        landing = ask(lane, write)
        await asyncio.sleep(0)  # its lookup is under way when somebody reads
        reading = ask(lane, Read(KEY))
        assert isinstance(await landing, Landed)
        await reading
        await asyncio.sleep(1)
        assert isinstance(await ask(lane, Read(KEY)), Page)
        await lane.close()

    # Some seeds let the lookup of the read begin before the flush and end after it.
    stalling = sim.Dials(executor_s=(0.0, 0.01))
    for seed in range(100):
        sim.run(read_beside_the_first_write(), seed=seed, dials=stalling)


async def asked_again_after_a_restart(step_ms):
    """What a replica that folded afresh answers to a request of the server's life before."""
    clock = sim.HostClock(sim.sim_loop().time)
    store = MemoryStore(Limits(), log_id=UUID(int=1))
    first = Lane(store, limits=Limits(), clock=clock)
    await first.open()
    assert isinstance(await replica(EmbeddedLog(first)).execute(deposit(50, ID)), Done)
    await first.close()
    clock.step_wall(step_ms)
    second = Lane(store, limits=Limits(), clock=clock)
    await second.open()
    assert isinstance(await replica(EmbeddedLog(second)).execute(deposit(1, OTHER)), Done)
    cold = replica(EmbeddedLog(second))
    await cold.look(KEY)
    outcome = await cold.execute(deposit(50, ID))
    await second.close()
    return outcome.how


async def test_the_window_ends_early_if_a_server_starts_again_with_its_clock_put_forward():
    """The stated limit of the window: it is counted in the server's time, from life to life."""
    assert How.ORIGINAL is await asked_again_after_a_restart(0)
    assert How.ORIGINAL is await asked_again_after_a_restart(-86_400_000)
    assert How.FRESH is await asked_again_after_a_restart(+86_400_000)


async def asked_again_on_a_host_that_stands_still(span_s):
    """What a replica makes of a copy that it was given before its host stood still for so long."""
    log = EmbeddedLog(await open_memory(limits=Limits(), clock=sim.sim_loop().clock("server")))
    with sim.on_host("replica"):
        one = replica(log)
        assert isinstance(await one.execute(deposit(50, ID)), Done)
        sim.sim_loop().pause("replica")
        again = asyncio.create_task(one.execute(deposit(50, ID)))
    await asyncio.sleep(span_s)
    sim.sim_loop().resume("replica")
    return (await again).how


async def test_a_request_that_lies_in_a_stopped_process_until_its_key_is_forgotten_executes_again():
    """The stated limit of the window (seed 6667): to lie there unread is to be sent that much later."""
    window_s = Policy().window_s
    assert How.ORIGINAL is await asked_again_on_a_host_that_stands_still(window_s / 2)
    assert How.FRESH is await asked_again_on_a_host_that_stands_still(window_s * 2)
