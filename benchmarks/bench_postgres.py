"""(i) The log on PostgreSQL beside the same rows written by hand, and beside what others write there.

One server, started for this run on the disk that is measured, with its own settings of durability.
*By hand* is one connection that does what a careful team writes: it locks and loads the heads of a
group in one statement, checks version and sequence in Python, and inserts entries, heads and marks
into the same tables with one statement each, in a pipeline. It keeps no checksums, encodes nothing,
and takes no place in a feed that other processes write too.
"""

# ruff: noqa: PLC0415  # a peer that is not installed hinders nothing

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

import psycopg
from benchmarks.bench_engine import check
from benchmarks.bench_peers import THREADS, Insert, best_of, inserting, threaded_rate
from benchmarks.report import Figure, Plan, Report, interleaved, micros, per_s, ratios
from benchmarks.workload import CLIENT, PAYLOAD, Aggregates, calm_collector

from landed.clock import SystemClock
from landed.engines.ask import ask, ask_all
from landed.engines.copying import RECORDS, Entry, Frozen, HeadOf, Mark
from landed.engines.port import LogIdentity
from landed.engines.postgres import OPTIONS, PostgresEngine, open_postgres
from landed.engines.postgres.copying import TablesTarget
from landed.engines.postgres.schema import STEPS
from landed.ids import ClientId
from landed.limits import Limits
from landed.log import Event, Head, Life, Write
from landed.postgres.checks import look, open_connection
from landed.postgres.dsn import Dsn, parse_dsn
from landed.wire.codec import encode_events
from tests.handling import postgres

AGGREGATES: Final = 8_192
HISTORY: Final = 10
"""Events of an aggregate in an aged log."""


class Shape(NamedTuple):
    in_flight: int
    commits: int
    """In one round."""
    target: float | None


SHAPES: Final = (Shape(1, 150, None), Shape(8, 60, None), Shape(64, 30, 0.5), Shape(512, 6, 0.5))
AGED: Final = 64
"""In flight where a young and an old log are compared, besides a lone write."""


def steps(plan: Plan) -> int:
    """How far the bar moves."""
    return 1 + plan.rounds * (len(SHAPES) + 3)


