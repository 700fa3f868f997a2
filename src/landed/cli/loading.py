"""Finding a user's ledger by its import path: ``module:name``."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from landed.errors import ConfigurationError

if TYPE_CHECKING:
    from landed.ledger import Ledger


def load_ledger(target: str, database: str | None = None) -> Ledger:
    """Import a ledger, or call the function that makes it.

    Args:
        target: ``package.module:name``; the current folder is looked into first.
        database: in place of the one that was declared.

    Raises:
        ConfigurationError: there is none; the message says what was found instead.
    """
    from landed.ledger import Ledger

    module_name, colon, name = target.partition(":")
    if not colon or not module_name or not name:
        raise ConfigurationError(
            f"a ledger is named module:name, such as app:ledger, not {target!r}"
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as e:
        if e.name is None or not (module_name + ".").startswith(e.name + "."):
            raise ConfigurationError(f"{module_name} imports {e.name}, which is not there") from e
        raise ConfigurationError(
            f"there is no module {module_name} in {here} or among what is installed"
        ) from None
    found = getattr(module, name, None)
    if callable(found) and not isinstance(found, Ledger):
        found = found()
    if not isinstance(found, Ledger):
        raise ConfigurationError(
            f"{target} is {type(found).__name__}, not a Ledger"
            if found is not None
            else f"{module_name} has no {name}"
        )
    if database is not None:
        found.use_database(database)
    return found
