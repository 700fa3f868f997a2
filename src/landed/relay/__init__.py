"""The relay: hands publications and alerts on, until somebody else durably has them.

Loops, handling wing. Start with port.py, which says what a sink is; relay.py is the agent.
"""

from landed.relay.port import Gone, Handed, NotHanded, Outgoing, Sink, Taken, Undeliverable
from landed.relay.relay import Pace, Relay, relays
from landed.relay.sinks.http import HttpSink
from landed.relay.sinks.jetstream import JetStreamSink
from landed.relay.sinks.log import LogSink

__all__ = [
    "Gone",
    "Handed",
    "HttpSink",
    "JetStreamSink",
    "LogSink",
    "NotHanded",
    "Outgoing",
    "Pace",
    "Relay",
    "Sink",
    "Taken",
    "Undeliverable",
    "relays",
]
