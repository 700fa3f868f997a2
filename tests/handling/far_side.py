"""A recipient on a real port that counts what it did, and misbehaves exactly as told.

``POST /effects`` acts; ``GET /effects/KEY`` looks up; ``POST /seals/KEY`` seals. Faults are taken
from a queue, one a request that acts, before or after it acted.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from landed.effects.headers import parse_expires, parse_fence


@dataclass
class FarSide:
    """The recipient's own books. ``faults`` hold a word each: see ``_Handler``."""

    has_keys: bool = True
    """It knows keys: a repeat gets the first answer and does nothing."""
    has_fence: bool = False
    now_us: Callable[[], int] | None = None
    """With a clock it enforces the deadline that travels with a request."""
    faults: deque[str] = field(default_factory=deque)
    fault: str | None = None
    """A fault of every request, when the queue is empty."""
    acted: Counter[str] = field(default_factory=Counter)
    """Effects by key: the number that must never exceed one."""
    answers: dict[str, bytes] = field(default_factory=dict)
    fences: dict[tuple[str, str], tuple[int, str]] = field(default_factory=dict)
    sealed: set[str] = field(default_factory=set)
    requests: list[tuple[str, str, bytes]] = field(default_factory=list)
    """(key, fence, body) of each request to act, in order of arrival."""
    lookups: list[str] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    """What the newest accepted body said, by its ``id``."""
    gate: threading.Event = field(default_factory=threading.Event)
    """Requests with the fault ``wait`` hang until it is set."""
    hides: bool = False
    """Look-ups find nothing, whatever is there."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def effects(self) -> int:
        """How many effects there were, all told."""
        return sum(self.acted.values())

    def take_fault(self) -> str:
        with self.lock:
            return self.faults.popleft() if self.faults else (self.fault or "")

    def act(self, key: str, fence: str, expires: str, body: bytes) -> tuple[int, bytes]:
        """Expiry, tombstone, key record, fence, in this order (rule RP-1)."""
        with self.lock:
            if self.now_us is not None and expires and self.now_us() > parse_expires(expires):
                return 410, b"expired"
            if key in self.sealed:
                return 410, b"sealed"
            if self.has_keys and key in self.answers:
                return 200, self.answers[key]
            if self.has_fence and fence:
                place = parse_fence(fence)
                taken = self.fences.get((place.domain, place.key))
                if taken is not None and (
                    place.version < taken[0] or (place.version == taken[0] and key != taken[1])
                ):
                    return 412, b"stale"
                self.fences[place.domain, place.key] = (place.version, key)
            self.acted[key] += 1
            document = json.loads(body)
            self.values[str(document.get("id"))] = document
            self.answers[key] = json.dumps({"acted": key}).encode()
            return 200, self.answers[key]


class _Handler(BaseHTTPRequestHandler):
    far: FarSide
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length", 0))
        body = self.rfile.read(length)
        if len(body) < length:  # the sender died within its request
            self._reset()
            return
        if self.path.startswith("/seals/"):
            self._seal(self.path.removeprefix("/seals/"))
            return
        far = self.far
        # Without a key of ours it still keeps our reference, and can be asked by it.
        key = self.headers.get("idempotency-key") or str(json.loads(body).get("key"))
        fence = self.headers.get("landed-fence", "")
        with far.lock:
            far.requests.append((key, fence, body))
        fault, _, argument = far.take_fault().partition(":")
        if fault == "drop":  # read, and reset before it acted
            self._reset()
            return
        if fault == "status":
            more = {"429": {"retry-after": "0"}, "307": {"location": "/effects"}}
            self._answer(int(argument), b"{}", **more.get(argument, {}))
            return
        if fault == "wait":
            far.gate.wait(30)
        status, answer = far.act(key, fence, self.headers.get("landed-expires", ""), body)
        if fault == "lose":  # it acted, and the answer is lost
            self._reset()
        elif fault == "half":  # half a status line
            self.wfile.write(b"HTTP/1.1 2")
            self._reset()
        elif fault == "act-status":
            self._answer(int(argument), answer)
        else:
            self._answer(status, answer)

    def do_GET(self) -> None:
        far, key = self.far, self.path.removeprefix("/effects/")
        with far.lock:
            far.lookups.append(key)
            found = None if far.hides else far.answers.get(key)
        if found is None:
            self._answer(404, b"")
        else:
            self._answer(200, found)

    def _seal(self, key: str) -> None:
        with self.far.lock:
            found = self.far.answers.get(key)
            if found is None:
                self.far.sealed.add(key)
        self._answer(200 if found is None else 409, found or b"")

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def log_message(self, *_args: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_args: object) -> None:
        """A connection that broke is what these tests are about."""


@contextmanager
def far_side(**settings: Any) -> Iterator[FarSide]:
    """A recipient for one test."""
    far = FarSide(**settings)
    handler = type("Handler", (_Handler,), {"far": far})
    server = _Server(("127.0.0.1", 0), handler)
    far.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield far
    finally:
        far.gate.set()
        server.shutdown()
        thread.join(30)
        server.server_close()
