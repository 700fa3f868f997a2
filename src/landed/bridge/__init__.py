"""The bridge: an event written to a log can cause an effect.

Roof: the only room that sees both wings. Start with follower.py.
"""

from landed.bridge.follower import Followed, LogFollower, log_producer

__all__ = ["Followed", "LogFollower", "log_producer"]
"""``log_producer`` declares a log as a producer; ``LogFollower`` brings its events in."""
