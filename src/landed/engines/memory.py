"""The log in memory: an engine held to every obligation but durability, not a mock."""
