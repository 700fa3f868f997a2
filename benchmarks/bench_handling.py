"""(g) From an arriving event to a confirmed effect, on both databases, beside what one would use instead.

Everything of one round runs one after the other: on PostgreSQL on one server, started for this run on
the disk that is measured, with its own settings of durability. Peers are no-op jobs that are drained.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from benchmarks import bench_handling_claims as claims
from benchmarks.bench_handling_ours import Measured, durability_of
from benchmarks.bench_handling_peers import Dbos, Peer, PgQueuer, Procrastinate
from benchmarks.report import Figure, Plan, Report, interleaved, micros, per_s, ratios

from tests.handling import postgres

_AT_ONCE: Final = 64
_FAR: Final = {"DBOS": 10.0, "procrastinate": 3.0, "pgqueuer": 0.4}
"""How many effects for one of their jobs: the targets."""
_WORDS: Final = {
    "DBOS": "DBOS one-step workflows",
    "procrastinate": "procrastinate jobs",
    "pgqueuer": "pgqueuer jobs, batches of 100",
}


def steps(plan: Plan) -> int:
    """How far the bar moves."""
    return 2 * 4 * plan.rounds + 2 * 2 + plan.rounds


def run(plan: Plan, report: Report) -> None:
    """Measure, and add to the report."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="landed-bench-")))
        sqlite = f"sqlite:///{folder}/ledger.db"
        _measure(plan, report, "SQLite", sqlite, {"DBOS": lambda: Dbos(f"sqlite:///{folder}/d.db")})
        cluster = stack.enter_context(on_disk(folder))
        database = cluster.create()
        peers: dict[str, Callable[[], Peer]] = {
            "DBOS": lambda: Dbos(
                f"postgresql://postgres@/{cluster.create()}?host={cluster.sockets}"
            ),
            "procrastinate": lambda: Procrastinate(cluster.conninfo(cluster.create())),
            "pgqueuer": lambda: PgQueuer(
                {"host": str(cluster.sockets), "user": "postgres", "database": cluster.create()}
            ),
        }
        url = cluster.url(database)
        _measure(plan, report, "PostgreSQL", url, peers)
        with opened(url) as measured:
            _by_hand(plan, report, measured, cluster.conninfo(database))


@contextmanager
def on_disk(folder: Path) -> Iterator[postgres.Cluster]:
    """A server whose files lie on a disk: the one of the tests prefers memory."""
    folder.chmod(0o755)
    with postgres.cluster(folder) as running:
        yield running


@contextmanager
def opened(url: str) -> Iterator[Measured]:
    """A ledger to be measured, on a database of its own."""
    measured = Measured(url)
    try:
        yield measured
    finally:
        measured.close()


def _measure(
    plan: Plan, report: Report, where: str, url: str, peers: Mapping[str, Callable[[], Peer]]
) -> None:
    events = 500 if plan.is_quick else 5_000
    with opened(url) as measured:
        with measured.ledger.engine.connect() as conn:
            report.console.print(f"handling, every side: {durability_of(conn)}", highlight=False)
        report.doing(f"handling: claims on {where}")
        _against_size(plan, report, where, measured)
        report.doing(f"handling: receipts and relay on {where}")
        rates = interleaved(
            plan.rounds,
            {
                "receipts, one at a time": lambda: measured.receipts(events // 5, at_once=1),
                f"receipts, {_AT_ONCE} at once": lambda: measured.receipts(
                    events, at_once=_AT_ONCE
                ),
                "rows relayed": lambda: measured.relay(events),
            },
            after=report.step,
        )
        for subject, found in rates.items():
            _add_rate(report, f"{subject}, {where}", found)
        _beside_peers(plan, report, where, measured, events, peers)


def _beside_peers(
    plan: Plan,
    report: Report,
    where: str,
    measured: Measured,
    events: int,
    peers: Mapping[str, Callable[[], Peer]],
) -> None:
    """Effects, and each peer's jobs, in one interleaved run."""
    started: dict[str, Peer] = {}
    for name, start in peers.items():
        if find_spec(name.lower()) is None:
            report.console.print(f"handling: {name} is not installed: not measured")
            continue
        started[name] = start()
    measured.effects(events)  # what handlers cost is known from here on, as in a worker that runs
    jobs = {"DBOS": events // 25, "procrastinate": events // 10, "pgqueuer": events}
    report.doing(f"handling: effects and peers on {where}")
    subjects: dict[str, Callable[[], float]] = {"effects": lambda: measured.effects(events)}
    for name, peer in started.items():
        subjects[name] = lambda peer=peer, count=jobs[name]: peer.jobs(count)  # type: ignore[misc]
    found = interleaved(plan.rounds, subjects, after=report.step)
    for peer in started.values():
        peer.close()
    _add_rate(report, f"effects, from the event to the end, {where}", found["effects"])
    for name in started:
        report.add(
            Figure(
                bench="handling",
                subject=f"effects against {_WORDS[name]}, {where}",
                rounds=ratios(found["effects"], found[name]),
                unit="x",
                measured=per_s(found["effects"]),
                against=per_s(found[name]),
                target=_FAR[name],
            )
        )


def _against_size(plan: Plan, report: Report, where: str, measured: Measured) -> None:
    """How long a claim takes before and after a million rows were done with."""
    rows = 50_000 if plan.is_quick else 1_000_000
    measured.publish(10 * claims.BATCH)
    claims.claim_seconds(measured, 10)
    at_none = [claims.claim_seconds(measured, 20) for _ in range(plan.rounds)]
    report.step()
    claims.fill(measured, rows)
    claims.claim_seconds(measured, 10)
    at_many = [claims.claim_seconds(measured, 20) for _ in range(plan.rounds)]
    report.step()
    measured.hand_on(10 * claims.BATCH)
    report.add(
        Figure(
            bench="handling",
            subject=f"claim of 100 behind {rows:,} rows that are done, against none, {where}",
            rounds=ratios(at_many, at_none),
            unit="x",
            measured=micros(at_many),
            against=micros(at_none),
            target=2.0,
            is_more_better=False,
        )
    )


def _by_hand(plan: Plan, report: Report, measured: Measured, conninfo: str) -> None:
    rows = 1_000 if plan.is_quick else 10_000
    report.doing("handling: claims against statements by hand")
    claims.ours(measured, claims.BATCH)
    claims.by_hand(measured, claims.BATCH, conninfo)
    found = interleaved(
        plan.rounds,
        {
            "ours": lambda: claims.ours(measured, rows),
            "hand": lambda: claims.by_hand(measured, rows, conninfo),
        },
        after=report.step,
    )
    report.add(
        Figure(
            bench="handling",
            subject="claimed and done, 100 at a time, against psycopg by hand, PostgreSQL",
            rounds=ratios(found["ours"], found["hand"]),
            unit="x",
            measured=per_s(found["ours"]),
            against=per_s(found["hand"]),
            target=0.6,
        )
    )


def _add_rate(report: Report, subject: str, rates: list[float]) -> None:
    """A rate by itself: no target, and only fit to be read on this machine."""
    report.add(
        Figure(
            bench="handling",
            subject=subject,
            rounds=tuple(rates),
            unit="/s",
            measured=per_s(rates),
        )
    )
