"""The architecture page lists the functions that a job really passes."""

import subprocess
import sys
from pathlib import Path

HOUSE = Path(__file__).parents[1]


def test_the_page_lists_the_steps_of_a_traced_job():
    command = [sys.executable, str(HOUSE / "benchmarks" / "house.py"), "--check"]

    checked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    way_out = "run `python benchmarks/house.py --write`"
    assert checked.returncode == 0, f"{way_out}\n{checked.stderr}"
