"""The measurements in their order, and the table that is printed."""

from __future__ import annotations

import itertools
import os
import platform
import sqlite3
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.app.version import RELEASE
from penstock.cli import output
from penstock.tools.bench import due, measure, raw
from penstock.tools.bench.claim import claim as measure_claim
from penstock.tools.bench.fan_in import Stores, fan_in

SINGLE_JOBS = 2000
LATENCY_JOBS = 200
LATENCY_RATE = 50


def bench(  # the one entry, called by the command line
    broker: str,
    jobs: int,
    *,
    claim: bool = False,
    around: int = 1_000_000,
    folder: Path | None = None,
    json: bool = False,
) -> dict[str, Any]:
    """Measure, print and return the figures."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=folder) as made:
        path = Path(made)
        figures: dict[str, Any] = {"broker": broker, "jobs": jobs, "machine": _machine(path)}
        progress_line = output.ProgressLine(quiet=json)
        say = _say(progress_line, json=json)
        say(f"raw limit: {jobs:,} rows")
        figures["raw_bulk"] = raw.bulk(path, jobs)
        figures |= measure.backlog(f"sqlite:///{path / 'backlog.db'}", jobs, say)
        figures |= fan_in(_stores(path), jobs, say)
        single, waited = min(SINGLE_JOBS, jobs // 2), min(LATENCY_JOBS, jobs // 20)
        say(f"{single:,} single enqueues")
        figures["raw_single"] = raw.single(path, single)
        figures["single_enqueue"] = measure.single(f"sqlite:///{path / 'single.db'}", single)
        say(f"latency: {waited} jobs at {LATENCY_RATE} a second")
        slept = measure.waits(f"sqlite:///{path / 'latency.db'}", waited, LATENCY_RATE)
        figures |= measure.percentiles(slept)
        for name in ("idle", "busy"):
            file, timed = path / f"due-{name}.db", min(due.JOBS, max(jobs // 1000, 2))
            seconds = due.late(f"sqlite:///{file}", timed, say, busy=name == "busy")
            figures |= due.lateness(name, seconds)
        if claim:
            figures |= measure_claim(path, around, say)
        progress_line.clear()
    if json:
        output.print_json(figures)
    else:
        _put(figures)
    return figures


def _stores(path: Path) -> Stores:
    numbers = itertools.count(1)

    @contextmanager
    def store() -> Generator[str]:
        file = path / f"store-{next(numbers)}.db"
        yield f"sqlite:///{file}"
        file.unlink(missing_ok=True)

    return store


def _say(progress_line: output.ProgressLine, *, json: bool) -> measure.Say:
    def say(text: str) -> None:
        progress_line.clear()
        if not json:
            output.print_note(f"... {text}")

    return say


def _machine(path: Path) -> dict[str, Any]:
    return {
        "penstock": RELEASE,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "file_system": _file_system(path),
        "journal_mode": "wal",
        "synchronous": "full",
        "history": True,
        "implementation": sys.implementation.name,
    }


def _file_system(path: Path) -> str:
    """The kind of file system of a path: on tmpfs no commit waits for a disk."""
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown"
    best, kind = "", "unknown"
    for mount in mounts:
        _, where, what, *_ = mount.split()
        inside = str(path.resolve()).startswith(where.rstrip("/") + "/")
        if inside and len(where) >= len(best):
            best, kind = where, what
    return kind


def _put(figures: dict[str, Any]) -> None:
    machine = figures["machine"]
    made = output.table("measure", "figure", "unit", "what bounds it", right=("figure",))
    bulk, single = figures["raw_bulk"], figures["raw_single"]
    share = figures["bulk_enqueue"] / bulk
    wall = figures["processing_wall_seconds"]
    rows = [
        ("raw limit: executemany", f"{bulk:,.0f}", "rows/s", "SQLite, one row per job"),
        (
            "bulk enqueue",
            f"{figures['bulk_enqueue']:,.0f}",
            "jobs/s",
            f"encoding and checking arguments; {share:.1f} times the raw limit: jobs are packed",
        ),
        (
            "processing, one process",
            f"{figures['processing']:,.0f}",
            "jobs/s",
            f"one CPU core running Python; {wall:.1f} s with start and stop of the worker",
        ),
        (
            "fan-in, one process",
            f"{figures['fan_in']:,.0f}",
            "jobs/s",
            f"{figures['fan_in_ratio']:.2f} times the rate of plain jobs; the last job takes all",
        ),
        ("raw single commits", f"{single:,.0f}", "commits/s", "fsync"),
        (
            "single enqueue",
            f"{figures['single_enqueue']:,.0f}",
            "jobs/s",
            f"fsync; {figures['single_enqueue'] / single:.0%} of the raw commits",
        ),
    ]
    for words, name in (("enqueue called", "call"), ("enqueue returned", "return")):
        p50, p99 = figures[f"{name}_to_start_p50_ms"], figures[f"{name}_to_start_p99_ms"]
        bound = "fsync, then waking the worker" if name == "call" else "waking the worker"
        rows.append((f"{words} to task start", f"{p50:.2f} / {p99:.2f}", "ms p50/p99", bound))
    rows += due.rows(figures)
    if "claim_ratio" in figures:
        around = f"with {figures['around']:,} pending, as many delayed and as many paused jobs"
        rows += [
            ("claim 100, empty store", f"{figures['claim_alone_ms']:.2f}", "ms", "median of 5"),
            ("claim 100, full store", f"{figures['claim_crowded_ms']:.2f}", "ms", around),
            (
                "full / empty store",
                f"{figures['claim_ratio']:.2f}",
                "",
                "medians of 5 alternating runs",
            ),
            ("pause", f"{figures['pause_ms']:.2f}", "ms", "one commit"),
            ("resume", f"{figures['resume_ms']:.2f}", "ms", "one commit"),
        ]
    for row in rows:
        made.add_row(*row)
    output.console().print(made)
    output.print_text(
        f"Penstock {machine['penstock']}, Python {machine['python']}, SQLite {machine['sqlite']}, "
        f"{machine['system']}, {machine['cores']} cores, {machine['file_system']}; "
        f"WAL, synchronous FULL, history on; {figures['jobs']:,} jobs of about 100 bytes",
        "dim",
    )
