"""A log behind a socket.

Floor 4, log wing. Start with session.py: bytes in, requests to the engine in order, answers out in
one write a loop turn. listener.py owns the socket and the sessions, dispatch.py says who answers a
request, admission.py keeps the memory bounded, admin.py answers the operator's three questions.
"""

from landed.server.listener import Server, serve

__all__ = ["Server", "serve"]
