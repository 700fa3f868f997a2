"""The real server, pool, loop and engines on a deterministic event loop.

Tower. One seed gives one history. Start with loop.py (time, TCP and threads from a seed), then
explore.py.
"""
