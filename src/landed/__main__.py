"""``python -m landed`` is the command ``landed``."""

from landed.cli import main

main()
