"""The benchmark against peers: it runs, leaves nobody out, and its page is made of its figures."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[1]
BENCHMARKS = HOUSE / "benchmarks"
DOCS = HOUSE / "docs"
LIBRARIES = ("celery", "dramatiq", "huey", "penstock", "pgqueuer", "procrastinate", "saq")
NAMES = {
    "about",
    "close_store",
    "enqueue",
    "enqueue_bulk",
    "fan_out",
    "left",
    "open_store",
    "workers",
}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCHMARKS / "run.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)


def test_it_says_what_it_does():
    ran = run("--help")

    assert ran.returncode == 0, ran.stderr
    assert "--quick" in ran.stdout


def test_a_peer_that_there_is_not_is_refused_with_those_that_there_are():
    ran = run("--only", "rabbit", "--here")

    assert ran.returncode == 1
    assert all(library in ran.stderr for library in LIBRARIES)


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_peer_is_a_file_with_the_same_functions(library):
    tree = ast.parse((BENCHMARKS / "peers" / f"{library}.py").read_text(encoding="utf-8"))

    defined = {
        name.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for name in node.targets
        if isinstance(name, ast.Name)
    }
    defined |= {
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert defined >= NAMES


@pytest.mark.parametrize("library", [*LIBRARIES, "tools"])
def test_every_environment_is_locked_with_hashes_and_names_no_host(library):
    lock = (BENCHMARKS / "requirements" / f"{library}.txt").read_text(encoding="utf-8")

    pinned = re.findall(r"^[\w.\-\[\]]+==", lock, re.MULTILINE)
    assert pinned
    assert len(re.findall(r"--hash=sha256:", lock)) >= len(pinned)
    assert "://" not in lock


def test_everyone_who_is_measured_stands_on_the_page():
    page = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    results = json.loads((DOCS / "assets" / "benchmarks.json").read_text(encoding="utf-8"))

    assert {peer["library"] for peer in results["peers"].values()} == set(LIBRARIES)
    for peer in results["peers"].values():
        assert peer.get("about", {}).get("version") or peer["failed"]
        assert peer["library"] in page.lower()
    assert (DOCS / "assets" / "benchmarks.svg").is_file()


def test_the_page_is_made_of_the_figures_beside_it(tmp_path):
    shutil.copy(DOCS / "benchmarks.md", tmp_path)
    shutil.copytree(DOCS / "assets", tmp_path / "assets")

    ran = run("--render", "--here", "--docs", str(tmp_path))

    assert ran.returncode == 0, ran.stderr
    for name in ("benchmarks.md", "assets/benchmarks.json"):
        assert (tmp_path / name).read_text("utf-8") == (DOCS / name).read_text("utf-8")


def test_a_quick_run_measures():
    measures = ("single", "bulk", "process", "latency", "fan_out")

    ran = run(
        *("--quick", "--only", "penstock-sqlite", "--here", "--json"),
        *("--measure", ",".join(("raw", *measures))),
    )

    assert ran.returncode == 0, ran.stderr
    results = json.loads(ran.stdout)
    figures = results["peers"]["penstock-sqlite"]["figures"]
    assert all(figures[name]["median"] > 0 for name in measures if name != "latency"), figures
    assert 0 < figures["latency"]["p50"] <= figures["latency"]["p99"]
    assert results["raw"]["sqlite_bulk"]["median"] > 0
