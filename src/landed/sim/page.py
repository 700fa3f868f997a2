"""One world as one web page that needs nothing else: no script, no network, light or dark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from html import escape
from typing import Final

from landed.sim.drawing import LANE_PX, ROW_PX, Picture, Row
from landed.sim.explore import Finding
from landed.sim.faults import CALM
from landed.sim.story import tell_log

_PAUSE_S: Final = 1.0
"""From here on the page says how much time passed between two rows."""

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1d1f23; --soft: #6d727b; --line: #d9dce1;
  --paper: #fff; --card: #f6f7f9; --fault: #c9252d; --good: #15803d; --call: #2563b8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e7ea; --soft: #979ca6; --line: #3a3e46;
  --paper: #16181c; --card: #1f2227; --fault: #ff6b6b; --good: #5fd08a; --call: #7db4ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 28px 32px 60px; color: var(--ink); background: var(--paper);
  font: 14px/1.5 system-ui, sans-serif; max-width: 1500px; }
h1 { font-size: 24px; margin: 0; } h2 { font-size: 15px; margin: 28px 0 8px; }
p { margin: 4px 0; } .soft { color: var(--soft); }
.verdict { font-weight: 600; color: var(--good); } .wrong .verdict { color: var(--fault); }
.wrong ul { color: var(--fault); } ul { margin: 6px 0; padding-left: 20px; }
details { background: var(--card); border-radius: 8px; padding: 8px 14px; margin: 12px 0; }
summary { cursor: pointer; } dl { display: grid; grid-template-columns: max-content 1fr;
  gap: 2px 18px; margin: 8px 0; font-variant-numeric: tabular-nums; } dd { margin: 0; }
.key { display: flex; flex-wrap: wrap; gap: 6px 22px; margin: 10px 0; color: var(--soft); }
.key svg { vertical-align: middle; margin-right: 6px; }
.lanes { position: sticky; top: 0; z-index: 1; display: flex; background: var(--paper);
  border-bottom: 1px solid var(--line); padding: 8px 0; font-weight: 600; }
.lanes span { flex: none; text-align: center; }
.time { width: 92px; flex: none; text-align: right; padding-right: 12px; color: var(--soft);
  font: 12px ui-monospace, monospace; white-space: nowrap; }
.timeline { position: relative; }
.timeline > svg { position: absolute; top: 0; left: 92px; pointer-events: none; }
.timeline ol { list-style: none; margin: 0; padding: 0; }
.timeline li { display: flex; align-items: center; border-radius: 4px; }
.timeline li:hover { background: var(--card); }
.what { flex: 1; min-width: 0; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
.timeline li:hover .what { white-space: normal; overflow: visible; background: var(--card);
  z-index: 1; }
.what.fault { color: var(--fault); } .what.good { color: var(--good); }
.what.quiet { color: var(--soft); }
path { fill: none; stroke-width: 1.5; } .lane { stroke: var(--line); }
.flight { stroke: var(--soft); stroke-width: 1; opacity: .55; } .call { stroke: var(--call); }
.answer { stroke: var(--good); } .lost { stroke: var(--fault); stroke-width: 2; }
.dot { fill: var(--ink); stroke: var(--paper); stroke-width: 2; } .dot.fault { fill: var(--fault); }
.dot.good { fill: var(--good); } .dot.quiet { fill: var(--soft); }
.dead { fill: var(--fault); opacity: .22; } .still { fill: var(--soft); opacity: .28; }
pre { background: var(--card); border-radius: 8px; padding: 12px 14px; overflow-x: auto; }
"""

_KEY: Final = (
    ("call", "a call of a caller"),
    ("answer", "an answer, or a commit that was flushed"),
    ("flight", "bytes on their way"),
    ("lost", "a fault"),
)


