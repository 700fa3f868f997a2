"""Receipts, outbox and effects in one database; a function is what one transaction writes.

Floor 3, handling wing. Every function takes a connection and never commits; ``session.transact`` is
the one place that does. Start with tables.py.
"""
