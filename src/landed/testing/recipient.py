"""A recipient on a real port that counts what it did, and misbehaves exactly as told.

``POST /effects`` acts once per key; ``GET /effects/KEY`` looks up; ``POST /effects/KEY/seal`` seals.
What it did lies in a SQLite file of its own, so that its count survives every restart of the sender.
"""

from __future__ import annotations

import socket
import struct
import tempfile
import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from sqlalchemy import (
    Column,
    Connection,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    delete,
    func,
    insert,
    select,
)

from landed.effects.contract import Contract
from landed.recipient import (
    Answer,
    Found,
    KeyState,
    Promises,
    RequestRefusedError,
    contract_from,
    create_tables,
    describe,
    guard,
    seal,
    status,
)
from landed.recipient.http import Asked, asked_of
from landed.recipient.tables import keys
from landed.records.session import open_engine

T = TypeVar("T")

SCOPE = "faulty"
_own = MetaData()
_effects = Table(
    "effects",
    _own,
    Column("id", Integer, primary_key=True),
    Column("key", Text, nullable=False),
    Column("order_key", Text),
    Column("version", Integer),
    Column("body", LargeBinary, nullable=False),
)


class Fault(StrEnum):
    """What may befall one request to act."""

    DROP = "drop"
    """Read whole, then the connection is reset; it does not act."""
    LOSE = "lose"
    """It acts, and the connection is reset before any answer."""
    CUT = "cut"
    """It acts, and the connection is reset after ``n`` bytes of the answer."""
    HANG = "hang"
    """It waits until ``release``, then acts and answers."""
    ACT_AND_HANG = "act-and-hang"
    """It acts, and waits until ``release`` before it answers."""
    STATUS = "status"
    """It does not act, and answers the status ``n``."""
    ACT_AND_STATUS = "act-and-status"
    """It acts, and answers the status ``n`` all the same."""
    TWICE = "twice"
    """The request arrives a second time right after, as a network may repeat it."""
    FORGET = "forget"
    """Every key it knows is forgotten first."""


class Seen(NamedTuple):
    """One request to act, as it arrived."""

    key: str
    fence: str
    body: bytes


@dataclass(frozen=True, slots=True)
class _Told:
    fault: Fault
    n: int


class FaultyRecipient:
    """Use it as a context manager: it listens within the block.

    Args:
        path: of its database; None: a temporary one.
        has_keys: a repeat under a key does not act again. False: every request acts.
        has_fence: it refuses older versions of an order key.
        has_seal: keys can be sealed.
        has_lookup: it can be asked what became of a key.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        has_keys: bool = True,
        has_fence: bool = True,
        has_seal: bool = True,
        has_lookup: bool = True,
    ) -> None:
        self.has_keys = has_keys
        self.promises = Promises(
            key_retention_s=86_400.0,
            success=(200,),
            has_fence=has_fence,
            has_seal=has_seal,
            has_lookup=has_lookup,
        )
        self.requests: list[Seen] = []
        """Every request to act, in order of arrival."""
        self.port = 0
        self._told: deque[_Told] = deque()
        self._released = threading.Event()
        self._lock = threading.Lock()
        self._path = path

    # --- What it did ----------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def acted(self) -> Counter[str]:
        """Effects by key: the numbers that must be what was intended."""
        with self._engine.connect() as conn:
            counted = conn.execute(select(_effects.c.key, func.count()).group_by(_effects.c.key))
            return Counter({row[0]: row[1] for row in counted})

    @property
    def effects(self) -> int:
        """How many effects there were, all told."""
        return sum(self.acted.values())

    def newest(self, order_key: str) -> tuple[int, bytes] | None:
        """Version and body of what acted last within an order key: where its state stands now."""
        with self._engine.connect() as conn:
            row = conn.execute(
                select(_effects.c.version, _effects.c.body)
                .where(_effects.c.order_key == order_key)
                .order_by(_effects.c.id.desc())
                .limit(1)
            ).one_or_none()
        return None if row is None else (row.version, bytes(row.body))

    def contract(self) -> Contract:
        """What it promises, as a sender's contract made of its own document."""
        return contract_from(describe(self.promises), source="landed.testing.FaultyRecipient")

    # --- What befalls it ------------------------------------------------------------------------

    def next(self, fault: Fault | str, *, n: int = 0, times: int = 1) -> None:
        """Let the next request to act have this fault; calls queue up, later requests are sound."""
        with self._lock:
            self._told.extend([_Told(Fault(fault), n)] * times)

    def release(self) -> None:
        """Let go of everything that hangs."""
        self._released.set()

    def forget(self) -> None:
        """Forget every key, as a recipient does after its retention; what it did stays done."""
        self._transact(lambda conn: conn.execute(delete(keys)))

    # --- Life -----------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="landed-faulty-")
        path = self._path or Path(self._folder.name) / "recipient.db"
        self._engine = open_engine(f"sqlite:///{path}", pool_size=20)
        self._transact(create_tables)
        self._transact(_own.create_all)
        self._server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"far": self}))
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.release()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._engine.dispose()
        self._folder.cleanup()

    # --- Inside ---------------------------------------------------------------------------------

    def _take(self, seen: Seen) -> _Told | None:
        with self._lock:
            self.requests.append(seen)
            return self._told.popleft() if self._told else None

    def _act(self, asked: Asked) -> Answer:
        """One request, guarded as its promises say."""

        def _work(conn: Connection) -> Answer:
            if not self.has_keys:
                return self._do(conn, asked)
            with guard(
                conn,
                scope=SCOPE,
                key=asked.key,
                fingerprint=asked.fingerprint,
                fence=asked.fence if self.promises.has_fence else None,
                expires_us=asked.expires_us,
            ) as op:
                if not op.replayed:
                    op.answer = self._do(conn, asked)
            assert op.answer is not None, "the guard saw to it"
            return op.answer

        return self._transact(_work)

    @staticmethod
    def _do(conn: Connection, asked: Asked) -> Answer:
        conn.execute(
            insert(_effects).values(
                key=asked.key,
                order_key=None if asked.fence is None else asked.fence.key,
                version=None if asked.fence is None else asked.fence.version,
                body=asked.body,
            )
        )
        return Answer(200, b'{"acted":"%b"}' % asked.key.encode())

    def _ask(self, key: str) -> Found:
        def _work(conn: Connection) -> Found:
            if self.has_keys:
                return status(conn, scope=SCOPE, key=key)
            # Without keys it still keeps the sender's reference, and can be asked by it.
            acted = conn.execute(select(_effects.c.id).where(_effects.c.key == key)).first()
            return Found(KeyState.ABSENT if acted is None else KeyState.ACTED)

        return self._transact(_work)

    def _seal(self, key: str) -> Found:
        return self._transact(lambda conn: seal(conn, scope=SCOPE, key=key))

    def _transact(self, work: Callable[[Connection], T]) -> T:
        with self._engine.begin() as conn:
            return work(conn)


