"""What may happen outside, once; and what is known of it.

Floor 1, handling wing. Decides; never awaits, stores or tells the time.
Start with transitions.py, the life of an effect as a table.
"""
