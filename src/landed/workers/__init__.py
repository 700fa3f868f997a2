"""What works in the background: handlers, effects, reconciling, and keeping things in order.

Loops, handling wing. Every agent has ``run_once``, which does a bounded amount of work.
"""
