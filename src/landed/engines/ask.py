"""Ask an engine and wait for the answer: one request, or many with a single future between them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from landed.engines.port import Engine
from landed.log import Answer, Request


def ask(engine: Engine, request: Request) -> asyncio.Future[Answer]:
    """Submit a request now; the future holds its answer.

    A cancelled future does not take the request back (log rule W20).
    """
    future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def done(answer: Answer) -> None:
        if not future.done():
            future.set_result(answer)

    engine.submit(request, done)
    return future


def ask_all(engine: Engine, requests: Sequence[Request]) -> asyncio.Future[list[Answer]]:
    """Submit many requests now, in order; the future holds their answers, in the same order.

    No task and no future per request: this is what a benchmark measures an engine with.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[list[Answer]] = loop.create_future()
    answers: list[Answer | None] = [None] * len(requests)
    missing = len(requests)

    for at, request in enumerate(requests):

        def done(answer: Answer, at: int = at) -> None:
            nonlocal missing
            answers[at] = answer
            missing -= 1
            if not missing and not future.done():
                future.set_result([answer for answer in answers if answer is not None])

        engine.submit(request, done)
    if not requests:
        future.set_result([])
    return future
