"""Who sent what, and whether it may be kept.

Floor 1, handling wing. Decides; never awaits, stores or tells the time.
Start with verify.py, then classify.py.
"""
