"""The check of asymmetric signatures, where the library for it is installed."""

from __future__ import annotations

from landed.deliveries.verify import Ed25519Check


def find_check() -> Ed25519Check | None:
    """A check of Ed25519 signatures; None without ``cryptography``: ``v1a`` tokens are skipped."""
    try:
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415  # an extra
        from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415
            Ed25519PublicKey,
        )
    except ImportError:
        return None

    def check(public: bytes, signature: bytes, message: bytes) -> bool:
        try:
            Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True

    return check
