"""Does the file itself hold what the engine shows, and what callers were told?"""

from __future__ import annotations

from collections.abc import Iterator

from landed.commands import How
from landed.sim.filed import as_filed
from landed.sim.history import History


def the_file_holds_what_was_told(history: History) -> Iterator[str]:
    """Rows, not answers: an engine that is wrong may be so in the same way twice.

    Of a world on a disk only (log rules C1, C10).
    """
    filed = history.truth.filed
    if filed is None:
        return
    for key, batches in history.truth.batches.items():
        rows = filed.get(key.packed, [])
        if rows != [as_filed(batch) for batch in batches]:
            yield (
                f"the file holds versions {[row.version for row in rows]} of {history.names[key]}, "
                f"and {[batch.version for batch in batches]} are shown, or their events differ"
            )
    for call in history.calls:
        done = call.done
        if done is None or done.how is How.REBUILT:
            continue
        for key, version in zip(call.request.targets, done.versions, strict=True):
            if all(row.version != version for row in filed.get(key.packed, [])):
                yield (
                    f"call {call.number} was told version {version} of {history.names[key]}, "
                    "which is not in the file"
                )
