"""Virtual time, order, threads, and what a run must not leave behind."""

import asyncio
import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from landed import sim


async def test_coroutine_tests_run_on_the_simulated_loop():
    assert isinstance(asyncio.get_running_loop(), sim.SimLoop)
    assert sim.sim_loop() is asyncio.get_running_loop()


@pytest.mark.real_loop
async def test_a_marked_test_runs_on_the_real_loop():
    assert not isinstance(asyncio.get_running_loop(), sim.SimLoop)


async def test_time_jumps_to_the_next_timer_and_nowhere_else():
    loop = asyncio.get_running_loop()
    start = loop.time()
    for _ in range(1000):
        await asyncio.sleep(0)
    assert loop.time() == start
    await asyncio.sleep(3600)
    assert loop.time() == start + 3600


async def test_what_is_due_at_one_moment_keeps_its_order():
    loop = asyncio.get_running_loop()
    seen: list[int] = []
    when = loop.time() + 1
    for number in range(50):
        loop.call_at(when, seen.append, number)
    await asyncio.sleep(2)
    assert seen == list(range(50))


async def test_thousands_of_cancelled_timers_are_swept_out():
    loop = asyncio.get_running_loop()
    for _ in range(5000):
        loop.call_later(3600, print).cancel()
    seen: list[str] = []
    kept = [loop.call_later(5, seen.append, "kept") for _ in range(3)]
    await asyncio.sleep(1)
    assert len(loop._timers) < 1000
    await asyncio.sleep(5)
    assert seen == ["kept"] * len(kept)


async def test_one_worker_runs_its_calls_one_after_another_and_tells_of_them_in_order():
    loop = asyncio.get_running_loop()
    executor = ThreadPoolExecutor(max_workers=1)
    ran: list[int] = []
    told: list[int] = []
    for number in range(20):
        future = loop.run_in_executor(executor, ran.append, number)
        future.add_done_callback(lambda _, number=number: told.append(number))
    await future
    await asyncio.sleep(0)
    assert ran == told == list(range(20))
    assert threading.active_count() == len(threading.enumerate())
    assert not executor._threads  # nothing was started


def test_several_workers_tell_of_their_calls_in_an_order_of_the_seed():
    async def order() -> tuple[int, ...]:
        told: list[int] = []

        async def call(number: int) -> None:
            told.append(await asyncio.to_thread(abs, number))

        async with asyncio.TaskGroup() as group:
            for number in range(6):
                group.create_task(call(number))
        return tuple(told)

    orders = [sim.run(order(), seed=seed) for seed in range(20)]
    assert len(set(orders)) > 10
    assert orders == [sim.run(order(), seed=seed) for seed in range(20)]


async def test_what_a_call_did_is_seen_before_the_news_of_it():
    loop = asyncio.get_running_loop()
    ran: list[float] = []
    future = loop.run_in_executor(None, lambda: ran.append(loop.time()))
    assert not ran
    await future
    assert ran[0] < loop.time()


async def test_a_cancelled_call_that_has_not_begun_never_runs():
    loop = asyncio.get_running_loop()
    executor = ThreadPoolExecutor(max_workers=1)
    ran: list[str] = []
    loop.run_in_executor(executor, ran.append, "first")
    loop.run_in_executor(executor, ran.append, "second").cancel()
    await loop.run_in_executor(executor, ran.append, "third")
    assert ran == ["first", "third"]


async def test_an_executor_that_is_shut_down_takes_no_call():
    executor = ThreadPoolExecutor(max_workers=1)
    executor.shutdown()
    with pytest.raises(RuntimeError, match="after shutdown"):
        asyncio.get_running_loop().run_in_executor(executor, print)


async def test_an_error_in_a_thread_reaches_whoever_awaits():
    with pytest.raises(ZeroDivisionError):
        await asyncio.to_thread(lambda: 1 / 0)


def test_a_task_left_behind_fails_the_run():
    kept = []

    async def main() -> None:
        kept.append(asyncio.create_task(asyncio.sleep(1000)))

    with pytest.raises(sim.WorldFailedError, match="tasks left behind"):
        sim.run(main())


def test_an_exception_that_nobody_takes_fails_the_run():
    async def raises() -> None:
        raise ValueError("dropped")

    async def main() -> None:
        asyncio.create_task(raises())  # noqa: RUF006  # dropping it is the point
        await asyncio.sleep(1)

    with pytest.raises(sim.WorldFailedError, match="dropped"):
        sim.run(main())


def test_an_exception_in_a_callback_fails_the_run():
    async def main() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)

    with pytest.raises(sim.WorldFailedError, match="ZeroDivisionError"):
        sim.run(main())


def test_a_coroutine_that_nobody_awaits_fails_the_run():
    async def forgotten() -> None:
        """Never run."""

    async def main() -> None:
        forgotten()  # type: ignore[unused-coroutine]
        await asyncio.sleep(1)

    with pytest.raises(sim.WorldFailedError, match="never awaited"):
        sim.run(main())


def test_a_wait_without_end_fails_the_run_at_once_and_names_who_waits():
    async def waits_for_godot() -> None:
        await asyncio.Event().wait()

    with pytest.raises(sim.SimulationStuckError, match="waits_for_godot"):
        sim.run(waits_for_godot())


def test_a_loop_that_never_waits_fails_the_run():
    async def spins() -> None:
        while True:  # the point
            await asyncio.sleep(0)

    with pytest.raises(sim.SimulationStuckError, match="without any time passing"):
        sim.run(spins())


def test_a_run_that_goes_on_for_ever_fails_at_its_horizon():
    async def ticks() -> None:
        while True:  # the point
            await asyncio.sleep(1)

    with pytest.raises(sim.SimulationStuckError, match="not over after"):
        sim.run(ticks(), horizon_s=100)


def test_the_error_of_the_main_coroutine_comes_through():
    async def main() -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        sim.run(main())


async def test_a_group_cancels_its_tasks_in_the_order_in_which_they_were_made():
    seen: list[int] = []

    async def waits(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            seen.append(number)

    with pytest.raises(ExceptionGroup):  # noqa: PT012  # what raises is the end of the group
        async with asyncio.TaskGroup() as group:
            for number in range(200):
                group.create_task(waits(number))
            await asyncio.sleep(1)
            group.create_task(asyncio.to_thread(int, "x"))
    assert len(seen) == 200
    assert seen == sorted(seen)


async def test_the_wall_clock_of_one_host_steps_and_no_other_clock_does():
    loop = sim.sim_loop()
    ours, theirs = loop.clock("ours"), loop.clock("theirs")
    assert loop.clock("ours") is ours
    with sim.on_host("ours"):
        assert loop.clock() is ours
    before = ours.monotonic_ms()
    ours.step_wall(-60_000)
    assert ours.wall_ms() - theirs.wall_ms() == -60_000
    assert ours.monotonic_ms() == before
    await asyncio.sleep(1)
    assert ours.monotonic_ms() == before + 1000
    assert ours.wall_ms() - theirs.wall_ms() == -60_000


async def test_signals_are_taken_and_never_come():
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(15, print)
    assert loop.remove_signal_handler(15) is False


async def test_async_generators_are_finished_by_the_loop():
    finished: list[str] = []

    async def numbers():
        try:
            yield 1
            yield 2
        finally:
            finished.append("finished")

    async def first() -> None:
        async for _ in numbers():
            return

    await first()
    gc.collect()
    await asyncio.sleep(0.1)
    assert finished == ["finished"]
