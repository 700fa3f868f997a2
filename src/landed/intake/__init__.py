"""The boundary: from the bytes that a producer sends to a receipt and a true answer.

Floor of the loops, handling wing. Start with receive.py; asgi.py is its face over HTTP.
"""

from landed.intake.asgi import IntakeApp
from landed.intake.receive import Acknowledged, Bounds, Intake

__all__ = ["Acknowledged", "Bounds", "Intake", "IntakeApp"]
