"""Every example that ends by itself runs as its reader would run it, and says what it promises."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SAYS = {
    "01_first_write.py": ["How.FRESH", "How.ORIGINAL", "(5,)"],
    "02_lost_answer.py": ["booked for Ann at version 1 - original", "Ann has it", "version=1"],
    "05_webhook_to_effect.py": ["Seen(", "ambiguous", "1 request(s) and made 1 charge"],
    "06_recipient_api.py": ["481: 422", "482: 410", "charges made: 1"],
    "07_field_notes.py": ["saved as 2", "(waiting)", "2 landed, 0 left"],
    "08_two_devices.py": ["Ann sees  To the glacier", "both see  To the lake ['rope', 'tent']"],
    "10_own_tables.py": ["['tea', 'bread']", "page - ['tea', 'bread']", "'salt']"],
    "09_outbox_worker.py": ["was there already", "killed at 6 places: one number a row"],
    "11_explored_stock.py": ["40 worlds of Stock are clean", "Careless is wrong in world"],
    "04_transfer.py": ["(6, 4)", "How.FRESH", "How.ORIGINAL", "6 in store"],
}


@pytest.mark.parametrize("name", sorted(SAYS))
def test_an_example_runs_and_says_what_it_promises(name: str, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    for words in SAYS[name]:
        assert words in ran.stdout
