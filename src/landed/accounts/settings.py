"""How one replica of the account service is set up. All replicas but for ``replica`` alike."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

import msgspec

from landed.accounts.domain import ACCOUNT, ORG
from landed.commands import FINGERPRINT_VERSION, Policy, ServiceIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One replica's configuration."""

    identity: ServiceIdentity
    policy: Policy = field(default_factory=Policy)
    replica: str = "accounts"
    names: Mapping[UUID, str] = field(default_factory=dict)
    """What accounts are called; also listed before anything is written to them."""
    caller_header: str | None = None
    """The header in which an authenticating proxy names the caller."""
    is_key_required: bool = False
    projection: str | None = None
    """The URL of the PostgreSQL database that replicas share their folded states in; None: each
    folds for itself, in memory."""
    is_config_accepted: bool = False
    """Write these settings into that database although others stand there (rule SW-94)."""

    @property
    def backend(self) -> str:
        """``memory`` or ``postgres``; there is no third."""
        return "memory" if self.projection is None else "postgres"

    @property
    def shared(self) -> dict[str, object]:
        """What replicas on one database must agree on, or answers are lost between them (SW-94)."""
        return {
            "clientId": str(self.identity.client_id),
            "windowSeconds": self.policy.window_s,
            "marginSeconds": self.policy.window_margin_s,
            "fingerprintVersion": FINGERPRINT_VERSION,
        }

    @property
    def digest(self) -> str:
        """Equal on two replicas exactly if they treat requests alike (SW-95)."""
        alike = {
            **self.shared,
            "backend": self.backend,
            "previousClientIds": sorted(str(one) for one in self.identity.previous_client_ids),
            "callerHeader": (self.caller_header or "").lower(),
            "accounts": f"{ORG}/{ACCOUNT}",
        }
        return hashlib.sha256(msgspec.json.encode(alike)).hexdigest()[:16]

    def info(self) -> dict[str, object]:
        """What ``GET /api/info`` says."""
        return {
            "backend": self.backend,
            "clientId": self.identity.client_id,
            "windowSeconds": self.policy.window_s,
            "replica": self.replica,
            "fingerprintVersion": FINGERPRINT_VERSION,
            "configDigest": self.digest,
        }


def parse_names(data: bytes) -> dict[UUID, str]:
    """Read a names file: a JSON object from account id to name.

    Raises:
        ValueError: it is something else.
    """
    return msgspec.json.decode(data, type=dict[UUID, str])
