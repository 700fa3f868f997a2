"""The demo's accounts: four people, and the money they start with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from landed.demo.http import ask

CLIENT_ID: Final = "5eed0000-0000-4000-8000-00000000c11e"
"""The demo's service identity. A service of your own has one of its own, in its configuration."""

ACCOUNTS: Final = {
    "ada00000-0000-4000-8000-000000000001": ("Ada", 125_000),
    "6ace0000-0000-4000-8000-000000000002": ("Grace", 82_050),
    "ed500000-0000-4000-8000-000000000003": ("Edsger", 31_415),
    "ba4ba4a0-0000-4000-8000-000000000004": ("Barbara", 9_900),
}
"""Account id to name and first deposit, in cents."""


def write_names(path: Path) -> None:
    """Write the file that ``landed accounts --names`` reads."""
    path.write_text(json.dumps({id_: name for id_, (name, _) in ACCOUNTS.items()}))


async def open_accounts(host: str, port: int) -> None:
    """Give every account that was never written its first deposit.

    The key is the account's own, so that a demo stopped half way goes on where it was.

    Raises:
        OSError, ValueError: the replica gave no usable answer.
    """
    for account, (_, cents) in ACCOUNTS.items():
        path = f"/api/accounts/{account}"
        status, balance = await ask(host, port, f"{path}/balance")
        if status != 200 or balance["aggregateVersion"] != 0:
            continue
        await ask(
            host, port, f"{path}/deposit", body={"amountCents": cents}, key=f"first-{account}"
        )