def run(plan: Plan, report: Report) -> None:
    """Measure, and add to the report."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="landed-bench-")))
        folder.chmod(0o755)  # the server is another user
        cluster = stack.enter_context(postgres.cluster(folder))
        stack.enter_context(calm_collector())
        runner = stack.enter_context(asyncio.Runner())
        ours = Ours(runner, parse_dsn(cluster.landed_url(cluster.create()), own=OPTIONS))
        report.console.print(f"postgres, every side: {durability_of(ours.dsn)}", highlight=False)
        report.doing("postgres: warming aggregates")
        ours.warm(1_024 if plan.is_quick else AGGREGATES)
        hand = ByHand(cluster.conninfo(cluster.create()))
        hand.warm(1_024 if plan.is_quick else AGGREGATES)
        report.step()
        for shape in SHAPES:
            _beside_by_hand(plan, report, shape, ours, hand)
        _beside_peers(plan, report, ours, cluster)
        ours.close()
        hand.close()
        _age(plan, report, runner, cluster)


def durability_of(dsn: Dsn) -> str:
    """The settings that say what a commit is worth."""
    with open_connection(dsn) as connection:
        server = look(connection)
    return (
        f"PostgreSQL {server.version}, fsync={server.fsync}, "
        f"synchronous_commit={server.synchronous_commit}, "
        f"full_page_writes={server.full_page_writes}, no standby"
    )


class Waves(NamedTuple):
    """One measurement."""

    rate: float
    waits_s: list[float]
    """Of each group sent at once, until its last answer."""


class Ours:
    """The engine on a database, with its aggregates warm."""

    def __init__(self, runner: asyncio.Runner, dsn: Dsn) -> None:
        self.dsn = dsn
        self._runner = runner
        self._aggregates = Aggregates(0)
        opening = open_postgres(dsn, limits=Limits(), clock=SystemClock())
        self._engine: PostgresEngine = runner.run(opening)

    def warm(self, count: int) -> None:
        self._aggregates = Aggregates(count)
        for first in range(0, count, 512):
            ats = range(first, min(first + 512, count))
            check(self._runner.run(self._sent([self._aggregates.write(at) for at in ats])))

    def take(self, aggregates: Aggregates) -> None:
        """Go on with aggregates that are there already."""
        self._aggregates = aggregates

    async def _sent(self, writes: list[Write]) -> Any:
        return await ask_all(self._engine, writes)

    def waves(self, shape: Shape) -> Waves:
        return self._runner.run(self._waves(shape))

    async def _waves(self, shape: Shape) -> Waves:
        batches = [self._aggregates.some(shape.in_flight) for _ in range(shape.commits)]
        waits = []
        began = time.perf_counter()
        for batch in batches:
            sent = time.perf_counter()
            # A lone write goes the way of a lone write.
            answers = (
                [await ask(self._engine, batch[0])]
                if len(batch) == 1
                else await ask_all(self._engine, batch)
            )
            waits.append(time.perf_counter() - sent)
            check(answers)
        rate = shape.in_flight * shape.commits / (time.perf_counter() - began)
        return Waves(rate, waits)

    def close(self) -> None:
        self._runner.run(self._engine.close())


LOCK: Final = (
    "SELECT h.key, h.number, h.version, h.event_seq, m.mark FROM landed_log_heads AS h "
    "JOIN landed_log_marks AS m ON m.number = h.number AND m.client = %s "
    "WHERE h.key = ANY(%s) ORDER BY h.key FOR UPDATE OF h"
)
ENTRIES: Final = (
    "INSERT INTO landed_log_entries (position, number, kind, flags, incarnation, version, event_seq,"
    " event_count, server_ms, min_seq, max_seq, size, row_check, client, body) "
    "SELECT p, n, 1, 0, 1, v, v, 1, %s, s, s, octet_length(b), 0, %s, b FROM "
    "unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bytea[]) AS r (p, n, v, s, b)"
)
HEADS: Final = (
    "UPDATE landed_log_heads AS h SET version = r.v, event_seq = r.v, last_ms = %s, last_client = %s "
    "FROM unnest(%s::bigint[], %s::bigint[]) AS r (n, v) WHERE h.number = r.n"
)
MARKS: Final = (
    "UPDATE landed_log_marks AS m SET mark = r.s FROM unnest(%s::bigint[], %s::bigint[]) AS r (n, s) "
    "WHERE m.number = r.n AND m.client = %s"
)
SIZE: Final = (
    "SELECT (SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class AS c WHERE c.relkind = 'r' "
    "AND c.relname LIKE 'landed\\_log\\_%')::bigint, "
    "(SELECT sum(size) FROM landed_log_entries)::bigint"
)
NEW_HEAD: Final = "INSERT INTO landed_log_heads SELECT %s, %s, 1, 0, 1, 0, 0, 1, 0, 0, %s, NULL "
ONE_CALL: Final = """
CREATE SEQUENCE one_call START 1000000000;
CREATE FUNCTION write_one(k bytea, c uuid, expected bigint, seq bigint, now_ms bigint, b bytea)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE h record; m bigint;
BEGIN
  SELECT number, version INTO h FROM landed_log_heads WHERE key = k FOR UPDATE;
  IF h.version <> expected THEN RAISE EXCEPTION 'conflict'; END IF;
  SELECT mark INTO m FROM landed_log_marks WHERE number = h.number AND client = c;
  IF m >= seq THEN RAISE EXCEPTION 'taken'; END IF;
  INSERT INTO landed_log_entries (position, number, kind, flags, incarnation, version, event_seq,
    event_count, server_ms, min_seq, max_seq, size, row_check, client, body)
  VALUES (nextval('one_call'), h.number, 1, 0, 1, h.version + 1, h.version + 1, 1, now_ms, seq, seq,
    octet_length(b), 0, c, b);
  UPDATE landed_log_heads SET version = h.version + 1, event_seq = h.version + 1, last_ms = now_ms,
    last_client = c WHERE number = h.number;
  UPDATE landed_log_marks SET mark = seq WHERE number = h.number AND client = c;
  RETURN h.version + 1;
