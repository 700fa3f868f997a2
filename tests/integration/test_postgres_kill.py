"""``kill -9`` of a process that loads a log on PostgreSQL: every acknowledged change once, none torn."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path

import pytest

from landed.wire.codec import decode_events
from tests.integration import engine_child as child
from tests.integration.test_engine_kill import Knowledge, load_and_kill
from tests.logs_on_postgres import Place, look_into

_HALF = 2**63
_ENTRIES = (
    "SELECT h.key, e.client, e.kind, e.incarnation, e.version, e.body FROM landed_log_entries AS e "
    "JOIN landed_log_heads AS h USING (number) ORDER BY e.position"
)
_MARKS = (
    "SELECT h.key, m.client, m.mark FROM landed_log_marks AS m "
    "JOIN landed_log_heads AS h USING (number)"
)
_HEADS = "SELECT key, life, incarnation, version, floor FROM landed_log_heads"
_OPEN = (
    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'landed' AND state <> 'idle' "
    "AND pid <> pg_backend_pid()"
)


def check(url: str, known: Knowledge) -> None:
    """Everything that was promised, against the rows."""
    with look_into(url) as connection:
        while connection.execute(_OPEN).fetchone() != (0,):
            pass  # the server still finishes what the dead process had sent
        entries = connection.execute(_ENTRIES).fetchall()
        marks = {
            (key, client.bytes): mark + _HALF for key, client, mark in connection.execute(_MARKS)
        }
        heads = {key: rest for key, *rest in connection.execute(_HEADS)}
    seqs: dict[tuple[bytes, bytes], list[int]] = defaultdict(list)
    values: dict[tuple[bytes, bytes, int], bytes] = {}
    lives: dict[tuple[bytes, int], list[int]] = defaultdict(list)
    for key, client, kind, incarnation, version, body in entries:
        if kind == 1:
            lives[key, incarnation].append(version)
            for event in decode_events(body):
                seqs[key, client.bytes].append(event.client_seq)
                values[key, client.bytes, event.client_seq] = event.value
    for (key, incarnation), versions in lives.items():
        assert versions == list(range(versions[0], versions[0] + len(versions))), (
            "a hole or a double"
        )
        if heads[key][1] == incarnation:
            assert heads[key][2] == versions[-1]
    for writer in range(child.WRITERS + child.TRANSFERS):
        client = child.client(writer).bytes
        legs = [seqs[one.packed, client] for one in child.keys_of(writer)]
        for one, leg in zip(child.keys_of(writer), legs, strict=True):
            assert leg == legs[0], "one leg of a transfer without the other"
            assert leg == list(range(1, len(leg) + 1)), "a hole, a double or a disorder"
            assert marks.get((one.packed, client), 0) == len(leg)
            for seq in leg:
                assert values[one.packed, client, seq] == child.value(writer, seq)
        assert known.acknowledged[writer] <= len(legs[0]) <= known.attempted[writer]
    for number in range(child.LIVES):
        if known.versions[number]:
            life, _, version, floor = heads[child.key(3, number).packed]
            assert version >= known.versions[number], "a version that was acknowledged"
            assert life != 1 or floor >= known.floors[number]


@pytest.mark.scenario("SC-70", "SC-44", "SC-58", "SC-66", "SC-33")
@pytest.mark.parametrize(
    ("rounds", "acks"), [(3, 400), pytest.param(20, 3_000, marks=pytest.mark.long)]
)
def test_whatever_was_acknowledged_survives_the_process(
    postgres_place: Place, tmp_path: Path, rounds: int, acks: int
) -> None:
    url = postgres_place.new_log()
    draw = random.Random(rounds)
    known = Knowledge()
    for round in range(rounds):
        wanted = draw.randrange(acks // 2, acks)
        load_and_kill(tmp_path / "log", known, acks=wanted, seed=round, url=url)
        check(url, known)
    assert sum(known.acknowledged.values()) >= rounds * acks // 2
