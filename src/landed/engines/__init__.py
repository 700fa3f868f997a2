"""Durable logs: what was admitted, on a disk, in order, before anybody is told.

Floor 3, log wing. Start with port.py (the one door), then lane.py (the accepted tail and the group
commit, the same for every engine), then a store.
"""
