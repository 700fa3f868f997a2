"""Two devices edit one thing offline: the projection resolves it, the same for every reader."""

import asyncio
import importlib.util
import json
from functools import reduce
from itertools import permutations
from pathlib import Path
from uuid import UUID

from landed.log import Event
from tests.stories.faulty import LoseAnswer
from tests.unit.offline.devices import Device, landed, world

SPEC = importlib.util.spec_from_file_location(
    "two_devices", Path(__file__).parents[3] / "examples/08_two_devices.py"
)
example = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(example)

ANN, BEN = UUID(int=1), UUID(int=2)


def event(number, kind, at_ms=0, **said) -> Event:
    value = json.dumps(said).encode()
    return Event.new(kind, value, client_seq=number, event_id=UUID(int=number), event_ms=at_ms)


def folded(events) -> example.Trip:
    return reduce(lambda trip, one: example.fold(trip, one[1], one[0]), events, example.Trip())


def test_the_last_writer_s_title_wins_in_whichever_order_the_devices_sync():
    edits = [
        (ANN, event(1, example.RENAMED, 10, title="a")),
        (BEN, event(2, example.RENAMED, 30, title="b")),
        (ANN, event(3, example.RENAMED, 20, title="c")),
    ]
    assert {folded(order).title for order in permutations(edits)} == {"b"}


def test_a_tie_is_decided_alike_by_every_reader():
    edits = [
        (ANN, event(1, example.RENAMED, 10, title="a")),
        (BEN, event(2, example.RENAMED, 10, title="b")),
    ]
    assert {folded(order).title for order in permutations(edits)} == {"b"}


def test_what_one_device_adds_survives_a_removal_that_had_not_seen_it():
    first = (ANN, event(1, example.PACKED, item="rope"))
    again = (ANN, event(2, example.PACKED, item="rope"))
    removed = (BEN, event(3, example.UNPACKED, item="rope", seen=[str(UUID(int=1))]))
    assert folded([first, removed]).packing_list == []
    for order in ([first, again, removed], [first, removed, again]):
        assert folded(order).packing_list == ["rope"]


async def test_two_devices_see_the_same_after_both_synced_and_their_own_before():
    for orders in permutations((0, 1)):
        async with world() as (ann, log):
            ben = Device(client_id=BEN)
            devices = [ann, ben]
            await example.edit(ann.queue, example.RENAMED, 20, title="mine")
            await example.edit(ann.queue, example.PACKED, 20, item="rope")
            await example.edit(ben.queue, example.RENAMED, 10, title="theirs")
            await example.edit(ben.queue, example.PACKED, 10, item="tent")
            seen = [await example.read(log, device.queue) for device in devices]
            assert [trip.title for trip in seen] == ["mine", "theirs"]
            log.on_write(LoseAnswer())
            for number in orders:
                await devices[number].queue.sync(log)
            seen = [await example.read(log, device.queue) for device in devices]
            assert [(trip.title, trip.packing_list) for trip in seen] == [
                ("mine", ["rope", "tent"])
            ] * 2
            assert len(await landed(log, example.TRIP)) == 4
            ben.disk.close()


async def test_an_event_that_landed_unheard_is_not_folded_twice():
    async with world() as (device, log):
        await example.edit(device.queue, example.PACKED, 1, item="rope")
        pause = log.pause("after_send")
        syncing = asyncio.create_task(device.queue.sync(log))
        await pause.reached.wait()
        trip = await example.read(log, device.queue)
        assert [len(adds) for adds in trip.items.values()] == [1]
        assert (await device.queue.status()).queued == 1
        pause.go_on()
        await syncing
        assert len(await landed(log, example.TRIP)) == 1
