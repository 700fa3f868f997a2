"""One HTTP deposit on a warm replica: what it asks of the log, and where its processor time goes.

The app is called as a server calls it, without a socket, by one caller that makes one deposit after
the other. Each layer is what it adds to the layers below it, measured one right after the other.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import AsyncExitStack
from typing import Any, Final
from uuid import UUID, uuid4

import msgspec
from benchmarks.report import Figure, Plan, Report
from fastapi import Depends, FastAPI, Request, Response

from landed import connect
from landed.accounts import AccountService, Settings
from landed.accounts.decide import command_of
from landed.accounts.domain import Accounts, Deposit
from landed.client.log import Log
from landed.commands import Policy, ServiceIdentity
from landed.fastapi import RequestKey, SafeWrites, strict_body

COUNTED: Final = 20
_BODY: Final = b'{"amountCents":5}'
_ANSWER: Final = b'{"accountId":"00000000-0000-0000-0000-000000000001","balanceCents":5}'
_PATH: Final = f"/api/accounts/{UUID(int=1)}/deposit"

Once = Callable[[], Awaitable[None]]
"""Make one deposit, or a part of one."""


class _Amount(msgspec.Struct):
    amountCents: int  # noqa: N815  # as it is spelled in the body


class Counted:
    """A log that counts what is asked of it."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._log, name)
        if name not in {"read", "write", "details", "trim", "delete", "info"}:
            return method

        def counting(*arguments: Any, **options: Any) -> Any:
            self.calls[name] += 1
            return method(*arguments, **options)

        return counting


async def count_calls(report: Report, identity: ServiceIdentity) -> None:
    """Count what HTTP deposits on a warm replica ask of the log."""
    report.doing("loop: calls of an HTTP deposit")
    async with AsyncExitStack() as stack:
        log = Counted(await connect("memory:"))
        deposit = _posting(await _service(stack, log, identity))
        await deposit()
        log.calls.clear()
        for _ in range(COUNTED):
            await deposit()
        counts = ", ".join(f"{n / COUNTED:g} {name}" for name, n in sorted(log.calls.items()))
        report.add(
            Figure(
                bench="loop",
                subject="calls of the log for one HTTP deposit on a warm replica",
                rounds=(sum(log.calls.values()) / COUNTED,),
                unit="calls",
                measured=counts,
                target=2.0,
                is_more_better=False,
            )
        )


async def measure_layers(
    plan: Plan, report: Report, identity: ServiceIdentity, *, by_hand: Once, by_loop: Once
) -> None:
    """Report the processor time of each layer, all threads of this process.

    Args:
        plan: how often.
        report: takes a line a layer.
        identity: of the service.
        by_hand: the two calls of a log in memory, and nothing else.
        by_loop: a command made and executed, which makes the same two calls.
    """
    report.doing("loop: an HTTP deposit by layer")
    async with AsyncExitStack() as stack:
        parts = {
            "hand": by_hand,
            "loop": by_loop,
            "framework": _posting(_framework_alone()),
            "own": _posting(await _app_of_ones_own(stack, identity)),
            "whole": _posting(await _service(stack, await connect("memory:"), identity)),
        }
        found = await _micros(parts, rounds=plan.rounds, deposits=30 if plan.is_quick else 500)
    layers: Mapping[str, Callable[[int], float]] = {
        "the log, one read and one write": lambda at: found["hand"][at],
        "the command and the safe loop": lambda at: found["loop"][at] - found["hand"][at],
        "FastAPI, with a route that does nothing": lambda at: found["framework"][at],
        "SafeWrites: key, strict body, task, answer": lambda at: (
            found["own"][at] - found["loop"][at] - found["framework"][at]
        ),
        "the account service, which follows the feed": lambda at: (
            found["whole"][at] - found["own"][at]
        ),
    }
    of = statistics.median(found["whole"])
    for name, layer in layers.items():
        rounds = tuple([layer(at) for at in range(plan.rounds)])
        report.add(
            Figure(
                bench="loop",
                subject=f"HTTP deposit by layer: {name}",
                rounds=rounds,
                unit="us cpu",
                measured=f"{statistics.median(rounds) / of:.0%} of {of:,.0f} us",
            )
        )


async def _micros(
    parts: Mapping[str, Once], *, rounds: int, deposits: int
) -> dict[str, list[float]]:
    """Processor time of one call of each part, round by round, every other round backwards."""
    for once in parts.values():
        for _ in range(deposits // 3):
            await once()  # so that all of them are warm
    found: dict[str, list[float]] = {name: [] for name in parts}
    for at in range(rounds):
        for name in list(parts)[:: 1 if at % 2 == 0 else -1]:
            began = time.process_time()
            for _ in range(deposits):
                await parts[name]()
            found[name].append((time.process_time() - began) / deposits * 1e6)
    return found


async def _service(stack: AsyncExitStack, log: Any, identity: ServiceIdentity) -> FastAPI:
    """Run an account service on a log for as long as the stack is open; it closes the log."""

    async def opened() -> Any:
        return log

    service = AccountService(opened, Settings(identity=identity, policy=Policy()))
    await stack.enter_async_context(service.running())
    return service.app


async def _app_of_ones_own(stack: AsyncExitStack, identity: ServiceIdentity) -> FastAPI:
    """Run an app with safe writes in one route, as a user has it, for as long as the stack is open."""
    safe: SafeWrites[int] = SafeWrites("memory:", identity=identity, domain=Accounts())
    app = FastAPI(openapi_url=None)
    safe.install(app)
    key_of, amount_of = Depends(safe.key), Depends(strict_body(_Amount))

    @app.post("/api/accounts/{account}/deposit")
    async def deposit(
        account: UUID, key: RequestKey = key_of, amount: _Amount = amount_of
    ) -> Response:
        order = Deposit(account, amount.amountCents)
        return await safe.answer(command_of(order, key.event_id), key)

    await stack.enter_async_context(safe.running())
    return app


def _framework_alone() -> FastAPI:
    """An app with one route that reads its body and answers the same whatever it says."""
    app = FastAPI(openapi_url=None)

    @app.post("/api/accounts/{account}/deposit")
    async def deposit(request: Request, account: str) -> Response:  # noqa: ARG001  # read from the path
        await request.body()
        return Response(_ANSWER, media_type="application/json")

    return app


def _posting(app: FastAPI) -> Once:
    """Post deposits to an app, each under a key of its own, as a server would."""

    async def post() -> None:
        status = 0

        async def receive() -> MutableMapping[str, Any]:
            return {"type": "http.request", "body": _BODY, "more_body": False}

        async def send(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            status = message.get("status", status)

        await app(_scope(), receive, send)
        if status != 200:
            raise SystemExit(f"a deposit was answered {status}")

    return post


def _scope() -> dict[str, Any]:
    headers = [
        (b"host", b"accounts"),
        (b"content-type", b"application/json"),
        (b"content-length", str(len(_BODY)).encode()),
        (b"idempotency-key", f'"{uuid4()}"'.encode()),
    ]
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": _PATH,
        "raw_path": _PATH.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": headers,
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 80),
    }
