"""The payments of ``landed demo``: one webhook is one charge in the bank's own books."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx

from landed.clock import SystemClock
from landed.demo.payments.shop import event_of, signed
from tests.integration.accounts_process import Process
from tests.integration.demo_process import HTTP, until

EVENT = event_of(9001, "invoice.finalized", "Ada", 1250)
KEY = "invoice/9001/collect"


def rows(folder: Path, database: str, query: str) -> list[tuple[Any, ...]]:
    """Read a database of the demo from outside, as an auditor would."""
    file = folder / ".landed-demo" / f"{database}.sqlite"
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as conn:
        return conn.execute(query).fetchall()


def charged(folder: Path) -> list[tuple[Any, ...]]:
    """What the bank itself wrote down; nothing in it makes an invoice unique."""
    return rows(folder, "neighbours", "SELECT invoice, cents FROM charges ORDER BY number")


def webhooks(running: Process, copies: int) -> list[str]:
    """Send the same webhook, all copies at once; returns what each was answered."""

    async def send_all() -> list[str]:
        headers, body = signed(EVENT, now_s=SystemClock().wall_ms() // 1000)
        async with httpx.AsyncClient(base_url=running.url, timeout=20, verify=False) as client:
            hook = "/payments/hooks/shop"
            answers = await asyncio.gather(
                *(client.post(hook, headers=headers, content=body) for _ in range(copies))
            )
        assert {answer.status_code for answer in answers} == {202}
        return sorted(answer.headers["landed-disposition"] for answer in answers)

    return asyncio.run(send_all())


def get(running: Process, path: str) -> Any:
    return HTTP.get(running.url + path).raise_for_status().json()


def post(running: Process, path: str, body: dict[str, Any]) -> Any:
    return HTTP.post(running.url + path, json=body).raise_for_status().json()


def effects(running: Process, event: str) -> dict[str, str]:
    """State by effect key of what an event caused."""
    receipts = get(running, "/payments/api/state")["receipts"]
    (receipt,) = [one for one in receipts if one["event"] == event]
    return {effect["key"]: effect["state"] for effect in receipt["effects"]}


def is_settled(running: Process, number: int) -> bool:
    wanted = {f"invoice/{number}/collect": "confirmed", f"invoice/{number}/mail": "confirmed"}
    return effects(running, f"evt_{number}") == wanted


def live_at_first(running: Process, folder: Path) -> str:
    """Copies at once, lost answers, an unknown type, nonsense; returns the second invoice."""
    assert webhooks(running, 20) == ["accepted", *["duplicate"] * 19]
    assert until(lambda: is_settled(running, 9001))
    assert charged(folder) == [("9001", 1250)]

    # The answers get lost: nobody guesses, the bank is asked, and it has it.
    assert post(running, "/payments/their/switch", {"losing": True})["losing"] is True
    lost = post(running, "/payments/their/send", {})
    assert lost["answers"] == {"202 accepted": 1}
    assert until(lambda: is_settled(running, int(lost["invoice"])))
    assert charged(folder)[1:] == [(lost["invoice"], charged(folder)[1][1])]
    told = stories(running, lost["event"])
    assert "attempt 1 ended: ambiguous" in told
    assert "lookup: present" in told
    assert get(running, "/payments/their/state")["lostAnswers"] == 2  # the charge's, the mail's

    # What nobody declared is kept, with its owner, and charged nothing.
    odd = post(running, "/payments/their/send", {"unsupported": True})
    assert odd["answers"] == {"202 quarantined": 1}
    (aside,) = get(running, "/payments/api/state")["quarantine"]
    assert (aside["type"], aside["reason"]) == ("coupon.redeemed", "unsupported_type")
    assert aside["owner"] == "team-billing"

    refuses_what_it_does_not_take(running)
    return str(lost["invoice"])


def live_again(running: Process, folder: Path, lost: str) -> None:
    """After a restart the copy of the first webhook is a copy still."""
    assert webhooks(running, 1) == ["duplicate"]
    # A later invoice goes all the way: whatever the copy set off would have come before it.
    after = post(running, "/payments/their/send", {})
    assert until(lambda: is_settled(running, int(after["invoice"])))
    assert [invoice for invoice, _ in charged(folder)] == ["9001", lost, after["invoice"]]
    assert rows(folder, "payments", "SELECT count(*) FROM landed_receipts") == [(4,)]
    assert rows(folder, "payments", "SELECT state FROM invoices") == [("paid",)] * 3


def stories(running: Process, event: str) -> list[str]:
    receipts = get(running, "/payments/api/state")["receipts"]
    (id,) = [one["id"] for one in receipts if one["event"] == event]
    told = get(running, f"/payments/api/stories/{id}")
    return [line["what"] for story in told for line in story["lines"]]


def refuses_what_it_does_not_take(running: Process) -> None:
    """Pages from elsewhere, forged webhooks, and nonsense."""
    headers, body = signed(EVENT, now_s=SystemClock().wall_ms() // 1000)
    forged = HTTP.post(f"{running.url}/payments/hooks/shop", headers=headers, content=body + b" ")
    assert forged.status_code == 401
    text = {"content-type": "text/plain"}
    for path in ("their/send", "their/switch", "api/ask/x"):
        plain = HTTP.post(f"{running.url}/payments/{path}", content=json.dumps({}), headers=text)
        assert plain.status_code == 415
    for nonsense in ({"copies": 51}, {"copies": 0}, {"invoice": "1"}, {"invoice": "x"}, []):
        assert HTTP.post(f"{running.url}/payments/their/send", json=nonsense).status_code == 400
    assert HTTP.get(f"{running.url}/payments/api/stories/x").status_code == 404
    assert HTTP.get(f"{running.url}/payments/nothing").status_code == 404
