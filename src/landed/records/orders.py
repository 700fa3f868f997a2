"""Order heads: the place of a version within its order key, taken under the head's lock (SQ-9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Connection, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from landed.effects.order import OrderPolicy, SameVersion, place
from landed.errors import OrderConflictError
from landed.records.session import is_postgres
from landed.records.tables import order_heads, order_versions


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordered:
    """An effect's place in its order; ``version`` None takes the next one of the order head."""

    domain: str
    key: str
    version: int | None
    policy: OrderPolicy


class Place(NamedTuple):
    """A version, and whether a newer one was recorded before it."""

    version: int
    is_behind_head: bool


def take_place(conn: Connection, order: Ordered) -> Place:
    """Lock the order head and find the version's place; writes nothing that a reader would see.

    Raises:
        OrderConflictError: another effect has this version (rule OR-4).
    """
    dialect = postgresql if is_postgres(conn.dialect) else sqlite
    statement = dialect.insert(order_heads).values(
        order_domain=order.domain, order_key=order.key, last_seq=0
    )
    head = conn.execute(
        statement.on_conflict_do_update(
            index_elements=["order_domain", "order_key"],
            set_={"last_seq": order_heads.c.last_seq},
        ).returning(order_heads.c.last_version)
    ).scalar_one()
    version = order.version if order.version is not None else (head or 0) + 1
    is_taken = (
        conn.execute(
            select(order_versions.c.effect_id).where(
                order_versions.c.order_domain == order.domain,
                order_versions.c.order_key == order.key,
                order_versions.c.version == version,
            )
        ).first()
        is not None
    )
    placed = place(version, head_version=head, is_version_taken=is_taken)
    if isinstance(placed, SameVersion):
        raise OrderConflictError(
            f"version {version} of {order.domain}/{order.key} belongs to another effect"
        )
    return Place(version, placed.is_behind_head)


def record_place(
    conn: Connection, order: Ordered, version: int, effect_id: UUID, *, is_newest: bool
) -> None:
    """Give a version to an effect; the newest one moves the head."""
    conn.execute(
        insert(order_versions).values(
            order_domain=order.domain, order_key=order.key, version=version, effect_id=effect_id
        )
    )
    if is_newest:
        conn.execute(
            update(order_heads)
            .where(order_heads.c.order_domain == order.domain, order_heads.c.order_key == order.key)
            .values(last_version=version, last_effect_id=effect_id)
        )
