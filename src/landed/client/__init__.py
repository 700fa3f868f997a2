"""The log from the caller's side: one ``Log`` in front of an engine or of nodes far away.

Floor 4, log wing. Start with log.py. A pool sends a change once and never again after it may have
been received; deciding what to do then is the loop's business.
"""
