"""Read paths, queries and bodies strictly: what is not plainly meant is answered with 400."""

from __future__ import annotations

import re
from typing import Final
from uuid import UUID

from fastapi import Request

from landed.accounts.domain import Deposit, Transfer, Withdrawal
from landed.fastapi import read_json, refuse

VERSION_MAX: Final = 2**64 - 1
HISTORY_LIMIT: Final = 200
HISTORY_LIMIT_MAX: Final = 1000

_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_DIGITS: Final = re.compile(r"[0-9]{1,20}")


def account_id(text: str, *, name: str = "the account id") -> UUID:
    """Read an account's id: a UUID in its dashed form."""
    if not _UUID.fullmatch(text):
        raise refuse("BAD_REQUEST", f"{name} must be a UUID in its dashed form")
    return UUID(text)


def number(request: Request, name: str, *, low: int, high: int) -> int | None:
    """Read a number from the query; None if it is not there.

    Raises:
        ProblemError: 400: no number, outside ``low`` to ``high``, or given twice.
    """
    values = request.query_params.getlist(name)
    if not values:
        return None
    if len(values) > 1 or not _DIGITS.fullmatch(values[0]):
        raise refuse("BAD_REQUEST", f"{name} must be one whole number")
    value = int(values[0])
    if not low <= value <= high:
        raise refuse("BAD_REQUEST", f"{name} must be {low} to {high}")
    return value


async def deposit(request: Request, account: str) -> Deposit:
    """Read a deposit's body."""
    return Deposit(account_id(account), _cents(await read_json(request)))


async def withdrawal(request: Request, account: str) -> Withdrawal:
    """Read a withdrawal's body."""
    return Withdrawal(account_id(account), _cents(await read_json(request)))


async def transfer(request: Request) -> Transfer:
    """Read a transfer's body."""
    body = await read_json(request)
    source = _member_id(body, "fromAccountId")
    return Transfer(source, _member_id(body, "toAccountId"), _cents(body))


def _member_id(body: dict[str, object], name: str) -> UUID:
    value = body.get(name)
    if not isinstance(value, str):
        raise refuse("BAD_REQUEST", f"{name} must be a UUID in its dashed form")
    return account_id(value, name=name)


def _cents(body: dict[str, object]) -> int:
    """An integer literal and nothing that another parser could round (SW-115)."""
    value = body.get("amountCents")
    if not isinstance(value, int) or isinstance(value, bool):
        raise refuse("BAD_REQUEST", "amountCents must be a JSON integer, in cents")
    return value
