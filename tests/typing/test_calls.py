"""The type checker accepts the right calls and rejects the wrong ones, line by line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
EXPECTED = re.compile(r"  # pyright: ignore\[(?P<rule>\w+)\]$")


def test_right_calls_are_accepted_and_wrong_ones_rejected(tmp_path: Path) -> None:
    lines = (HERE / "rejected.py").read_text().splitlines()
    expected = {
        (number, match["rule"])
        for number, line in enumerate(lines)
        if (match := EXPECTED.search(line)) is not None
    }
    bare = "\n".join(EXPECTED.sub("", line) for line in lines)
    (tmp_path / "rejected.py").write_text(bare)
    (tmp_path / "accepted.py").write_text((HERE / "accepted.py").read_text())
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')

    checked = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    found = {
        (Path(each["file"]).name, each["range"]["start"]["line"], each["rule"])
        for each in json.loads(checked.stdout)["generalDiagnostics"]
    }
    assert len(expected) > 30
    assert found == {("rejected.py", *each) for each in expected}
