"""Does every balance fold from the log, and does it keep the domain's one rule?"""

from __future__ import annotations

from collections.abc import Iterator

from landed.sim.history import History
from landed.sim.invariants.answered import balances_of


def balances_fold_from_the_log(history: History) -> Iterator[str]:
    """What a replica showed at a version is what the log adds up to there; never below zero."""
    for key in history.truth.batches:
        name = history.names[key]
        balances = balances_of(history, key)
        for version, balance in enumerate(balances, start=1):
            if balance < 0:
                yield f"{name} is at {balance} cents at version {version}"
        for look in history.looks:
            if look.key != key:
                continue
            if look.version > len(balances):
                yield f"{look.replica} showed version {look.version} of {name}, which is not there"
            elif look.balance_cents != (balances[look.version - 1] if look.version else 0):
                yield (
                    f"{look.replica} showed {look.balance_cents} at version {look.version} of "
                    f"{name}, the log says {balances[look.version - 1]}"
                )