END $$;
"""


class ByHand:
    """The same tables, written by a careful hand. See the top of this file."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._connection = psycopg.connect(conninfo, autocommit=True)
        self._connection.prepare_threshold = 1
        self._connection.execute(STEPS[0].sql)
        self._connection.execute(ONE_CALL)
        self._position = 0
        self._aggregates = Aggregates(0)

    def warm(self, count: int) -> None:
        self._aggregates = Aggregates(count)
        with self._connection.transaction(), self._connection.cursor() as cursor:
            keys = enumerate(self._aggregates.keys, start=1)
            cursor.executemany(NEW_HEAD, [(key.packed, n, CLIENT) for n, key in keys])
            cursor.execute(
                "INSERT INTO landed_log_marks SELECT number, %s, 0, 0 FROM landed_log_heads",
                (CLIENT,),
            )
        self._position = count
        self._connection.execute("ANALYZE")

    def waves(self, shape: Shape) -> Waves:
        groups = [self._rows(self._aggregates.some(shape.in_flight)) for _ in range(shape.commits)]
        waits = []
        began = time.perf_counter()
        for group in groups:
            sent = time.perf_counter()
            self._commit(group)
            waits.append(time.perf_counter() - sent)
        rate = shape.in_flight * shape.commits / (time.perf_counter() - began)
        return Waves(rate, waits)

    @staticmethod
    def _rows(writes: list[Write]) -> dict[bytes, tuple[int, int, bytes]]:
        rows = {}
        for write in writes:
            (leg,) = write.legs
            seq, version = leg.events[0].client_seq, leg.expected_version
            assert version is not None
            rows[leg.key.packed] = (version, seq, encode_events(leg.events))
        return rows

    def _commit(self, group: dict[bytes, tuple[int, int, bytes]]) -> None:
        connection = self._connection
        with connection.pipeline():
            connection.execute("BEGIN")
            found = connection.execute(LOCK, (CLIENT, list(group)), binary=True).fetchall()
        numbers, versions, seqs, bodies = [], [], [], []
        for key, number, version, _, mark in found:
            expected, seq, body = group[key]
            if version != expected or mark >= seq:
                raise SystemExit(f"refused by hand: {number}")
            numbers.append(number)
            versions.append(version + 1)
            seqs.append(seq)
            bodies.append(body)
        if len(numbers) != len(group):
            raise SystemExit("aggregates are gone")
        first, self._position = self._position + 1, self._position + len(numbers)
        positions = list(range(first, self._position + 1))
        now_ms = SystemClock().wall_ms()
        with connection.pipeline():
            connection.execute(
                ENTRIES, (now_ms, CLIENT, positions, numbers, versions, seqs, bodies)
            )
            connection.execute(HEADS, (now_ms, CLIENT, numbers, versions))
            connection.execute(MARKS, (numbers, seqs, CLIENT))
            connection.execute("COMMIT")

    def called_rate(self, connections: int, writes: int) -> float:
        """Writes a second with one call of a function for each, over so many connections."""
        opened = [psycopg.connect(self._conninfo, autocommit=True) for _ in range(connections)]
        rows = list(self._rows(self._aggregates.some(writes)).items())

        def work(at: int) -> int:
            mine = rows[at::connections]
            for key, (version, seq, body) in mine:
                opened[at].execute(
                    "SELECT write_one(%s, %s, %s, %s, %s, %s)",
                    (key, CLIENT, version, seq, 0, body),
                    prepare=True,
                )
            return len(mine)

        try:
            with ThreadPoolExecutor(connections) as pool:
                began = time.perf_counter()
                done = sum(pool.map(work, range(connections)))
                return done / (time.perf_counter() - began)
        finally:
            for connection in opened:
                connection.close()

    def close(self) -> None:
        self._connection.close()


