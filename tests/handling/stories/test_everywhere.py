"""A program of a user's own, crashed at every point it passes; and one that would charge twice."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from landed.deliveries.event import IdentityRule
from landed.ledger import Ledger, StandardWebhooks
from landed.outbound import HttpOut
from landed.testing import FaultyRecipient, crash_everywhere
from tests.handling.conftest import DIGEST_KEY
from tests.handling.doors import KEY, SECRET, TYPE, sign

pytestmark = pytest.mark.real_loop


@dataclass(frozen=True)
class Invoice:
    id: str


class Program:
    """A ledger with one handler; ``is_careful`` or it sends from within the handler, unrecorded."""

    def __init__(self, folder: Path, bank: FaultyRecipient, *, is_careful: bool) -> None:
        self.folder, self.bank, self.is_careful = folder, bank, is_careful
        self.before = 0

    def open(self, note: Any, number: int) -> Ledger:
        ledger = Ledger(
            f"p{number}", self.folder / f"{number}.db", digest_key=DIGEST_KEY, note=note
        )
        self.shop = ledger.producer(
            "shop",
            authentication=StandardWebhooks(keys=(KEY,)),
            types={TYPE: Invoice},
            owner="team",
            identity=IdentityRule.CLOUDEVENTS,
        )
        collect = ledger.recipient("bank", self.bank.contract()).effect("collect", Invoice)

        @collect.send
        async def send(call: Any) -> Any:
            async with HttpOut(verify=False) as out:
                return await out.send(call, f"{self.bank.url}/effects")

        @collect.lookup
        async def look(ask: Any) -> Any:
            return ask.absent()

        collect.seal(look)

        @ledger.on(self.shop, TYPE)
        def bill(tx: Any, event: Any) -> None:
            if self.is_careful:
                tx.request(collect, f"invoice/{event.data.id}", event.data)
            else:
                self.bank._transact(lambda conn: self.bank._do(conn, _asked(event.data.id)))

        ledger.prepare()
        return ledger

    async def begin(self, ledger: Ledger) -> None:
        self.before = self.bank.effects
        body = json.dumps({"id": "481"}).encode()
        at_s = ledger.books.now_us() // 1_000_000
        headers = {
            "content-type": "application/json",
            "ce-specversion": "1.0",
            "ce-id": "e1",
            "ce-source": "/shop",
            "ce-type": TYPE,
            "webhook-id": "m1",
            "webhook-timestamp": str(at_s),
            "webhook-signature": sign(body, id="m1", at_s=at_s, key=SECRET),
        }
        await ledger.receive(self.shop, headers=headers, body=body)

    async def check(self, _ledger: Ledger) -> None:
        made = self.bank.effects - self.before
        assert made == 1, f"the bank made {made} charges"


def _asked(key: str) -> Any:
    from landed.recipient.http import Asked

    return Asked(key, None, None, b"{}")


async def test_a_program_that_asks_for_its_effects_survives_every_crash(tmp_path: Path):
    with FaultyRecipient() as bank:
        program = Program(tmp_path, bank, is_careful=True)
        survived = await crash_everywhere(program.open, program.begin, program.check)
    points = {died.point for died in survived}
    assert {"KP-7", "KP-8", "KP-13", "KP-14", "KP-15", "KP-16", "KP-18", "KP-19"} <= points


async def test_a_handler_that_acts_by_itself_is_found(tmp_path: Path):
    with FaultyRecipient() as bank:
        program = Program(tmp_path, bank, is_careful=False)
        with pytest.raises(AssertionError, match=r"after a crash at KP-7, .* made 2 charges"):
            await crash_everywhere(program.open, program.begin, program.check)
