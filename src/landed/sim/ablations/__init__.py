"""Rules broken on purpose: each is switched off for the length of a world, and must be caught.

A simulator that finds nothing proves nothing unless it finds these. The product knows nothing of
it: functions are replaced from here, and put back. Start with breaking.py (what one is), then
table.py (all of them).
"""
