"""Recipients as we see them: how a request leaves over HTTP, and what proves that it did not.

Floor 4, handling wing. Start with http.py; port.py says what it needs of a call.
"""

from landed.outbound.http import HttpOut, answer_to
from landed.outbound.port import Outgoing

__all__ = ["HttpOut", "Outgoing", "answer_to"]
