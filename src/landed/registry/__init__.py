"""What was declared: producers, handlers, recipients, effect types, destinations; and a transaction.

Floor 3, handling wing, above the records. Everything a ledger's agents need to know of a user's
code is a value here. Start with declared.py; tx.py is what a handler gets.
"""

from landed.effects.order import Order
from landed.registry.calls import Ask, Call, SealAsk
from landed.registry.declared import Destination, Handler, Recipient, Registry
from landed.registry.effect_type import EffectType, Ordering
from landed.registry.event import Event, Settlement, TransportRef
from landed.registry.tx import EffectRef, Tx

__all__ = [
    "Ask",
    "Call",
    "Destination",
    "EffectRef",
    "EffectType",
    "Event",
    "Handler",
    "Order",
    "Ordering",
    "Recipient",
    "Registry",
    "SealAsk",
    "Settlement",
    "TransportRef",
    "Tx",
]
