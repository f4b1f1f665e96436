"""The distribution is `penstock-queue`; `penstock`, its import name, is another's on the index."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from importlib.metadata import entry_points, version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FOLDERS = ("src", "docs", "examples", "benchmarks", "requirements", "tests")
TEXT = {"", ".css", ".html", ".in", ".js", ".json", ".md", ".py", ".sql", ".toml", ".txt", ".yml"}
WRONG = re.compile(
    r"\b(?:pip\s+install|pipx\s+install|uv\s+add|uvx|uv\s+tool\s+install)\b[^\n`;&|]*\bpenstock\b(?!-queue)"
    r"|\bpenstock\[[a-z]"
    r"|^penstock\s*(?:[=<>~!]=|@)"
    r"|\b(?:version|distribution|metadata|requires)\((?:\"penstock\"|'penstock')",
    re.MULTILINE,
)


def texts() -> Iterator[Path]:
    yield from (path for path in ROOT.iterdir() if path.is_file() and path.suffix in TEXT)
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.suffix in TEXT and "__pycache__" not in path.parts:
                yield path


def test_no_page_or_message_names_the_package_of_somebody_else() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in texts()
        for match in WRONG.finditer(path.read_text(encoding="utf-8", errors="replace"))
    ]

    assert wrong == []


@pytest.mark.parametrize(
    "text",
    [
        "pip install {}",
        "pip install --upgrade '{}'",
        "pip install '/path/to/{}[web]'",
        "needs `{}[spark]`",
        "uv add {}",
        "{}==0.1.0",
        'version("{}")',
    ],
)
def test_what_would_be_found(text: str) -> None:
    assert WRONG.search(text.format("penstock"))
    assert not WRONG.search(text.format("penstock-queue"))


def test_every_extra_that_is_named_exists() -> None:
    named = {
        extra
        for path in texts()
        for names in re.findall(r"penstock-queue\[([a-z,]+)\]", path.read_text("utf-8", "replace"))
        for extra in names.split(",")
    }

    assert named <= set(PROJECT["optional-dependencies"])
    assert {"postgres", "web"} <= named


def test_the_first_page_lists_every_extra() -> None:
    page = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")

    table = page.partition("| Extra | For |")[2].partition("\n\n")[0]

    names = [row.split("|")[1] for row in table.splitlines()[2:]]
    listed = [name for cell in names for name in re.findall(r"`([a-z-]+)`", cell)]
    assert sorted(listed) == sorted(PROJECT["optional-dependencies"])


def test_what_is_installed_has_that_name() -> None:
    commands = entry_points(group="console_scripts", name="penstock")

    assert PROJECT["name"] == "penstock-queue"
    assert version("penstock-queue") == PROJECT["version"]
    assert "penstock-queue" in {command.dist.name for command in commands if command.dist}


def test_a_wheel_says_what_it_is(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=110)

    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as inside:
        [name] = [name for name in inside.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(inside.read(name).decode())
        assert "penstock/py.typed" in inside.namelist()
    assert wheel.name.startswith("penstock_queue-")
    assert metadata["Name"] == "penstock-queue"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload() == (ROOT / "README.md").read_text(encoding="utf-8")
    assert set(metadata.get_all("Provides-Extra") or ()) == set(PROJECT["optional-dependencies"])
