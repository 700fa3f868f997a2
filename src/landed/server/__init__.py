"""A log behind a socket.

Floor 4, log wing. Start with session.py: bytes in, requests to the engine in order, answers out in
one write.
"""
