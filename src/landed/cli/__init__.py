"""The command ``landed``: one module a subcommand, wired together here.

The door. Rooms are imported inside functions, so that a missing extra is one sentence and
``--help`` is fast.
"""

from landed.cli.app import main

__all__ = ["main"]
