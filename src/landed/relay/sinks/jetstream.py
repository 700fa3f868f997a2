"""NATS JetStream: a publish acknowledgement with stream and sequence proves the hand-off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from landed.errors import ConfigurationError
from landed.relay.port import CLOUDEVENT, Handed, NotHanded, Outgoing, Taken, Undeliverable

try:
    import nats
    import nats.errors
    import nats.js.errors
except ImportError:  # said when a sink is made
    nats = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from nats.aio.client import Client


class JetStreamSink:
    """One subject, or one per event type.

    Args:
        servers: ``nats://host:4222``, one or several.
        subject: ``{type}`` in it stands for the event's type.
        stream: the stream that must take it; None: whichever listens to the subject.
        timeout_s: how long to wait for the acknowledgement.
        dedup_window_s: the stream's own, in which it recognises a repeat by its id.
    """

    proof = "an acknowledgement with stream and sequence"

    def __init__(
        self,
        servers: str | list[str],
        subject: str,
        *,
        stream: str | None = None,
        timeout_s: float = 5.0,
        dedup_window_s: float = 120.0,
    ) -> None:
        if nats is None:
            raise ConfigurationError("JetStream needs an extra: pip install 'landed[nats]'")
        self._servers = servers
        self._subject = subject
        self._stream = stream
        self._timeout_s = timeout_s
        self.dedup_window_s: float | None = dedup_window_s
        self._connection: Client | None = None

    async def hand_on(self, message: Outgoing) -> Handed:
        """Publish one message once, with its id, and wait for the stream's acknowledgement."""
        connection = await self._open()
        headers = {"Nats-Msg-Id": message.message_id, "Content-Type": CLOUDEVENT}
        try:
            ack = await connection.jetstream().publish(
                self._subject.replace("{type}", message.type),
                message.cloudevent(),
                timeout=self._timeout_s,
                stream=self._stream,
                headers=headers,
            )
        except nats.js.errors.NoStreamResponseError:
            return NotHanded("no stream listens to the subject")
        except nats.errors.MaxPayloadError as e:
            return Undeliverable(f"larger than the server takes: {e}")
        except nats.errors.ConnectionClosedError as e:
            self._connection = None
            return NotHanded(f"ConnectionClosedError: {e}")
        if not ack.stream or not ack.seq:
            return NotHanded("the acknowledgement names no stream and sequence")
        return Taken({"stream": ack.stream, "seq": ack.seq, "duplicate": bool(ack.duplicate)})

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    async def _open(self) -> Client:
        if self._connection is None:
            self._connection = await nats.connect(
                self._servers,
                connect_timeout=max(1, int(self._timeout_s)),
                max_reconnect_attempts=-1,
                error_cb=_ignore,
            )
        return self._connection


async def _ignore(_error: Exception) -> None:
    """Errors reach us where they matter: at the publish that they concern."""
