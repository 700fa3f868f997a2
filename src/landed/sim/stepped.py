"""A cancellation at one await of a call: whichever it is, what was begun must stay safe."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


class Stepped(Coroutine[Any, Any, T]):
    """A coroutine whose task is cancelled where it waits for the ``steps``-th time."""

    def __init__(self, inner: Coroutine[Any, Any, T], steps: int) -> None:
        self._inner = inner
        self._steps = steps

    def send(self, value: Any, /) -> Any:
        """Go on to the next await."""
        self._steps -= 1
        if self._steps == 0:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        return self._inner.send(value)

    def throw(self, kind: Any, value: Any = None, _trace: Any = None, /) -> Any:
        """Raise where it waits."""
        return self._inner.throw(kind if value is None else value)

    def close(self) -> None:
        """End it."""
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self._inner.__await__()
