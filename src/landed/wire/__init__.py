"""Bytes to messages and back, without a socket.

Floor 2, log wing. Start with connection.py (the table of what may come when). Below it: frames.py
knows the header, messages.py what only a connection says, codec.py the bodies (shapes.py is their
field lists, packing.py lays values out, cursor.py reads the unusual by hand), refusals.py which
number stands for which refusal, codes.py what every number means and raises.
"""
