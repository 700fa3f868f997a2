"""The frames of our own extensions, pinned byte by byte."""

from __future__ import annotations

from uuid import UUID

import pytest

from landed.errors import RemoteProtocolError
from landed.ids import AggregateKey
from landed.limits import Limits
from landed.log import Batch, Event, FeedEntry, FeedKind, FeedPage, FeedRead
from landed.wire.connection import ClientConnection, Received, ServerConnection
from landed.wire.messages import LogFacts, Operation, Probe

LIMITS = Limits()
CORRELATION = bytes.fromhex("66" * 16)
KEY = AggregateKey(UUID(int=1), UUID(int=2), UUID(int=3))
KEY_HEX = "93" + "".join(f"c410{n:032x}" for n in (1, 2, 3))

FEED_REQUEST = "03000000 e8030000 1a000000 1a000000 0094 c410" + "66" * 16 + "cd03e8 64 cd7530"
PROBE_REQUEST = "03000000 e9030000 02000000 02000000 0091 c0"

FEED_ANSWER_BODY = (
    "94 c410" + "66" * 16 + "93"
    # position 7: version 1 of the aggregate was written
    + "95 07" + KEY_HEX + "01 01 95 01 c410" + "44" * 16 + "c0 cf0000018bcfe5687b 91"
    + "98 01 01 c410" + "77" * 16 + "00 03 01 c402dead c0"
    # position 300: everything below version 2 was trimmed
    + "95 cd012c" + KEY_HEX + "03 02 c0"
    # position 301: it was deleted at version 5
    + "95 cd012d" + KEY_HEX + "00 05 c0"
    + "cd012d c3"
)  # fmt: skip
PROBE_ANSWER = "03000000 e9030000 18000000 18000000 0094 c0 c410" + "ab" * 16 + "02 cd012d"

FEED_PAGE = FeedPage(
    entries=(
        FeedEntry(
            position=7,
            key=KEY,
            kind=FeedKind.WRITTEN,
            batch=Batch(
                version=1,
                client_id=UUID("44" * 16),
                user_id=None,
                server_ms=1_700_000_000_123,
                events=(Event(1, 1, UUID("77" * 16), 0, 3, 1, b"\xde\xad", None),),
            ),
            version=1,
        ),
        FeedEntry(position=300, key=KEY, kind=FeedKind.TRIMMED, batch=None, version=2),
        FeedEntry(position=301, key=KEY, kind=FeedKind.DELETED, batch=None, version=5),
    ),
    next_after=301,
    is_at_end=True,
)
FACTS = LogFacts(log_id=UUID("ab" * 16), restore_epoch=2, position=301)


def frame(type: int, body_hex: str) -> bytes:
    body = bytes.fromhex(body_hex)
    lengths = len(body).to_bytes(4, "little") * 2
    return (3).to_bytes(4, "little") + type.to_bytes(4, "little") + lengths + b"\0" + body


@pytest.mark.parametrize(
    ("request_hex", "request_", "correlation"),
    [
        (FEED_REQUEST, FeedRead(after=1000, limit=100, wait_ms=30_000), CORRELATION),
        (PROBE_REQUEST, Probe(), None),
    ],
)
def test_an_extension_request_is_these_bytes(request_hex, request_, correlation):
    data = bytes.fromhex(request_hex)
    assert ClientConnection(LIMITS).request(request_, correlation) == data
    server = ServerConnection(LIMITS)
    server.receive(data)
    assert server.next_request()[:2] == (request_, correlation)


def test_a_feed_answer_is_these_bytes():
    data = frame(1000, FEED_ANSWER_BODY)
    received = Received(None, CORRELATION, Operation.FEED, 0)
    assert ServerConnection(LIMITS).answer(received, FEED_PAGE) == data
    client = ClientConnection(LIMITS)
    client.receive(data)
    assert client.next_answer(Operation.FEED) == (FEED_PAGE, CORRELATION)


def test_a_probe_answer_is_these_bytes():
    data = bytes.fromhex(PROBE_ANSWER)
    received = Received(None, None, Operation.PROBE, 0)
    assert ServerConnection(LIMITS).answer(received, FACTS) == data
    client = ClientConnection(LIMITS)
    client.receive(data)
    assert client.next_answer(Operation.PROBE) == (FACTS, None)


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("95 01" + KEY_HEX + "02 01 c0", "no kind 2"),
        ("95 01" + KEY_HEX + "01 01 c0", "carries a batch"),
        ("95 01" + KEY_HEX + "00 01 95 01 c410" + "44" * 16 + "c0 00 90", "carries a batch"),
    ],
)
def test_a_feed_entry_that_contradicts_itself_is_not_trusted(entry, why):
    client = ClientConnection(LIMITS)
    client.receive(frame(1000, "94 c0 91" + entry + "01 c3"))
    with pytest.raises(RemoteProtocolError, match=why):
        client.next_answer(Operation.FEED)
