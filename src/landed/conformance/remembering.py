"""Obligations: marks outlive restarts, trims, deletes and caches (log rules I15, I17 to I19)."""

from __future__ import annotations

from uuid import UUID

from landed.conformance.registry import Lever, obligation
from landed.conformance.trial import A, B, C, Trial, count, key, write
from landed.ids import ClientId
from landed.log import ANY, Landed, SequenceInFlight, SequenceTaken, Write


def _client(n: int) -> ClientId:
    return ClientId(UUID(int=500 + n))


@obligation("SC-30", levers=(Lever.RESTART,))
async def marks_survive_a_trim_of_all_their_batches(trial: Trial) -> None:
    for client in (A, B):
        for seq in (1, 2, 3):
            await trial.land(write(key(), seq, client=client))
    await trial.trim(key(), 5)
    for seq in (3, 2):
        assert await trial.ask(write(key(), seq)) == SequenceTaken(key(), 3, seq)
    assert await trial.land(write(key(), 1, client=C)) == 7
    await trial.restart()
    for client in (A, B):
        assert await trial.ask(write(key(), 3, client=client)) == SequenceTaken(key(), 3, 3)
    assert await trial.land(write(key(), 4)) == 8


@obligation("SC-31", levers=(Lever.RESTART,))
async def marks_survive_a_recreate_that_goes_on_counting(trial: Trial) -> None:
    for seq in (1, 2, 3):
        await trial.land(write(key(), seq))
    await trial.delete(key(), recreate=True, go_on=True)
    assert await trial.ask(write(key(), 3)) == SequenceTaken(key(), 3, 3)
    assert await trial.land(write(key(), 1, client=C)) == 4
    assert await trial.land(write(key(), 4)) == 5
    await trial.restart()
    assert await trial.ask(write(key(), 3)) == SequenceTaken(key(), 4, 3)


@obligation("SC-32", "X4", levers=(Lever.RESTART,))
async def marks_survive_a_recreate_that_starts_again(trial: Trial) -> None:
    for seq in (1, 2, 3):
        await trial.land(write(key(), seq))
    await trial.delete(key(), recreate=True)
    assert await trial.ask(write(key(), 3)) == SequenceTaken(key(), 3, 3)
    assert await trial.land(write(key(), 1, client=C)) == 1
    assert await trial.land(write(key(), 4)) == 2
    await trial.restart()
    assert await trial.ask(write(key(), 4)) == SequenceTaken(key(), 4, 4)


@obligation("SC-33", levers=(Lever.RESTART,))
async def the_oldest_of_many_clients_is_remembered(trial: Trial) -> None:
    for n in range(24):
        await trial.land(write(key(), 1, client=_client(n)))
        await trial.ask_all(write(key(1_000 + 20 * n + m), 1) for m in range(20))
    await trial.restart()
    assert await trial.ask(write(key(), 1, client=_client(0))) == SequenceTaken(key(), 1, 1)
    assert await trial.land(write(key(), 2, client=_client(0))) == 25


@obligation("SC-34", "I17", levers=(Lever.RESTART,))
async def cold_resends_of_many_clients_at_once_are_all_taken(trial: Trial) -> None:
    def wave(seq: int) -> list[Write]:
        return [write(key(n % 4), seq, client=_client(n)) for n in range(32)]

    for seq in (1, 2, 3):
        assert count(Landed, await trial.ask_all(wave(seq))) == 32
    await trial.restart()
    answers = await trial.ask_all(wave(3))
    assert answers == [SequenceTaken(key(n % 4), 3, 3) for n in range(32)]
    assert await trial.land(write(key(0), 1, client=_client(99))) == 25
    for n in range(32):
        batches = await trial.batches(key(n % 4), include_client=_client(n))
        assert len(batches) == 3


@obligation("SC-35", levers=(Lever.RESTART, Lever.RECLAIM))
async def early_clients_are_remembered_behind_much_data(trial: Trial) -> None:
    early = [write(key(n), 1, client=_client(n)) for n in range(8)]
    await trial.ask_all(early)
    for n in range(40):
        await trial.ask_all(
            write(key(100 + n), seq, value=bytes(2_000), enforce=False) for seq in range(1, 6)
        )
        await trial.trim(key(100 + n), 5)
    await trial.reclaim()
    taken = [SequenceTaken(key(n), 1, 1) for n in range(8)]
    assert await trial.ask_all(early) == taken
    await trial.restart()
    assert await trial.ask_all(early) == taken


@obligation("I5", "X10", levers=(Lever.RESTART,))
async def a_low_batch_does_not_lower_the_mark_after_a_restart(trial: Trial) -> None:
    await trial.land(write(key(), 10))
    await trial.restart()
    await trial.land(write(key(), 4, enforce=False))
    assert await trial.ask(write(key(), 7)) == SequenceTaken(key(), 10, 7)
    await trial.restart()
    assert await trial.ask(write(key(), 10)) == SequenceTaken(key(), 10, 10)
    await trial.land(write(key(), 11, 3, enforce=False))
    await trial.restart()
    assert await trial.ask(write(key(), 11)) == SequenceTaken(key(), 11, 11)


@obligation("I18", levers=(Lever.RESTART,))
async def an_unenforced_write_raises_a_mark_that_was_never_looked_up(trial: Trial) -> None:
    await trial.land(write(key(), 3))
    await trial.restart()
    writes = [write(key(), 8, enforce=False), write(key(), 8), write(key(), 9)]
    first, second, third = await trial.ask_all(writes)
    assert (first, third) == (Landed((2,)), Landed((3,)))
    assert second == SequenceInFlight(key(), 8, 8)
    assert await trial.ask(write(key(), 8)) == SequenceTaken(key(), 9, 8)


@obligation("I17", cached_heads_max=2, cached_marks_max=2)
async def small_caches_change_no_answer(trial: Trial) -> None:
    for seq in (1, 2, 3):
        for n in range(10):
            at = seq - 1 if n % 2 else ANY
            assert await trial.land(write(key(n), seq, at=at)) == seq
    resent = await trial.ask_all(write(key(n), 2) for n in range(10))
    assert resent == [SequenceTaken(key(n), 3, 2) for n in range(10)]
    for n in range(10):
        assert await trial.versions(key(n)) == [1, 2, 3]
        assert (await trial.details(key(n))).version == 3


@obligation("I19", cached_marks_max=4)
async def a_new_client_id_a_request_is_legal(trial: Trial) -> None:
    answers = await trial.ask_all(write(key(), 1, client=_client(n)) for n in range(200))
    assert answers == [Landed((n,)) for n in range(1, 201)]
    again = await trial.ask_all(write(key(), 1, client=_client(n)) for n in range(200))
    assert count(SequenceTaken, again) == 200


@obligation("SC-71", "C11", levers=(Lever.RESTART,))
async def everything_goes_on_after_a_restart(trial: Trial) -> None:
    for seq in (1, 2, 3):
        await trial.land(write(key(), seq, seq * 10, enforce=False))
    before = await trial.batches(key())
    identity, position = trial.engine.identity, trial.engine.position
    await trial.restart()
    assert await trial.batches(key()) == before
    assert (trial.engine.identity, trial.engine.position) == (identity, position)
    assert await trial.land(write(key(), 31, at=3)) == 4
    assert (await trial.batches(key()))[-1].events[0].event_seq == 7
