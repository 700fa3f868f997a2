"""The log from the caller's side: one ``Log`` in front of an engine or of nodes far away.

Floor 4, log wing. Start with log.py, then go down: pool.py (the face), routing.py (which node, and
whether another), cluster.py (one request to one node), node.py (slots, dials, who waits), assign.py
(the decision, on plain data), link.py (one connection). A pool sends a change once and never again
after it may have been received; deciding what to do then is the loop's business.
"""
