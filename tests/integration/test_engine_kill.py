"""``kill -9`` of a process that loads an engine: every acknowledged change once, none torn.

The audit opens the file itself, before the next start can recover anything.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from landed.clock import SystemClock
from landed.engines.ask import ask, ask_all
from landed.engines.sqlite import open_sqlite
from landed.engines.sqlite.check import verify
from landed.limits import Limits
from landed.log import Landed, SequenceInFlight, SequenceTaken, Write
from tests.integration import engine_child as child
from tests.integration.engine_audit import audit

ROOT = Path(__file__).parents[2]


class Knowledge:
    """What the world outside was told before the kill."""

    def __init__(self) -> None:
        self.attempted: dict[int, int] = defaultdict(int)
        self.acknowledged: dict[int, int] = defaultdict(int)
        self.versions: dict[int, int] = defaultdict(int)
        self.floors: dict[int, int] = defaultdict(int)

    def hear(self, line: str) -> bool:
        """Take one fact in. True: it was an acknowledgement."""
        word, who, number = line.split()
        facts = {
            "try": self.attempted,
            "ack": self.acknowledged,
            "version": self.versions,
            "floor": self.floors,
        }[word]
        facts[int(who)] = max(facts[int(who)], int(number))
        return word == "ack"

    def state(self) -> str:
        return json.dumps(
            {who: [self.acknowledged[who], self.attempted[who]] for who in self.attempted}
        )


def load_and_kill(
    path: Path, known: Knowledge, *, acks: int, seed: int, url: str | None = None
) -> None:
    """Run the child until so many writes were acknowledged, and a moment longer; then kill it."""
    # To a file: a pipe that nobody reads would hold up a child that has much to complain about.
    errors = path.with_name("errors.txt")
    with (
        errors.open("w") as to_file,
        subprocess.Popen(
            [sys.executable, "-m", "tests.integration.engine_child", url or str(path), str(seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=to_file,
            text=True,
            cwd=ROOT,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(known.state())
        process.stdin.close()
        heard = 0
        for line in process.stdout:
            heard += known.hear(line)
            if heard >= acks:
                break
        process.kill()
        # What was in the pipe was said before the kill.
        for line in process.stdout.read().splitlines(keepends=True):
            if line.endswith("\n"):
                known.hear(line)
        assert heard >= acks, errors.read_text()[-4_000:]


def check(path: Path, known: Knowledge) -> None:
    """Everything that was promised, against the bytes."""
    events, heads = audit(path)
    counts = Counter((event.key, event.client, event.client_seq) for event in events)
    found: dict[tuple[bytes, bytes], list[int]] = defaultdict(list)
    values = {(event.key, event.client, event.client_seq): event.value for event in events}
    for event in events:
        found[event.key, event.client].append(event.client_seq)
    for writer in range(child.WRITERS + child.TRANSFERS):
        legs = [found[one.packed, child.client(writer).bytes] for one in child.keys_of(writer)]
        for seqs in legs:
            assert seqs == legs[0], "one leg of a transfer without the other"
            assert seqs == list(range(1, len(seqs) + 1)), "a hole, a double or a disorder"
            assert known.acknowledged[writer] <= len(seqs) <= known.attempted[writer]
        for one in child.keys_of(writer):
            for seq in legs[0]:
                place = (one.packed, child.client(writer).bytes, seq)
                assert counts[place] == 1
                assert values[place] == child.value(writer, seq)
    for number in range(child.LIVES):
        head = heads.get(child.key(3, number).packed)
        assert head is not None or not known.versions[number]
        if head is not None:
            assert head["version"] >= known.versions[number], "a version that was acknowledged"
            assert head["life"] != 1 or head["floor"] >= known.floors[number]


def rounds(path: Path, count: int, acks: int, seed: int) -> None:
    generator = random.Random(seed)
    known = Knowledge()
    for round in range(count):
        load_and_kill(
            path, known, acks=generator.randrange(acks // 2, acks), seed=seed * 1_000 + round
        )
        check(path, known)
    assert verify(path).is_sound
    assert sum(known.acknowledged.values()) >= count * acks // 2


@pytest.mark.scenario("SC-70", "SC-44", "SC-58", "SC-66", "SC-33")
def test_whatever_was_acknowledged_survives_three_kills(tmp_path: Path) -> None:
    rounds(tmp_path / "log.db", 3, 400, 1)


@pytest.mark.long
@pytest.mark.scenario("SC-70", "SC-44", "SC-58", "SC-66")
@pytest.mark.parametrize("seed", range(2, 4))
def test_whatever_was_acknowledged_survives_twenty_kills(tmp_path: Path, seed: int) -> None:
    rounds(tmp_path / "log.db", 20, 3_000, seed)


@pytest.mark.scenario("SC-34", "SC-33", "SC-35")
async def test_every_client_is_still_refused_its_sequences_after_a_kill(tmp_path: Path) -> None:
    """All of them at once, and a new client lands all the same."""
    path = tmp_path / "log.db"
    known = Knowledge()
    load_and_kill(path, known, acks=600, seed=9)
    before = Counter((event.key, event.client) for event in audit(path).events)
    lane = await open_sqlite(path, limits=Limits(), clock=SystemClock())
    try:
        writers = [writer for writer, seq in known.acknowledged.items() if seq]
        assert len(writers) == child.WRITERS + child.TRANSFERS
        again: list[Write] = []
        for writer in writers:
            again += [child.write(writer, known.acknowledged[writer]), child.write(writer, 1)]
        for answer in await ask_all(lane, again):
            assert isinstance(answer, SequenceTaken | SequenceInFlight), answer
        newcomer = child.write(0, 1)._replace(client_id=child.client(99))
        assert isinstance(await ask(lane, newcomer), Landed)
    finally:
        await lane.close()
    after = Counter((event.key, event.client) for event in audit(path).events)
    assert before + Counter({(child.key(1, 0).packed, child.client(99).bytes): 1}) == after
