"""A replica that starts when it is told to: prepares the projection's tables and says what it did."""

from __future__ import annotations

import asyncio
import sys
from uuid import UUID

from landed.ids import ClientId
from landed.postgres.checks import open_connection
from landed.postgres.dsn import parse_dsn
from landed.postgres.migrate import LOCK_KEY, Step, migrate
from landed.projections.postgres import PostgresProjection

SLOW = (Step(1, "CREATE TABLE slow (i int); SELECT pg_sleep(0.02)"),)


async def boot(url: str) -> tuple[int, ...]:
    projection: PostgresProjection[int] = PostgresProjection(
        url, name="p", client_id=ClientId(UUID(int=1)), state_type=int, config={"window": 90}
    )
    async with projection.running():
        await projection.meet(log_id=UUID(int=2), restore_epoch=0)
    with open_connection(parse_dsn(url)) as connection:
        return migrate(connection, "slow", SLOW)


def main() -> None:
    print("ready", LOCK_KEY, flush=True)
    for line in sys.stdin:
        print(*asyncio.run(boot(line.strip())), "done", flush=True)


if __name__ == "__main__":
    main()
