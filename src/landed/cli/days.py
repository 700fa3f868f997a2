"""``landed explore --world shop``: days of the handling wing, each from a seed."""

from __future__ import annotations

import json
import os
import time

import typer

from landed.cli.tally import Tally, as_json, watched


def explore_shop(seeds: int, start: int, seed: int | None, jobs: int, *, is_json: bool) -> int:
    """Live days of the shop, or one of them again; returns the exit code."""
    from landed.sim.crew import live_days_together
    from landed.sim.days import MARKS

    if seed is not None:
        return _print_day(seed, is_json=is_json)
    tally = Tally()
    began = time.perf_counter()
    reports = live_days_together(range(start, start + seeds), jobs=jobs or os.cpu_count() or 1)
    for report in watched(reports, seeds, len(MARKS)):
        tally.add(report)
        if tally.failure is not None:
            break
    tally.took_s = time.perf_counter() - began
    failure = tally.failure
    replay = "" if failure is None else f"landed explore --world shop --seed {failure.seed}"
    if is_json:
        typer.echo(json.dumps(as_json(tally, start, replay, MARKS)))
    else:
        verdict = "clean" if failure is None else f"wrong on the day of seed {failure.seed}"
        typer.echo(f"{tally.worlds} days of the shop from seed {start}: {verdict}")
        typer.echo(
            f"{tally.worlds / tally.took_s:.1f} days/s, {tally.calls} deeds in {tally.took_s:.1f} s"
        )
        typer.echo("days with")
        for mark in sorted(MARKS, key=lambda mark: -tally.marks[mark]):
            typer.echo(f"  {tally.marks[mark]:>7}  {mark}")
        if failure is not None:
            typer.echo("")
            _print_day(failure.seed, is_json=False)
            typer.echo(f"\nreplay it: {replay}")
    return 0 if failure is None else 1


def _print_day(seed: int, *, is_json: bool) -> int:
    from landed.sim.days import tell_day

    lines, wrong = tell_day(seed)
    if is_json:
        violations = [violation._asdict() for violation in wrong]
        typer.echo(json.dumps({"seed": seed, "violations": violations, "timeline": lines}))
        return 1 if wrong else 0
    typer.echo(f"seed {seed}")
    for line in lines:
        typer.echo(line)
    typer.echo("what is wrong" if wrong else "nothing is wrong")
    for violation in wrong:
        typer.echo(f"  {violation.invariant.replace('_', ' ')}: {violation.sentence}")
    return 1 if wrong else 0
