"""The log in one SQLite file (a store for the lane)."""
