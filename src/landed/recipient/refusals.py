"""What a recipient may say instead of acting: one table of reasons, statuses and sentences."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from landed.errors import HandlingError


class Reason(StrEnum):
    """Why a request did not act. The word is also the end of the problem type."""

    MALFORMED = "malformed"
    """The key is missing, or a header cannot be read."""
    EXPIRED = "expired"
    SEALED = "sealed"
    KEY_CONFLICT = "key-conflict"
    """The key was used with another payload."""
    FENCED = "fenced"
    """A newer version has passed, or another key has this one."""
    IN_PROGRESS = "in-progress"


STATUS_OF: Final[Mapping[Reason, int]] = MappingProxyType(
    {
        Reason.MALFORMED: 400,
        # Not 410: a deadline is checked before the key record, so this answer speaks for this
        # request alone. An earlier one may have acted; a sealed key certainly never did.
        Reason.EXPIRED: 408,
        Reason.SEALED: 410,
        Reason.KEY_CONFLICT: 422,
        Reason.FENCED: 412,
        Reason.IN_PROGRESS: 409,
    }
)
"""Source: rules RP-3, RP-4, RP-5, RP-7, RP-10."""

RETRY_AFTER_S: Final = 1
"""What an answer "in progress" asks for, seconds."""


class RequestRefusedError(HandlingError):
    """The request did not act here, and wrote nothing. ``reason`` says what the sender may conclude.

    Args:
        reason: one of ``Reason``.
        detail: for a person; holds nothing of the payload.
        current_version: of the fence that refused it.
    """

    def __init__(self, reason: Reason, detail: str, *, current_version: int | None = None) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
        self.status = STATUS_OF[reason]
        self.current_version = current_version
