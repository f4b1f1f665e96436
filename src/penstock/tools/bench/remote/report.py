"""Measure a SQLite file behind a manager, print the figures and return them."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

from penstock.app.version import RELEASE
from penstock.brokers import open_broker
from penstock.cli import output
from penstock.job import Job
from penstock.tools.bench import due, measure
from penstock.tools.bench.remote.serving import ask, asking, echo, manager
from penstock.tools.bench.remote.streams import ECHO, RECEIVE, TASK

Figures = dict[str, float]
RECEIVERS = (1, 50, 500)
FEW_RECEIVERS = (1, 5)  # for a quick look
SECONDS = 2.0  # of each measurement of streams
ROUNDS = 3
_QUICK_JOBS = 10_000  # with fewer it is a quick look
_SETTLED_SECONDS = 3.0  # until all of them are connected and quiet
LATENCY_JOBS = 200
LATENCY_RATE = 50
_RATE = 15_000  # jobs a second that receivers could work off at most


def bench(jobs: int, *, folder: Path | None = None, json: bool = False) -> dict[str, Any]:
    """Measure, print and return the figures."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=folder) as made:
        path = Path(made)
        figures: dict[str, Any] = {"broker": "remote", "jobs": jobs, "machine": _machine()}
        progress_line = output.ProgressLine(quiet=json)

        def say(text: str) -> None:
            progress_line.clear()
            if not json:
                output.print_note(f"... {text}")

        figures |= _named("direct", measure.backlog(_url(path, "direct"), jobs, say))
        with manager(_url(path, "lent")) as serving:
            say("the same through a manager")
            figures |= _named("managed", measure.backlog(serving.url, jobs, say))
        figures["processing_ratio"] = figures["managed_processing"] / figures["direct_processing"]
        figures |= _latency(path, min(LATENCY_JOBS, jobs // 20), say)
        quick = jobs < _QUICK_JOBS
        sizes = FEW_RECEIVERS if quick else RECEIVERS
        figures |= _streams(path, sizes, 0.5 if quick else SECONDS, say)
        progress_line.clear()
    if json:
        output.print_json(figures)
    else:
        _put(figures, sizes)
    return figures


def _url(path: Path, name: str) -> str:
    return f"sqlite:///{path / name}.db"


def _named(prefix: str, figures: dict[str, float]) -> dict[str, float]:
    return {f"{prefix}_{name}": figure for name, figure in figures.items()}


def _latency(path: Path, jobs: int, say: measure.Say) -> dict[str, float]:
    """From the call of enqueue to the start of the task, without a manager and with one."""
    say(f"latency: {jobs} jobs at {LATENCY_RATE} a second, direct and through a manager")
    waited = measure.waits(_url(path, "soon"), jobs, LATENCY_RATE)
    figures = _named("direct", measure.percentiles(waited))
    timed = min(due.JOBS, max(jobs // 1000, 2))
    with manager(_url(path, "soon-lent")) as serving:
        waited = measure.waits(serving.url, jobs, LATENCY_RATE)
        figures |= _named("managed", measure.percentiles(waited))
        figures |= due.lateness("managed", due.late(serving.url, timed, say, busy=False))
    return figures


def _streams(path: Path, sizes: Sequence[int], seconds: float, say: measure.Say) -> Figures:
    """Receivers with one credit each, in turn with an echo over as many streams; then idle ones."""
    figures: Figures = {}
    for number in sizes:
        say(f"{number} receivers with one credit each, and as many streams of a plain echo")
        figures |= beside_echo(path, number, seconds)
    say(f"{sizes[-1]} receivers, and one worker, that have nothing to do")
    return figures | _idle(path, sizes[-1], seconds)


def beside_echo(path: Path, number: int, seconds: float, rounds: int = ROUNDS) -> Figures:
    """Medians of the rounds; the CPU time is that of the server alone."""
    name = f"receivers_{number}"
    url = _url(path, name)
    store = open_broker(url)
    body = b'{"args":{"number":1}}'
    for _ in range(0, int(_RATE * seconds * rounds), 10_000):
        store.enqueue([Job(task=TASK, body=body) for _ in range(10_000)])
    store.close()
    found: list[Figures] = []
    with echo() as plain, manager(url) as serving:
        for _ in range(rounds):
            used = plain.cpu_seconds()
            raw = ask(plain.port, ECHO, number, seconds)
            raw_cpu = plain.cpu_seconds() - used
            used, claims = serving.cpu_seconds(), serving.claims()
            answered = ask(serving.port, RECEIVE, number, seconds)
            ended = max(1, answered.settled)
            found.append(
                {
                    f"echo_{number}": raw.jobs / raw.seconds,
                    f"echo_{number}_cpu_us": 1e6 * raw_cpu / max(1, raw.jobs),
                    name: ended / answered.seconds,
                    f"{name}_cpu_us": 1e6 * (serving.cpu_seconds() - used) / ended,
                    f"{name}_transactions_per_job": (serving.claims() - claims) / ended,
                    f"{name}_ratio": ended / answered.seconds / (raw.jobs / raw.seconds),
                }
            )
        connections = serving.connections(path / f"{name}.db")
    medians = {key: median(each[key] for each in found) for key in found[0]}
    return {**medians, f"{name}_connections": connections}


def _idle(path: Path, number: int, seconds: float) -> Figures:
    """CPU seconds a second: of a manager with idle receivers, and of one with an idle worker."""
    with manager(_url(path, "idle")) as serving, asking(serving.port, RECEIVE, number, 60.0):
        time.sleep(_SETTLED_SECONDS)
        used, claims = serving.cpu_seconds(), serving.claims()
        time.sleep(2 * seconds)
        many = (serving.cpu_seconds() - used) / (2 * seconds)
        asked = (serving.claims() - claims) / (2 * seconds)
    with manager(_url(path, "idle-worker")) as serving, measure.worker(serving.url):
        time.sleep(_SETTLED_SECONDS)
        used = serving.cpu_seconds()
        time.sleep(2 * seconds)
        one = (serving.cpu_seconds() - used) / (2 * seconds)
    return {
        "idle_receivers": number,
        "idle_receivers_cpu": many,
        "idle_receivers_claims_per_second": asked,
        "idle_worker_cpu": one,
    }


def _machine() -> dict[str, Any]:
    return {
        "penstock": RELEASE,
        "python": platform.python_version(),
        "grpc": str(import_module("grpc").__version__),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
    }


def _put(figures: dict[str, Any], sizes: Sequence[int]) -> None:
    machine = figures["machine"]
    made = output.table("measure", "direct", "manager", "unit", "", right=("direct", "manager"))

    def pair(words: str, name: str, unit: str, beside: str = "", form: str = ",.0f") -> None:
        direct, managed = figures[f"direct_{name}"], figures[f"managed_{name}"]
        made.add_row(words, f"{direct:{form}}", f"{managed:{form}}", unit, beside)

    pair("bulk enqueue", "bulk_enqueue", "jobs/s")
    ratio = f"{figures['processing_ratio']:.2f} times direct"
    pair("processing, one process", "processing", "jobs/s", ratio)
    for percent in (50, 99):
        name = f"call_to_start_p{percent}_ms"
        pair(f"enqueue called to task start, p{percent}", name, "ms", form=".2f")
    for words, name in (("p50", "p50"), ("p99", "p99")):
        late = figures[f"due_managed_{name}_ms"]
        made.add_row(f"start after its time, {words}", "", f"{late:.1f}", "ms", "")
    output.console().print(made)
    table = output.table(
        "receivers", "jobs/s", "echo/s", "ratio", "CPU us/job", "CPU us/echo", "transactions/job"
    )
    for number in sizes:
        name, raw = f"receivers_{number}", f"echo_{number}"
        table.add_row(
            str(number),
            f"{figures[name]:,.0f}",
            f"{figures[raw]:,.0f}",
            f"{figures[f'{name}_ratio']:.2f}",
            f"{figures[f'{name}_cpu_us']:,.0f}",
            f"{figures[f'{raw}_cpu_us']:,.0f}",
            f"{figures[f'{name}_transactions_per_job']:.3f}",
        )
    output.console().print(table)
    output.print_text(
        f"{figures['idle_receivers']} idle receivers: {figures['idle_receivers_cpu']:.3f} CPU "
        f"seconds a second, {figures['idle_receivers_claims_per_second']:.1f} claims a second; an "
        f"idle worker: {figures['idle_worker_cpu']:.3f}; connections to the store: "
        f"{figures[f'receivers_{sizes[-1]}_connections']:.0f}"
    )
    output.print_text(
        f"Penstock {machine['penstock']}, Python {machine['python']}, grpc {machine['grpc']}, "
        f"{machine['system']}, {machine['cores']} cores; SQLite behind the manager, everything on "
        f"this machine; {figures['jobs']:,} jobs of about 100 bytes",
        "dim",
    )