def _beside_by_hand(plan: Plan, report: Report, shape: Shape, ours: Ours, hand: ByHand) -> None:
    in_flight = shape.in_flight
    report.doing(f"postgres: {in_flight} in flight")
    if plan.is_quick:
        shape = shape._replace(commits=max(2, shape.commits // 5))
    waits: dict[str, list[list[float]]] = {"ours": [], "hand": []}

    def measured(name: str, side: Ours | ByHand) -> float:
        found = side.waves(shape)
        waits[name].append(found.waits_s)
        return found.rate if in_flight > 1 else 1 / statistics.median(found.waits_s)

    found = interleaved(
        plan.rounds,
        {"ours": partial(measured, "ours", ours), "hand": partial(measured, "hand", hand)},
        after=report.step,
    )
    if in_flight == 1:
        lone = [[1 / rate for rate in found[name]] for name in ("ours", "hand")]
        report.add(
            Figure(
                bench="postgres",
                subject="a lone write, against a transaction by hand",
                rounds=ratios(*lone),
                unit="x",
                measured=micros(lone[0]),
                against=micros(lone[1]),
                target=1.5,
                is_more_better=False,
            )
        )
    else:
        report.add(
            Figure(
                bench="postgres",
                subject=f"{in_flight} in flight, against the same rows by hand",
                rounds=ratios(found["ours"], found["hand"]),
                unit="x",
                measured=per_s(found["ours"]),
                against=per_s(found["hand"]),
                target=shape.target,
            )
        )
    report.add(_slowest(in_flight, waits["ours"], waits["hand"]))


def _slowest(in_flight: int, ours: list[list[float]], hand: list[list[float]]) -> Figure:
    """How long the unlucky wait: the 99th percentile over the median, and by hand in words."""
    every, by_hand = [sorted(chain.from_iterable(rounds)) for rounds in (ours, hand)]
    return Figure(
        bench="postgres",
        subject=f"{in_flight} in flight, 99th percentile of the wait over its median",
        rounds=tuple([_percentile(sorted(one), 99) / statistics.median(one) for one in ours]),
        unit="x",
        measured=f"{micros([_percentile(every, 50)])}, {micros([_percentile(every, 99)])}",
        against=f"{micros([_percentile(by_hand, 50)])}, {micros([_percentile(by_hand, 99)])}",
    )


def _percentile(waits_s: list[float], percent: int) -> float:
    return waits_s[min(len(waits_s) - 1, len(waits_s) * percent // 100)]


# --- peers


@contextmanager
def _eventsourcing(sockets: Path, database: str, *, with_functions: bool) -> Iterator[Insert]:
    from eventsourcing.postgres import PostgresApplicationRecorder, PostgresDatastore

    store = PostgresDatastore(
        dbname=database,
        host=str(sockets),
        port="",
        user="postgres",
        password="",
        pool_size=max(THREADS),
        enable_db_functions=with_functions,
    )
    try:
        recorder = PostgresApplicationRecorder(store)
        recorder.create_table()
        yield inserting(recorder)
    finally:
        store.close()


def _beside_peers(plan: Plan, report: Report, ours: Ours, cluster: postgres.Cluster) -> None:
    report.doing("postgres: peers")
    writes = 192 if plan.is_quick else 640
    shape = Shape(64, 4 if plan.is_quick else 30, None)
    hand = ByHand(cluster.conninfo(cluster.create()))
    hand.warm(1_024 if plan.is_quick else AGGREGATES)
    targets = {"one PL/pgSQL call a write": 1.5}
    kinds: dict[str, dict[str, Callable[[], float]]] = {
        "one PL/pgSQL call a write": {
            f"{count} connections": partial(hand.called_rate, count, 2 * writes)
            for count in THREADS
        }
    }
    with ExitStack() as stack:
        if find_spec("eventsourcing") is None:
            report.console.print("postgres: eventsourcing is not installed: not measured")
        else:
            for name, target in (("eventsourcing", 8.0), ("eventsourcing, its functions", 3.5)):
                insert = stack.enter_context(
                    _eventsourcing(
                        cluster.sockets, cluster.create(), with_functions="functions" in name
                    )
                )
                targets[name] = target
                kinds[name] = {
                    f"{threads} threads": partial(threaded_rate, insert, threads, writes)
                    for threads in THREADS
                }
        subjects: dict[str, Callable[[], float]] = {"ours": lambda: ours.waves(shape).rate}
        for kind, ways in kinds.items():
            subjects |= {f"{kind}, {way}": measure for way, measure in ways.items()}
        found = interleaved(plan.rounds, subjects, after=report.step)
    hand.close()
    for kind, ways in kinds.items():
        best, name = best_of(found, [f"{kind}, {way}" for way in ways])
        report.add(
            Figure(
                bench="postgres",
                subject=f"64 in flight, against {kind} at its best ({name.rpartition(', ')[2]})",
                rounds=ratios(found["ours"], best),
                unit="x",
                measured=per_s(found["ours"]),
                against=per_s(best),
                target=targets[kind],
            )
        )


# --- age


def _age(plan: Plan, report: Report, runner: asyncio.Runner, cluster: postgres.Cluster) -> None:
    """A young and an old log on one server, written to in turn."""
    old_events = 50_000 if plan.is_quick else 1_000_000
    sides = {}
    for events in (10_000, old_events):
        report.doing(f"postgres: a log of {events:,} events")
        dsn = parse_dsn(cluster.landed_url(cluster.create()), own=OPTIONS)
        aggregates = _aged(dsn, events)
        with open_connection(dsn) as connection:
            connection.execute("VACUUM ANALYZE")
            size = connection.execute(SIZE).fetchone()
        sides[events] = Ours(runner, dsn)
        sides[events].take(aggregates)
        assert size is not None
    cluster.execute("CHECKPOINT")
    report.add(_size(old_events, *size))
    for shape in (Shape(1, 100, None), Shape(AGED, 20, None)):
        in_flight = shape.in_flight
        report.doing(f"postgres: age, {in_flight} in flight")

        def seconds(side: Ours, shape: Shape = shape) -> float:
            return statistics.median(side.waves(shape).waits_s)

        for side in sides.values():
            seconds(side)
        found = interleaved(
            plan.rounds,
            {str(events): partial(seconds, side) for events, side in sides.items()},
            after=report.step,
        )
        old, young = found[str(old_events)], found["10000"]
        report.add(
            Figure(
                bench="postgres",
                subject=f"{in_flight} in flight, {old_events:,} events against 10,000",
                rounds=ratios(old, young),
                unit="x",
                measured=micros(old),
                against=micros(young),
                target=1.3,
                is_more_better=False,
            )
        )
    for side in sides.values():
        side.close()


def _size(events: int, taken: int, encoded: int) -> Figure:
    """The tables and their indexes against the events in them, as they travel."""
    return Figure(
        bench="postgres",
        subject=f"bytes of a log of {events:,} events, in encoded events",
        rounds=(taken / encoded,),
        unit="x",
        measured=f"{taken / events:.0f} bytes an event",
        against=f"{encoded / events:.0f} bytes",
    )


def _aged(dsn: Dsn, events: int) -> Aggregates:
    """Make a log of so many events, as a copy makes one: all histories grow together."""
    aggregates = Aggregates(events // HISTORY)
    count = len(aggregates.keys)
    client = ClientId(CLIENT)
    target = TablesTarget(dsn)
    try:
        target.begin(LogIdentity(uuid4(), 0), Frozen(1, Limits().routing_rule))
        for first in range(0, events, RECORDS):
            target.add_entries(
                [_entry(at, count) for at in range(first, min(first + RECORDS, events))]
            )
        head = Head(Life.LIVE, 1, HISTORY, HISTORY, 1, False, False, 1, client, None)
        for first in range(0, count, RECORDS):
            some = range(first, min(first + RECORDS, count))
            target.add_heads([HeadOf(at + 1, aggregates.keys[at].packed, head, 0) for at in some])
            target.add_marks([Mark(at + 1, client.bytes, HISTORY) for at in some])
        target.publish()
    finally:
        target.close()
    aggregates.versions = [HISTORY] * count
    return aggregates


def _entry(at: int, aggregates: int) -> Entry:
    version, number = at // aggregates + 1, at % aggregates + 1
    event = Event(version, version, None, 0, 1, 0, PAYLOAD)
    body = encode_events((event,))
    numbers = (version, version, 1, 1, version, version)
    return Entry(at + 1, number, 1, 0, 1, *numbers, CLIENT.bytes, None, body, 0)
