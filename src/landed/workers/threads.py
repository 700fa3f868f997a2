"""Code that may block, each on a thread of its own that nobody has to wait for."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

R = TypeVar("R")


async def on_thread(work: Callable[[], R], *, name: str) -> R:
    """Run a function on a new daemon thread, in the context of whoever waits for it.

    Not on a pool: a user's function may hang for good, and must then hold up neither the work of
    others nor the end of the process.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[R] = loop.create_future()
    context = contextvars.copy_context()

    def _settle(result: R | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]  # R may well be None

    def _run() -> None:
        result: R | None = None
        error: BaseException | None = None
        try:
            result = context.run(work)
        except BaseException as e:  # noqa: BLE001  # handed to whoever waits
            error = e
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_settle, result, error)

    threading.Thread(target=_run, name=name, daemon=True).start()
    return await future
