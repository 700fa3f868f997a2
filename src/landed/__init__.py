"""Landed: writes that are safe to retry, and effects that happen once.

Start with ``landed.connect(url)``, which returns a ``Log``; then ``landed.commands`` for the safe
write loop. The rooms and how they hang together are drawn in ARCHITECTURE.md.
"""

__version__ = "0.1.0"
