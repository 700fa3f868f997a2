"""The handling wing's one face: declare, join, start.

Start with ``Ledger``. Everything that a declaration needs is imported from here; what works in the
background (intake, relay, workers) is loaded when it is asked for.
"""

try:
    import sqlalchemy as _  # noqa: F401  # asked for here, so that its lack is one sentence
except ImportError:
    raise ImportError("landed.ledger needs an extra: pip install 'landed[effects]'") from None

from landed.deliveries.event import IdentityRule
from landed.deliveries.producer import EventType, Invalid, PayloadPolicy, Producer
from landed.deliveries.verify import HmacScheme, SigningKey, StandardWebhooks
from landed.effects.contract import (
    Ambiguity,
    Answers,
    Contract,
    Expiry,
    Fence,
    Key,
    Lookup,
    PayloadEquality,
    SameKey,
    Seal,
    StoredErrors,
)
from landed.effects.horizon import HouseSpans, Limits
from landed.effects.order import Order, OrderPolicy
from landed.effects.presets import PRESETS
from landed.effects.state import Finality, State
from landed.ledger.face import Ledger
from landed.ledger.joining import AsyncTx
from landed.registry import (
    Ask,
    Call,
    EffectRef,
    EffectType,
    Event,
    Ordering,
    SealAsk,
    Settlement,
    TransportRef,
    Tx,
)

__all__ = [
    "PRESETS",
    "Ambiguity",
    "Answers",
    "Ask",
    "AsyncTx",
    "Call",
    "Contract",
    "EffectRef",
    "EffectType",
    "Event",
    "EventType",
    "Expiry",
    "Fence",
    "Finality",
    "HmacScheme",
    "HouseSpans",
    "IdentityRule",
    "Invalid",
    "Key",
    "Ledger",
    "Limits",
    "Lookup",
    "Order",
    "OrderPolicy",
    "Ordering",
    "PayloadEquality",
    "PayloadPolicy",
    "Producer",
    "SameKey",
    "Seal",
    "SealAsk",
    "Settlement",
    "SigningKey",
    "StandardWebhooks",
    "State",
    "StoredErrors",
    "TransportRef",
    "Tx",
]
