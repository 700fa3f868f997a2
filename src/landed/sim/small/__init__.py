"""Every order of everything, in worlds small enough: two requests, two replicas, two faults.

No event loop and no seed. The judge, the loop's steps and its table, the fold and the projection
are the product's own, run as plain functions at the granularity of messages; a search goes through
every state there is. Start with state.py (what a world is), then moving.py (what may happen next).
"""
