"""The benchmark against peers: it runs, leaves nobody out, and its page is made of its figures."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

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


def run(*arguments: str, script: str = "run.py") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCHMARKS / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)


def figures_of(script: str, *arguments: str) -> dict[str, Any]:
    ran = run(*arguments, "--json", script=script)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


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

    environment = bench_modules.environment

    with pytest.raises(environment.Failed, match="no node with npm is found here"):
        environment.node_of("bullmq")


@pytest.fixture
def bench_modules(monkeypatch):
    """The runner's modules, which are scripts beside each other."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = set(sys.modules)
    import environment
    import report

    yield SimpleNamespace(environment=environment, report=report)
    for name in set(sys.modules) - before:
        if (
            getattr(sys.modules[name], "__file__", None)
            and BENCHMARKS in Path(str(sys.modules[name].__file__)).parents
        ):
            del sys.modules[name]


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


def test_penstock_is_compared_with_the_best_other_system_on_each_store(bench_modules):
    def peer(library, store, **medians):
        figures = {name: {"median": median} for name, median in medians.items()}
        return {"library": library, "store": store, "figures": figures}

    results = {
        "peers": {
            "penstock-redis": peer("penstock", "redis", bulk=100.0, process=40.0),
            "rq": peer("rq", "redis", bulk=10.0, process=1.0),
            "bullmq": peer("bullmq", "redis", bulk=20.0),
            "pgboss": peer("pgboss", "postgres", bulk=1000.0),
        },
        "raw": {"redis_pipeline": {"median": 200.0}},
    }

    found = bench_modules.report.ratios(results, "redis")

    assert found == {"bulk": 5.0, "process": 40.0, "bulk_of_raw": 0.5, "process_of_raw": 0.2}
    table = bench_modules.report._versus(results)
    assert "| bulk enqueue, times the fastest other system on Redis | 5.00 |" in table
    assert "PostgreSQL" not in table


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


def test_what_a_system_costs_the_server_of_postgresql():
    options = ("--quick", "--only", "penstock-postgres", "--here", "--measure", "cost")

    cost = figures_of("run.py", *options)["peers"]["penstock-postgres"]["figures"]

    assert cost["cost"]["wal_process"] > 0, cost
    for situation in ("backlog", "busy", "idle"):
        assert cost["server"][situation].keys() >= {"wal", "commits", "hits"}
    assert cost["server"]["busy"]["commits"] >= 1000  # each job is enqueued by itself
    assert cost["server"]["backlog"]["commits"] < 500
    assert 2 <= cost["server"]["connections"] <= 10


def test_cpu_time_is_that_of_a_process_its_children_and_those_that_have_ended(
    bench_modules, tmp_path
):
    import server_cost

    for pid, parent, times in ((7, 1, "10 20 300 4000"), (8, 7, "1 2 9 9"), (9, 1, "50 50 0 0")):
        (tmp_path / str(pid)).mkdir()
        before = f"{pid} (a (strange) name) S {parent} " + "0 " * 9
        (tmp_path / str(pid) / "stat").write_text(f"{before}{times} 20 0", encoding="ascii")

    assert server_cost.cpu_seconds(7, tmp_path) == 4333 / server_cost._TICKS
    assert server_cost.cpu_seconds(6, tmp_path) is None


def test_curves_have_a_point_for_each_size_and_the_raw_limit_beside_them(bench_modules, tmp_path):
    names = ("pending", "queues", "busy_workers", "history", "payload")

    options = ("--quick", "--stores", "sqlite", "--curves", ",".join(names))
    found = figures_of("curves.py", *options, "--folder", str(tmp_path))

    assert found["curves"].keys() == set(names)
    points = {name: [size for size, cost in found["curves"][name]["sqlite"]] for name in names}
    assert points["pending"] == points["history"] == [1000, 2000]
    assert points["queues"] == [1, 10]
    assert all(cost > 0 for name in names for _, cost in found["curves"][name]["sqlite"])
    assert found["raw"]["sqlite"] > 0

    shutil.copy(DOCS / "benchmarks.md", tmp_path)
    bench_modules.report.write_curves(found, tmp_path, None)
    page = (tmp_path / "benchmarks.md").read_text("utf-8")
    assert "| bytes of payload | SQLite | 100: " in page
    assert page.count("make bench ARGS=--curves: end") == 1


def test_the_bare_loop_is_beside_penstock_and_the_raw_limit():
    options = ("--only", "sqlite", "--jobs", "2000", "--runs", "1")

    figures = figures_of("bare_loop.py", *options)["sqlite"]

    assert figures.keys() == {"raw", "rows", "parcels", "penstock"}
    assert all(rate > 0 for rate in figures.values())


def test_the_time_of_a_job_is_told_by_stretch():
    options = ("--only", "sqlite", "--jobs", "1024", "--singles", "20")

    found = figures_of("stretches.py", *options)["sqlite"]

    assert found.keys() == {"512", "1"}
    for made in found.values():
        assert made["us"].keys() == {"enqueue", "claim", "run", "settle", "history"}
        assert all(us > 0 for us in made["us"].values())
        assert made["driver"]["run"] < made["driver"]["settle"] <= 1
