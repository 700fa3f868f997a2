"""A receipt inside a user's own transaction, together with the change that it belongs to (RC-14)."""

from __future__ import annotations

from sqlalchemy import Connection

from landed.deliveries.event import Rejected
from landed.facts import Note
from landed.intake.admission import Delivery, Doorkeeper, Refused
from landed.intake.ed25519 import find_check
from landed.intake.groups import keep_all
from landed.intake.reading import Headers
from landed.intake.receive import Acknowledged, Answer
from landed.records.session import Books, raise_durability
from landed.registry import Registry


def receive_within(
    conn: Connection,
    books: Books,
    registry: Registry,
    namespace: str,
    headers: Headers,
    body: bytes,
    *,
    note: Note,
) -> Answer:
    """Take one delivery in the caller's transaction. Commits nothing; the answer is provisional.

    The commit is made as durable as an acknowledgement needs it, which is the one setting that is
    touched in a user's transaction (rule SQ-5).
    """
    raise_durability(conn)
    doorkeeper = Doorkeeper(registry=registry, now_us=books.wall_us, check_ed25519=find_check())
    admitted = doorkeeper.admit(Delivery(headers=headers, body=body), (namespace,))
    if isinstance(admitted, Refused):
        return admitted.rejected
    (outcome,) = keep_all(conn, books, [admitted], note=note)
    return outcome if isinstance(outcome, Rejected) else Acknowledged(outcome)
