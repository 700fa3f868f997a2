"""What any engine must do, as sentences.

Tower. Each obligation is a plain async function that takes an engine on trial; pytest runs them,
the simulator runs them, and a command runs them against a database of your own. Start with
registry.py; trial.py is the harness; every other module is one chapter of the log's rules.
"""

from landed.conformance.registry import Lever, Obligation, all_obligations, obligation
from landed.conformance.trial import Opener, Trial

__all__ = ["Lever", "Obligation", "Opener", "Trial", "all_obligations", "obligation"]
