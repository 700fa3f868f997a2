"""Bytes to messages and back, without a socket.

Floor 2, log wing. Start with connection.py (the table of what may come when); frames.py knows the
header, codec.py the bodies, codes.py the numbers.
"""
