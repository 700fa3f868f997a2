"""Places that take messages, each with its own proof of a hand-off."""
