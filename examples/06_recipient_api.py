"""A payment API that others can trust: it charges once per key, though it is asked three times.

    python examples/06_recipient_api.py

The charge and its key are one transaction. A repeat gets the first answer, an older version of the
terms is refused, and a sender in doubt may ask, or seal a key so that it can never act.
"""

import asyncio
import json

import httpx
from sqlalchemy import Connection, create_engine
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from landed.recipient import Answer, Promises, contract_from
from landed.recipient.http import Asked, Recipient

engine = create_engine("sqlite:///payments.sqlite")
promises = Promises(key_retention_s=30 * 24 * 3600, refusals=(402,))
recipient = Recipient(engine, promises, scope_of=lambda request: request.headers["authorization"])


def charge(conn: Connection, asked: Asked) -> Answer:
    """The business change, in the transaction that also keeps the key and the answer."""
    cents = json.loads(asked.body)["cents"]
    if cents > 100_000:
        return Answer(402, b'{"declined": true}')
    conn.exec_driver_sql("INSERT INTO charges (cents) VALUES (?)", (cents,))
    return Answer(201, json.dumps({"charged": cents}).encode())


async def charges(request: Request) -> Response:
    return await recipient.act(request, charge)


app = Starlette(routes=[Route("/charges", charges, methods=["POST"]), *recipient.routes()])


async def main() -> None:
    recipient.prepare()
    with engine.begin() as conn:
        conn.exec_driver_sql("CREATE TABLE charges (id INTEGER PRIMARY KEY, cents INT)")
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app),
        base_url="http://bank",
        headers={"authorization": "shop"},
    ) as http:

        async def ask(key: str, cents: int, **headers: str) -> None:
            sent = {"Idempotency-Key": key, **headers}
            answer = await http.post("/charges", json={"cents": cents}, headers=sent)
            print(f"{key}: {answer.status_code} {answer.text[:60]}")

        await asyncio.gather(*[ask("invoice-481", 1200) for _ in range(3)])
        await ask("invoice-481", 9900)
        await http.post("/landed/keys/invoice-482/seal")
        await ask("invoice-482", 500)
        document = (await http.get("/.well-known/landed-recipient")).json()
        contract = contract_from(document, source="http://bank, just read")
        print("a sender's contract:", contract.answers)
    with engine.connect() as conn:
        made = conn.exec_driver_sql("SELECT count(*) FROM charges").scalar_one()
        print(f"charges made: {made}")


if __name__ == "__main__":
    asyncio.run(main())