def draw_page(finding: Finding, *, replay: str) -> str:
    """The page of a world; ``replay`` is the command that lives it again."""
    seed = finding.plan.seed
    picture = Picture(finding.history)
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>landed explore, seed {seed}</title><style>{_STYLE}</style></head><body>",
            *_head(finding, replay),
            *_plan(finding),
            *_timeline(picture),
            "<h2>The log at the end</h2>",
            f"<pre>{escape(chr(10).join(tell_log(finding.history)) or 'nothing')}</pre>",
            "</body></html>",
        ]
    )


def _head(finding: Finding, replay: str) -> Iterator[str]:
    is_wrong = bool(finding.violations)
    history, plan = finding.history, finding.plan
    yield f'<header class="{"wrong" if is_wrong else "sound"}">'
    yield f"<h1>A world from seed {plan.seed}</h1>"
    yield (
        f'<p class="soft">{plan.replicas} replicas, the log in {plan.engine}; '
        f"{len(history.calls)} calls of {len(history.requests)} requests, "
        f"{finding.virtual_s:.1f} virtual seconds. "
        f"Live it again: <code>{escape(replay)}</code></p>"
    )
    if is_wrong:
        yield '<p class="verdict">Something is wrong:</p><ul>'
        for violation in finding.violations:
            name = violation.invariant.replace("_", " ")
            yield f"<li><b>{escape(name)}</b>: {escape(violation.sentence)}</li>"
        yield "</ul>"
    else:
        yield '<p class="verdict">Nothing is wrong: every promise was kept.</p>'
    yield "</header>"


def _plan(finding: Finding) -> Iterator[str]:
    plan = finding.plan
    turned = [
        (field.name, getattr(plan.dials, field.name))
        for field in fields(plan.dials)
        if getattr(plan.dials, field.name) != getattr(CALM, field.name)
    ]
    yield "<details><summary>What the seed drew for this world</summary><dl>"
    for name, value in (
        *turned,
        ("disturbances", ", ".join(plan.disturbances)),
        ("mean time between disturbances", f"{plan.disturb_every_s} s"),
        *((field.name, getattr(plan.policy, field.name)) for field in fields(plan.policy)),
    ):
        yield f'<dt class="soft">{escape(name)}</dt><dd>{escape(_say(value))}</dd>'
    yield "</dl><p>It went through: " + escape(", ".join(sorted(finding.marks))) + "</p></details>"


def _timeline(picture: Picture) -> Iterator[str]:
    yield '<div class="key">'
    for kind, meaning in _KEY:
        line = (
            f'<svg width="28" height="10"><path class="{kind}" d="M0 5H26m-6 -4l6 4l-6 4"/></svg>'
        )
        yield f"<span>{line}{meaning}</span>"
    for kind, meaning in (("dead", "dead"), ("still", "stopped")):
        band = f'<svg width="28" height="12"><rect class="{kind}" width="28" height="12" rx="6"/></svg>'
        yield f"<span>{band}{meaning}</span>"
    yield "</div>"
    edge = picture.width - LANE_PX * len(picture.lanes)
    yield '<div class="lanes"><span class="time"></span>'
    yield f'<span style="width:{edge // 2}px"></span>'
    for lane in picture.lanes:
        yield f'<span style="width:{LANE_PX}px">{escape(lane)}</span>'
    yield "</div>"
    yield f'<div class="timeline">{picture.svg()}<ol>'
    began = picture.rows[0].entry.at if picture.rows else 0.0
    before = began
    for row in picture.rows:
        yield _row(row, began, before, picture.width)
        before = row.entry.at
    yield "</ol></div>"


def _row(row: Row, began: float, before: float, width: int) -> str:
    at = row.entry.at
    time = "" if at == before and at != began else f"{at - began:.4f}"
    if at - before >= _PAUSE_S:
        time = f"+{at - before:.1f} s"
    who = "" if row.entry.host in {"network", "world"} else f"{row.entry.host}: "
    text = escape(who + row.text)
    return (
        f'<li style="height:{ROW_PX}px"><span class="time">{time}</span>'
        f'<span style="width:{width}px;flex:none"></span>'
        f'<span class="what {row.tone}">{text}</span></li>'
    )


def _say(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, tuple):
        return " to ".join(_say(item) for item in value)
    return str(value)
