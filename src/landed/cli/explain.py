"""``landed explain``: the story of a receipt or an effect, in order."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from landed.cli.desk import DatabaseOption, JsonOption, LedgerOption, id_of, opened, say, when

if TYPE_CHECKING:
    from landed.records.explain import Story


def explain(
    id: Annotated[
        str,
        typer.Argument(metavar="ID", help="Of a receipt, effect, outbox row or idempotency key."),
    ],
    *,
    database: DatabaseOption = None,
    ledger: LedgerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell what is known of an event or effect, how it is known, and what can happen next.

    Example: landed explain 0198… --database sqlite:///app.db
    """
    from landed.errors import ActionRefusedError
    from landed.records.explain import explain as tell

    asked = id_of(id)
    with opened(database, ledger) as desk:
        story = desk.read(lambda conn: tell(conn, desk.books, asked))
    if story is None:
        raise ActionRefusedError(f"nothing here has the id {asked}")
    lines = [
        {"at_us": line.at_us, "what": line.what, "detail": line.detail} for line in story.lines
    ]
    say({**asdict(story), "lines": lines}, _lines(story), as_json=as_json)


def _lines(story: Story) -> list[str]:
    told = [f"{story.kind} {story.id} is {story.state}: {story.why}"]
    told += [
        f"  {when(line.at_us)}  {line.what}" + (f"  {line.detail}" if line.detail else "")
        for line in story.lines
    ]
    for title, items in (
        ("waits for", [story.waits_for] if story.waits_for else []),
        ("allowed", story.allowed),
        ("would settle it", story.would_settle),
        ("related", [f"{kind} {id}" for kind, id in story.related]),
    ):
        told += [f"{title}: {'; '.join(items)}"] if items else []
    return told
