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
ON_PYTHON = (
    *("arq", "celery", "dramatiq", "huey", "penstock", "pgqueuer", "procrastinate", "rq", "saq"),
    "taskiq",
)
ON_NODE = ("bullmq", "graphile", "pgboss")
LIBRARIES = (*ON_PYTHON, *ON_NODE)
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


@pytest.mark.parametrize("library", ON_PYTHON)
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


@pytest.mark.parametrize("library", ON_NODE)
def test_every_peer_on_node_exports_the_same_functions(library):
    source = (BENCHMARKS / "peers" / f"{library}.cjs").read_text(encoding="utf-8")

    exported = re.search(r"^module\.exports = \{(.*?)\};", source, re.MULTILINE | re.DOTALL)
    assert exported is not None
    names = {re.sub(r"_(.)", lambda found: found[1].upper(), name) for name in NAMES}
    assert set(exported[1].replace(" ", "").split(",")) == names


def test_where_there_is_no_node_a_row_says_so(bench_modules, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(bench_modules.Failed, match="no node with npm is found here"):
        bench_modules.node_of("bullmq")


@pytest.fixture
def bench_modules(monkeypatch):
    """The runner's modules, which are scripts beside each other."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import environment

    yield environment
    for name in ("environment", "asking", "roster"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("library", ON_NODE)
def test_every_library_of_node_is_locked_with_hashes_and_names_no_host(library):
    text = (BENCHMARKS / "requirements" / library / "package-lock.json").read_text("utf-8")

    packages = {name: package for name, package in json.loads(text)["packages"].items() if name}
    assert packages
    assert all(package["integrity"].startswith("sha512-") for package in packages.values())
    assert "resolved" not in text
    assert "://" not in text


@pytest.mark.parametrize("library", [*ON_PYTHON, "taskiq-pg", "tools"])
def test_every_environment_is_locked_with_hashes_and_names_no_host(library):
    lock = (BENCHMARKS / "requirements" / f"{library}.txt").read_text(encoding="utf-8")

    pinned = re.findall(r"^[\w.\-\[\]]+==", lock, re.MULTILINE)
    assert pinned
    assert len(re.findall(r"--hash=sha256:", lock)) >= len(pinned)
    assert "://" not in lock


def test_everyone_who_is_measured_stands_on_the_page():
    page = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    results = json.loads((DOCS / "assets" / "benchmarks.json").read_text(encoding="utf-8"))

    # Whoever was added since the last whole run is named, and has no row yet.
    assert {peer["library"] for peer in results["peers"].values()} <= set(LIBRARIES)
    for peer in results["peers"].values():
        assert peer.get("about", {}).get("version") or peer["failed"]
    named = page.lower().replace("pg-boss", "pgboss")
    assert [library for library in LIBRARIES if library not in named] == []
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
