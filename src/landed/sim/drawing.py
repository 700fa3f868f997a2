"""A history as a picture: a lane for each host, an arrow for each message, whatever broke in red.

One row is one line of the story. Time goes downwards, and rows keep its order but not its measure: a
pause of a minute is as high as one of a microsecond.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from html import escape
from typing import Final, NamedTuple

from landed.commands import Done
from landed.sim.history import Entry, History
from landed.sim.story import sentence

ROW_PX: Final = 24
LANE_PX: Final = 118
_MARGIN_PX: Final = 52
_ARRIVAL: Final = "net.landed"
_UNSEEN: Final = frozenset({_ARRIVAL, "loop.ended", "loop.asked_owner", "log.details"})
_QUIET: Final = frozenset({"pool.dialled", "pool.discarded", "server.listening", "server.closed"})
_FAULTS: Final = ("net.", "disturb.", "disk.", "server.crashed", "lane.flush_failed")
_BROKEN: Final = frozenset(
    {"lane.stopped", "replica.killed", "caller.unheard", "log.again", "pool.unknown"}
)
_ENDS: Final = {
    "server.crashed": "server.started",
    "lane.stopped": "server.started",
    "replica.killed": "replica.started",
    "disturb.pause_host": "host.resumed",
}
"""What makes a host stand still, and what lets it go on."""


class Row(NamedTuple):
    """One line of the picture."""

    entry: Entry
    lane: int
    text: str
    tone: str
    """``fault``, ``good``, ``quiet`` or nothing."""


class Picture:
    """The rows of a history, and the drawing beside them."""

    def __init__(self, history: History) -> None:
        self._history = history
        entries = history.entries
        hosts = {entry.host for entry in entries} - {"network", "world", "server"}
        self.lanes = ["caller", *sorted(hosts), "server", "disk"]
        self._at = {name: number for number, name in enumerate(self.lanes)}
        self.rows = [self._row(entry) for entry in entries if entry.what not in _UNSEEN]
        self._times = [row.entry.at for row in self.rows]

    @property
    def width(self) -> int:
        """Of the drawing, in pixels."""
        return 2 * _MARGIN_PX + LANE_PX * (len(self.lanes) - 1)

    def x(self, lane: int) -> int:
        """Where a lane stands."""
        return _MARGIN_PX + lane * LANE_PX

    def svg(self) -> str:
        """The drawing."""
        height = ROW_PX * len(self.rows)
        parts = [
            f'<svg width="{self.width}" height="{height}" viewBox="0 0 {self.width} {height}">',
            "<title>messages between the hosts, downwards in time</title>",
            *(self._line(lane, height) for lane in range(len(self.lanes))),
            *self._standstills(height),
            *self._flights(),
            *(part for number, row in enumerate(self.rows) for part in self._marks(number, row)),
            "</svg>",
        ]
        return "\n".join(parts)

    # --- rows

    def _row(self, entry: Entry) -> Row:
        text = sentence(entry, self._history.names)
        return Row(entry, self._lane_of(entry), text, _tone(entry))

    def _lane_of(self, entry: Entry) -> int:
        if entry.what.startswith("disk.") or entry.what == "lane.committed":
            return self._at["disk"]
        if entry.what.startswith("net."):
            return self._host(entry, "from")
        return self._at.get(entry.host, 0)

    def _host(self, entry: Entry, field: str) -> int:
        address = entry.fields[field]
        assert isinstance(address, tuple)
        return self._at.get(address[0], 0)

    def _y(self, number: int) -> int:
        return number * ROW_PX + ROW_PX // 2

    def _y_at(self, at: float) -> int:
        """Where a moment lies: at the first row that is not before it."""
        return self._y(min(bisect_left(self._times, at), len(self.rows) - 1))

    # --- parts of the drawing

    def _line(self, lane: int, height: int) -> str:
        return f'<path class="lane" d="M{self.x(lane)} 0V{height}"/>'

    def _standstills(self, height: int) -> Iterator[str]:
        """A band over each host while it is dead or stopped."""
        for number, row in enumerate(self.rows):
            end = _ENDS.get(row.entry.what)
            if end is None:
                continue
            until = next(
                (
                    self._y(later)
                    for later in range(number + 1, len(self.rows))
                    if self.rows[later].entry.what == end
                    and self.rows[later].entry.host == row.entry.host
                ),
                height,
            )
            lane = self._at.get(row.entry.host, 0)
            y = self._y(number)
            kind = "still" if row.entry.what == "disturb.pause_host" else "dead"
            yield (
                f'<rect class="{kind}" x="{self.x(lane) - 9}" y="{y}" width="18" '
                f'height="{max(until - y, 4)}" rx="9"/>'
            )

    def _flights(self) -> Iterator[str]:
        """A thin arrow for every segment that arrived, from when it was sent."""
        for entry in self._history.entries:
            if entry.what == _ARRIVAL and entry.fields["bytes"]:
                sent_at = entry.fields["sent_at"]
                assert isinstance(sent_at, float)
                here, there = self._host(entry, "from"), self._host(entry, "to")
                yield self._arrow(
                    "flight", here, self._y_at(sent_at), there, self._y_at(entry.at) - 3
                )

    def _marks(self, number: int, row: Row) -> Iterator[str]:
        entry, y = row.entry, self._y(number)
        match entry.what:
            case "call.began":
                yield self._arrow("call", 0, y, row.lane, y)
            case "call.ended":
                yield self._arrow("answer" if row.tone else "flight", row.lane, y, 0, y)
            case "caller.unheard":
                yield from self._broken(row.lane, 0, y)
            case "lane.committed":
                yield self._arrow("answer", self._at["server"], y, row.lane, y)
            case "net.lost_after":
                yield from self._broken(self._host(entry, "to"), self._host(entry, "from"), y)
            case what if what.startswith("net."):
                yield from self._broken(self._host(entry, "from"), self._host(entry, "to"), y)
            case what if what.startswith("disk."):
                yield from self._broken(self._at["server"], row.lane, y)
            case _:
                pass
        text = escape(row.text)
        yield (
            f'<circle class="dot {row.tone}" cx="{self.x(row.lane)}" cy="{y}" r="4">'
            f"<title>{text}</title></circle>"
        )

    def _arrow(self, kind: str, here: int, y: int, there: int, y_there: int) -> str:
        """From one lane to another, with a head made of two strokes."""
        way = 1 if there > here else -1
        x, end = self.x(here) + 5 * way, self.x(there) - 6 * way
        head = f"m{-6 * way} -4l{6 * way} 4l{-6 * way} 4"
        return f'<path class="{kind}" d="M{x} {y}L{end} {y_there}{head}"/>'

    def _broken(self, here: int, there: int, y: int) -> Iterator[str]:
        """An arrow that ends in a cross halfway."""
        way = 1 if there > here else -1
        x, middle = self.x(here) + 5 * way, (self.x(here) + self.x(there)) // 2
        yield f'<path class="lost" d="M{x} {y}H{middle}m-5 -5l10 10m0 -10l-10 10"/>'


def _tone(entry: Entry) -> str:
    what = entry.what
    if what.startswith(_FAULTS) or what in _BROKEN:
        return "fault"
    if what == "log.wrote" and entry.fields["answer"] == "OutcomeUnknown":
        return "fault"
    if what == "call.ended" and not isinstance(entry.fields["outcome"], Done):
        return ""
    if what == "log.wrote" and entry.fields["answer"] != "landed":
        return ""
    if what in {"call.ended", "lane.committed", "log.wrote", "server.started", "replica.started"}:
        return "good"
    return "quiet" if what in _QUIET else ""