class _Handler(BaseHTTPRequestHandler):
    far: FaultyRecipient
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:  # the standard library calls it so
        length = int(self.headers.get("content-length", 0))
        body = self.rfile.read(length)
        if len(body) < length:  # the sender died within its request
            self._reset()
        elif self.path.endswith("/seal"):
            self._seal()
        else:
            self._effect(body)

    def do_GET(self) -> None:  # the standard library calls it so
        if not self.far.promises.has_lookup:
            self._answer(501)
            return
        found = self.far._ask(self.path.removeprefix("/effects/"))
        self._answer(404 if found.state is KeyState.ABSENT else 200, found)

    def _seal(self) -> None:
        if not self.far.promises.has_seal:
            self._answer(501)
            return
        found = self.far._seal(self.path.removeprefix("/effects/").removesuffix("/seal"))
        self._answer(200 if found.state is KeyState.SEALED else 409, found)

    def _effect(self, body: bytes) -> None:
        far, fence = self.far, self.headers.get("landed-fence", "")
        told = far._take(Seen(self.headers.get("idempotency-key", ""), fence, body))
        fault = None if told is None else told.fault
        if fault is Fault.DROP:
            self._reset()
            return
        if told is not None and fault is Fault.STATUS:
            self._answer(told.n)
            return
        if fault is Fault.HANG:
            far._released.wait(60)
        if fault is Fault.FORGET:
            far.forget()
        try:
            asked = asked_of(self.headers, body)  # type: ignore[arg-type]  # names in any case
            answer = far._act(asked)
            if fault is Fault.TWICE:
                far._act(asked)
        except RequestRefusedError as refused:
            answer = Answer(refused.status, refused.reason.encode())
        if fault is Fault.ACT_AND_HANG:
            far._released.wait(60)
        if fault is Fault.LOSE:
            self._reset()
        elif told is not None and fault is Fault.CUT:
            self.wfile.write(self._head(answer.status, answer.body)[: told.n])
            self._reset()
        elif told is not None and fault is Fault.ACT_AND_STATUS:
            self._answer(told.n)
        else:
            self._answer(answer.status, None, answer.body)

    def _answer(self, status_code: int, found: Found | None = None, body: bytes = b"") -> None:
        if found is not None:
            body = found.state.encode() if found.answer is None else found.answer.body
        self.close_connection = True
        state = "" if found is None else found.state.value
        self.wfile.write(self._head(status_code, body, state))

    @staticmethod
    def _head(status_code: int, body: bytes, state: str = "") -> bytes:
        lines = [
            f"HTTP/1.1 {status_code} -",
            f"Content-Length: {len(body)}",
            "Connection: close",
            *([f"Landed-Key-State: {state}"] if state else []),
        ]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body

    def _reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def log_message(self, *_args: Any) -> None:
        """Facts are not printed."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_args: Any) -> None:
        """A connection that broke is what this is about."""
