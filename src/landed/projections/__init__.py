"""Folded state, its cursor and its answers, moved in one stroke.

Floor 3, log wing. A store owns the cursor and the response index together: there is no way to
configure them apart. Start with port.py.
"""
