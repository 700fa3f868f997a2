"""The pytest plugin: ``landed_crashes``, a crash at every boundary of your own program.

Installed with Landed and always there; it costs an unused run nothing and imports nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from landed.testing.boundaries import Boundary
    from landed.testing.everywhere import Open, Step


class Crashes(Protocol):
    """What ``landed_crashes`` is."""

    def __call__(self, open: Open, begin: Step, check: Step) -> list[Boundary]: ...


@pytest.fixture
def landed_crashes() -> Crashes:
    """Run a program with a crash at every boundary; the test fails with the first that breaks it.

    ``landed_crashes(open, begin, check)`` for a test that is a plain function, on an event loop of
    its own; an async test awaits ``landed.testing.crash_at_every_boundary`` instead.
    """

    def _crash(open: Open, begin: Step, check: Step) -> list[Boundary]:
        import asyncio  # noqa: PLC0415  # see above

        from landed.testing.boundaries import (  # noqa: PLC0415
            BoundaryError,
            crash_at_every_boundary,
        )

        if asyncio._get_running_loop() is not None:
            pytest.fail(
                "an event loop is running: await landed.testing.crash_at_every_boundary(...) instead",
                pytrace=False,
            )
        try:
            return asyncio.run(crash_at_every_boundary(open, begin, check))
        except BoundaryError as broken:
            message = str(broken)
        pytest.fail(message, pytrace=False)

    return _crash
