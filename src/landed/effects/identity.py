"""Two keys of one effect: the meaning we give it, and the value its recipient sees.

The recipient's key is derived from the meaning and never drawn, so that a restored or rebuilt
database derives the same key for the same effect (rule EF-6).
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from landed.fingerprint import digest_parts

EFFECT_KEY_CHARS_MAX: Final = 512
"""Longer texts are payload, not identity."""


def idempotency_key(ledger: str, recipient: str, effect_key: str) -> UUID:
    """Derive the key the recipient sees: 128 bits, written as a UUID. Never depends on chance."""
    digest = digest_parts(
        b"landed-effect-1", ledger.encode(), recipient.encode(), effect_key.encode()
    )
    number = int.from_bytes(digest[:16], "big")
    # RFC 9562 version 8 (a scheme of one's own) and its variant; UUID() takes no 8 before 3.14.
    number = number & ~(0xF << 76) | 8 << 76
    number = number & ~(0x3 << 62) | 2 << 62
    return UUID(int=number)


def resend_until_us(first_sight_us: int, key_retention_us: int, margin_us: int) -> int:
    """The last moment at which a same-key resend may begin while in doubt (rule CT-6).

    The margin covers clock difference and the whole attempt: it must be over before the recipient
    may have forgotten the key. All in microseconds.
    """
    return first_sight_us + key_retention_us - margin_us
