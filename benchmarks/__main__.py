"""``make bench``: every ratio in one run, as a table and as JSON in ``benchmarks/results``.

python -m benchmarks                       everything, about six minutes on a quiet machine
python -m benchmarks engine age --quick    some of it, small
python -m benchmarks age growth --big      ten million events as well
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from benchmarks.report import RESULTS, Plan, Report, machine, save
from rich.console import Console

NAMES: Final = (
    "layers",
    "engine",
    "server",
    "loop",
    "age",
    "memory",
    "offline",
    "effects",
    "handling",
    "peers",
    "postgres",
    "fleet",
    "growth",
)


def main() -> None:
    """Run what was asked for."""
    options = _parsed()
    console = Console(width=None if sys.stdout.isatty() else 132)
    facts = machine()
    console.print(*(f"{name}: {fact}\n" for name, fact in facts.items()), sep="", highlight=False)
    report = Report(console)
    benches: list[Any] = [import_module(f"benchmarks.bench_{name}") for name in options.names]
    RESULTS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=RESULTS, prefix="logs-") as folder:
        plan = Plan(
            rounds=options.rounds,
            is_quick=options.quick,
            is_big=options.big,
            folder=Path(folder),
        )
        try:
            with report.progress(sum(bench.steps(plan) for bench in benches)):
                for bench in benches:
                    bench.run(plan, report)
        except KeyboardInterrupt:
            console.print("interrupted; what was found so far:")
    report.show()
    console.print(f"\nround by round: {save(report, facts)}")
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > cores + 1:
        console.print(
            f"a load of {load:.0f} on {cores} cores: others were busy, do not quote these"
        )


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--quick", action="store_true", help="small sizes: not to be quoted")
    parser.add_argument("--rounds", type=int, help="of each measurement (5; 2 with --quick)")
    parser.add_argument("--big", action="store_true", help="ten million events as well")
    options = parser.parse_args()
    if unknown := set(options.names) - set(NAMES):
        parser.error(f"there is no {', '.join(sorted(unknown))}: {', '.join(NAMES)}")
    options.names = options.names or list(NAMES)
    if options.rounds is None:
        options.rounds = 2 if options.quick else 5
    return options


if __name__ == "__main__":
    main()
