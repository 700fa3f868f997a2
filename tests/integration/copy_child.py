"""A copy that is killed at its n-th step, ten records a step.

Run as ``python -m tests.integration.copy_child N FROM TO``. What is patched is only the size of a step,
and the moment of the kill.
"""

import os
import signal
import sys

from landed.engines import copying

copying.RECORDS = 10  # type: ignore[misc]

from landed.cli.app import run  # noqa: E402  # the rooms of the engines read it when imported


def main() -> None:
    left = int(sys.argv[1])
    add = copying._Steps.add

    def counted(self: copying._Steps, count: int) -> None:
        nonlocal left
        add(self, count)
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    copying._Steps.add = counted  # type: ignore[method-assign]
    sys.exit(run(["copy", *sys.argv[2:]]))


if __name__ == "__main__":
    main()
