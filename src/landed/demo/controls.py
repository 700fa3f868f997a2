"""What the page may do to the demo: see the replicas, kill one, lose answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from landed.demo.balancer import Loss
from landed.demo.children import Child
from landed.demo.http import RequestHead, answer, whole_answer


class Controls:
    """Answer requests below ``/demo/``; everything else is for the replicas."""

    def __init__(
        self, replicas: Sequence[Child], loss: Loss, *, others: Sequence[Child] = ()
    ) -> None:
        self._replicas = replicas
        self._others = others
        self._loss = loss

    async def __call__(self, head: RequestHead, body: bytes) -> bytes | None:
        """Answer a request of the demo's own, or return None."""
        path = head.target.partition("?")[0]
        if not path.startswith("/demo/"):
            return None
        if (head.method, path) == ("GET", "/demo/state"):
            return whole_answer(200, self._state())
        if head.method != "POST" or path not in ("/demo/kill", "/demo/loss"):
            return answer(404, title="the demo has /demo/state, /demo/kill and /demo/loss")
        # A page from elsewhere cannot send this type without asking first, and is never allowed.
        if head.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return answer(415, title="send application/json")
        try:
            document = json.loads(body)
            is_done = self._kill(document) if path == "/demo/kill" else self._lose(document)
        except (ValueError, KeyError, TypeError, RecursionError):
            return answer(400, title="the body is not what this control takes")
        return whole_answer(200, {"done": is_done, **self._state()})

    def _state(self) -> dict[str, object]:
        return {
            "replicas": [_seen(child) for child in self._replicas],
            "others": [_seen(child) for child in self._others],
            "lossRate": self._loss.rate,
            "lostAnswers": self._loss.lost,
        }

    def _kill(self, document: Mapping[str, object]) -> bool:
        name = document["replica"]
        children = (*self._replicas, *self._others)
        return any(child.kill() for child in children if child.name == name)

    def _lose(self, document: Mapping[str, object]) -> bool:
        rate = document["rate"]
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= 1:
            raise ValueError(rate)
        self._loss.rate = float(rate)
        return True


def _seen(child: Child) -> dict[str, object]:
    return {
        "name": child.name,
        "state": child.state.value,
        "pid": child.pid,
        "restarts": child.restarts,
    }
