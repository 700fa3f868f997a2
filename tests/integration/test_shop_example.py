"""The example of a user's own routes, over real HTTP."""

from __future__ import annotations

import asyncio
import importlib.util
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID, uuid4

import httpx
import pytest
import uvicorn

from landed.accounts.serving import bind
from landed.errors import UndecodableEventError
from landed.log import Event

SHOP = Path(__file__).parents[2] / "examples" / "03_shop_fastapi.py"


def load_shop():
    spec = importlib.util.spec_from_file_location("shop_example", SHOP)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@asynccontextmanager
async def open_shop(monkeypatch, log: str):
    monkeypatch.setenv("LANDED_LOG", log)
    listening = bind("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(load_shop().app, log_config=None, lifespan="on"))
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    try:
        async with httpx.AsyncClient(base_url=url) as client:
            yield client
    finally:
        server.should_exit = True
        await serving


@pytest.mark.scenario("BC-15", "BC-16")
async def test_a_shop_of_ones_own_is_safe_to_retry_across_restarts(monkeypatch, tmp_path):
    log, item = f"sqlite:///{tmp_path}/shop.sqlite", uuid4()

    async def send(client, what, content, key, status):
        headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
        answer = await client.post(f"/items/{item}/{what}", content=content, headers=headers)
        assert answer.status_code == status, answer.text
        return answer

    async with open_shop(monkeypatch, log) as client:
        await send(client, "restock", '{"count":5}', "r", 200)
        copies = [send(client, "buy", '{"count":3}', '"b"', 200) for _ in range(5)]
        bought = await asyncio.gather(*copies)
        assert {answer.text for answer in bought} == {'{"left":2,"version":2}'}
        assert (
            sorted(a.headers["idempotency-result"] for a in bought) == ["fresh"] + ["original"] * 4
        )
        sold_out = await send(client, "buy", '{"count":3}', "c", 422)
        assert (sold_out.json()["code"], sold_out.json()["left"]) == ("SOLD_OUT", 2)
        await send(client, "buy", '{"count":3.0}', '"b"', 400)
        await send(client, "buy", '{"count":0}', '"b"', 400)
        reused = await send(client, "buy", '{"count":4}', '"b"', 422)
        assert reused.json()["code"] == "IDEMPOTENCY_KEY_REUSED"
        nowhere = await client.post("/items/x/buy", json={"count": 1})
        assert (nowhere.status_code, nowhere.json()["code"]) == (400, "BAD_REQUEST")

    async with open_shop(monkeypatch, log) as client:
        again = await send(client, "buy", '{ "memo": 1, "count": 3 }', "b", 200)
        assert again.text == '{"left":2,"version":2}'
        assert again.headers["idempotency-result"] == "original"
        assert again.headers["idempotency-window"] == "90"


def test_the_shop_never_skips_an_event_it_does_not_know():
    shop = load_shop()
    key = shop.AggregateKey(shop.SHOP, shop.ITEM, UUID(int=5))
    with pytest.raises(UndecodableEventError):
        shop.Stock().fold(0, Event.new(9, b"{}", client_seq=1, event_id=None), key)
