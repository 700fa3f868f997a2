"""The reference service: accounts over HTTP, run as a fleet.

Roof. Short on purpose: a domain, a decide, a fold, an HTTP face, and no retry code at all.
"""

from landed.accounts.app import AccountService
from landed.accounts.settings import Settings

__all__ = ["AccountService", "Settings"]
