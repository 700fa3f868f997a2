"""Who sent it: signatures over the raw bytes, before anything of them is parsed.

Standard Webhooks (``v1`` HMAC-SHA-256 and ``v1a`` Ed25519) and a configurable HMAC scheme for vendors
with a header of their own. Work is bounded, comparison is constant-time, and a malformed token is
skipped (rules AU-3 to AU-6).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from landed.deliveries.event import Rejected, Verified

TOKENS_MAX: Final = 16
"""Signature tokens looked at in one delivery."""
KEYS_MAX: Final = 8
"""Keys tried for one delivery."""
_SECOND_US: Final = 1_000_000

Ed25519Check = Callable[[bytes, bytes, bytes], bool]
"""(public key of 32 bytes, signature of 64, message) -> does it verify. Handed in: the law owns no
cryptography beyond HMAC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """One key of a producer. Times are microseconds since 1970; None: no bound."""

    id: str
    secret: bytes = b""
    """For HMAC."""
    public: bytes = b""
    """For Ed25519, 32 bytes."""
    not_before_us: int | None = None
    not_after_us: int | None = None

    def is_valid_at(self, now_us: int) -> bool:
        return (self.not_before_us is None or self.not_before_us <= now_us) and (
            self.not_after_us is None or now_us < self.not_after_us
        )

    def __repr__(self) -> str:
        return f"SigningKey(id={self.id!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class StandardWebhooks:
    """The Standard Webhooks scheme: ``id.timestamp.body`` under one or more keys."""

    keys: tuple[SigningKey, ...]
    tolerance_s: int = 300
    """How far the signed time may lie from now, either way, seconds."""
    headers: tuple[str, str, str] = ("webhook-id", "webhook-timestamp", "webhook-signature")


@dataclass(frozen=True, slots=True, kw_only=True)
class HmacScheme:
    """A vendor's own header with one or more hex or base64 HMAC-SHA-256 values.

    The header is either bare (``sha256=<hex>``) or a list (``t=1700000000,v1=<hex>,v1=<hex>``).
    """

    keys: tuple[SigningKey, ...]
    header: str
    prefixes: tuple[str, ...] = ("v1=",)
    """What stands in front of a value; an empty text takes a bare value."""
    timestamp_prefix: str | None = "t="
    """What stands in front of the time, seconds since 1970. None: the scheme signs no time."""
    separator: str = ","
    encoding: str = "hex"
    """``hex`` or ``base64``."""
    joiner: bytes = b"."
    """Between time and body in what is signed."""
    tolerance_s: int = 300


Authentication = StandardWebhooks | HmacScheme


def verify(
    authentication: Authentication,
    *,
    namespace: str,
    headers: Mapping[str, Sequence[str]],
    body: bytes,
    now_us: int,
    is_stale_approved: bool = False,
    check_ed25519: Ed25519Check | None = None,
) -> Verified | Rejected:
    """Say who signed a delivery, or why it is refused.

    Args:
        authentication: the producer's scheme and keys.
        namespace: the name we give whoever holds those keys; never taken from the message.
        headers: by lower-case name, every line of each.
        body: the raw bytes received.
        now_us: microseconds since 1970.
        is_stale_approved: an approved run lets an old attempt time pass; a signature, never.
        check_ed25519: for ``v1a`` tokens; without it they are skipped.
    """
    if isinstance(authentication, StandardWebhooks):
        found = _standard(authentication, headers, body, now_us, check_ed25519)
    else:
        found = _vendor(authentication, headers, body, now_us)
    if isinstance(found, Rejected):
        return found
    key, signed_us, method = found
    result = "verified"
    if signed_us is not None and abs(now_us - signed_us) > authentication.tolerance_s * _SECOND_US:
        if not is_stale_approved:
            return Rejected(status=401, reason="not_fresh", detail="the signed time is too far off")
        result = "verified-stale-approved"
    return Verified(
        namespace=namespace, key_id=key.id, method=method, signed_us=signed_us, result=result
    )


_Found = tuple[SigningKey, int | None, str]


def _standard(
    scheme: StandardWebhooks,
    headers: Mapping[str, Sequence[str]],
    body: bytes,
    now_us: int,
    check_ed25519: Ed25519Check | None,
) -> _Found | Rejected:
    id_name, time_name, signature_name = scheme.headers
    lines = [headers.get(name, ()) for name in (id_name, time_name, signature_name)]
    if any(len(line) != 1 or not line[0] for line in lines):
        return Rejected(
            status=400,
            reason="bad_syntax",
            detail=f"{id_name}, {time_name} and {signature_name} are needed, each once",
        )
    (message_id,), (time_text,), (signature,) = lines
    signed_us = _seconds(time_text)
    if signed_us is None:
        return Rejected(status=400, reason="bad_syntax", detail=f"{time_name} is not a time")
    signed = f"{message_id}.{time_text}.".encode() + body
    for token in signature.split(" ", TOKENS_MAX)[:TOKENS_MAX]:
        version, comma, text = token.partition(",")
        value = _base64(text) if comma else None
        if value is None:
            continue
        for key in _usable(scheme.keys, now_us):
            if version == "v1" and key.secret and _hmac_is(key.secret, signed, value):
                return key, signed_us, "standard-webhooks"
            if (
                version == "v1a"
                and key.public
                and check_ed25519 is not None
                and len(value) == 64
                and check_ed25519(key.public, value, signed)
            ):
                return key, signed_us, "standard-webhooks"
    return _unauthenticated()


def _vendor(
    scheme: HmacScheme, headers: Mapping[str, Sequence[str]], body: bytes, now_us: int
) -> _Found | Rejected:
    lines = headers.get(scheme.header.lower(), ())
    if not lines:
        return _unauthenticated()
    tokens = [
        token.strip()
        for line in lines[:TOKENS_MAX]
        for token in line.split(scheme.separator, TOKENS_MAX)
    ][: TOKENS_MAX + 1]
    signed_us: int | None = None
    signed = body
    if scheme.timestamp_prefix is not None:
        times = [
            token.removeprefix(scheme.timestamp_prefix)
            for token in tokens
            if token.startswith(scheme.timestamp_prefix)
        ]
        if len(times) != 1 or (signed_us := _seconds(times[0])) is None:
            return Rejected(
                status=400, reason="bad_syntax", detail=f"{scheme.header} states no one time"
            )
        signed = times[0].encode() + scheme.joiner + body
    decode = _hex if scheme.encoding == "hex" else _base64
    for token in tokens:
        for prefix in scheme.prefixes:
            value = decode(token.removeprefix(prefix)) if token.startswith(prefix) else None
            if value is None:
                continue
            for key in _usable(scheme.keys, now_us):
                if _hmac_is(key.secret, signed, value):
                    return key, signed_us, "hmac"
    return _unauthenticated()


def _usable(keys: Sequence[SigningKey], now_us: int) -> list[SigningKey]:
    return [key for key in keys if key.is_valid_at(now_us)][:KEYS_MAX]


def _hmac_is(secret: bytes, signed: bytes, value: bytes) -> bool:
    return hmac.compare_digest(hmac.digest(secret, signed, hashlib.sha256), value)


def _unauthenticated() -> Rejected:
    return Rejected(status=401, reason="unauthenticated", detail="no signature verifies")


def _seconds(text: str) -> int | None:
    """Microseconds of a whole number of seconds, or None for anything else."""
    if not (text.isascii() and text.isdigit() and len(text) <= 12):
        return None
    return int(text) * _SECOND_US


def _base64(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def _hex(text: str) -> bytes | None:
    try:
        return bytes.fromhex(text) if len(text) == 64 else None
    except ValueError:
        return None
