"""Files of others are as they were taken, and nothing is loaded from elsewhere."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import penstock.web

WEB = Path(penstock.web.__file__).parent
VENDORED = WEB / "static" / "vendored"


def test_every_vendored_file_is_the_one_that_is_written_down():
    listed = (VENDORED / "VENDORED.md").read_text(encoding="utf-8")
    written = dict(re.findall(r"^\| `([^`]+)` .*`([0-9a-f]{64})` \|$", listed, re.MULTILINE))

    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in VENDORED.iterdir()
        if path.name != "VENDORED.md"
    }

    assert found == written


def test_no_page_has_a_script_or_a_style_in_it_or_loads_from_elsewhere():
    for template in (WEB / "templates").iterdir():
        text = template.read_text(encoding="utf-8")

        assert not re.search(r"\sstyle=|<style|\son[a-z]+=|javascript:|https?://", text), template
        assert re.findall(r"<script(?! src=\"\{\{ root \}\}/static/)", text) == [], template
        assert "|safe" not in text, template
        assert "Markup" not in text, template


def test_importing_penstock_imports_nothing_of_the_dashboard():
    import subprocess
    import sys

    code = "import sys, penstock, penstock.cli.root; print(sorted(set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    for module in ("starlette", "uvicorn", "jinja2", "penstock.web"):
        assert f"'{module}'" not in out.stdout
