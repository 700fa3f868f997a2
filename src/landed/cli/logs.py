"""Facts as log lines on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, TextIO

from landed.clock import Clock
from landed.facts import Note, forget

FREQUENT: Final = frozenset(
    {
        "kp",
        "lane.committed",
        "lane.flushed",
        "landed.alert.age.max",
        "landed.unknown.age.max",
        "loop.ended",
    }
)
"""Facts that come with every flush or every request; only ``--verbose`` prints them. All are counted anyway."""


class LogFormat(StrEnum):
    """How a fact becomes a line."""

    TEXT = "text"
    JSON = "json"
    NONE = "none"


def log_to(
    form: LogFormat, clock: Clock, *, is_verbose: bool = False, out: TextIO | None = None
) -> Note:
    """Make a ``Note`` that prints facts, one a line."""
    if form is LogFormat.NONE:
        return forget
    line_of = _json_line if form is LogFormat.JSON else _text_line

    def note(name: str, fields: Mapping[str, object]) -> None:
        if name in FREQUENT and not is_verbose:
            return
        at = datetime.fromtimestamp(clock.wall_ms() / 1000, UTC).isoformat(timespec="milliseconds")
        with suppress(OSError):  # nobody reads it any more; a note must not raise
            print(line_of(at, name, fields), file=out or sys.stderr, flush=True)

    return note


def _json_line(at: str, name: str, fields: Mapping[str, object]) -> str:
    return json.dumps({"at": at, "fact": name, **fields}, default=str, separators=(",", ":"))


def _text_line(at: str, name: str, fields: Mapping[str, object]) -> str:
    return " ".join([at, name, *(f"{key}={_word(value)}" for key, value in fields.items())])


def _word(value: object) -> str:
    text = str(value)
    return json.dumps(text) if not text or any(c in text for c in ' "=\n\r\t') else text
