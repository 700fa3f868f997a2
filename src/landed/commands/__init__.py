"""Catch up, decide, write, settle: the safe command loop.

Floor 5, log wing. Start with moves.py, the table of which move follows which answer; loop.py does
what it says.
"""
