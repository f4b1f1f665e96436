"""Penstock and its peers on the same servers, in one run: `make bench`, or this file.

Installs each library into an environment of its own, starts PostgreSQL and Redis on loopback,
measures everyone alike (measure.py, peers/) and writes docs/benchmarks.md. What cannot be installed
or started stands in the table with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import measure
import report
from asking import Asked, Failed
from environment import CACHE, PROJECT, lock_all, node_of, python_of
from measure import Peer, Sizes
from peers import marks
from roster import HERE, LOCKS, Entrant, chosen

DOCS = PROJECT / "docs"
Figures = dict[str, dict[str, Any]]

RATES: dict[str, Callable[[Peer, Sizes], float]] = {
    "single": measure.single,
    "bulk": measure.bulk,
    "process": lambda peer, sizes: measure.process(peer, sizes, 1),
    "process_two": lambda peer, sizes: measure.process(peer, sizes, 2),
    "slow": measure.slow,
    "cpu": measure.cpu,
    "fan_out": measure.fan_out,
}
MEASURES = ("raw", *RATES, "latency", "cost", "kill")
RAW = {
    "postgres": {"postgres_copy": 1.0, "postgres_commit": 0.01},
    "redis": {"redis_pipeline": 0.5, "redis_push": 0.05},
    "sqlite": {"sqlite_bulk": 1.0, "sqlite_commit": 0.01},
}


@dataclass(frozen=True)
class Program:
    """How a library is run: its command, and what its environment holds for it."""

    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)


class Run:
    """One run of the benchmark: who takes part, how long it may take, what came out."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.sizes = measure.QUICK if options.quick else measure.FULL
        self.runs: int = options.runs or self.sizes.runs
        self.measures: set[str] = set(options.measure)
        self.here: bool = options.here
        self._minutes: float = options.minutes
        self._until = float("inf")
        self._open = ExitStack()
        self._peers: list[Peer] = []
        self.results: dict[str, Any] = {
            "date": datetime.now(UTC).date().isoformat(),
            "quick": options.quick,
            "runs": self.runs,
            "sizes": {
                "latency_jobs": self.sizes.latency_jobs,
                "latency_rate": measure.LATENCY_RATE,
                "fan_out": self.sizes.fan_out,
                "slow_jobs": self.sizes.slow_jobs,
                "kill_jobs": self.sizes.kill_jobs,
                "kill_seconds": self.sizes.kill_seconds,
                "cost_seconds": self.sizes.cost_seconds,
                "cost_rate": measure.BUSY_RATE,
            },
            "servers": {},
            "raw": {},
            "peers": {},
        }

    def go(self, entrants: list[Entrant]) -> dict[str, Any]:
        """Everything, in order."""
        programs = self._install(entrants)
        # The bound is for measuring: how long a download takes is nobody's merit.
        began = time.monotonic()
        self._until = began + 60 * self._minutes
        with self._open:
            folder = self._open.enter_context(
                tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=_room())
            )
            self.results["machine"] = _machine(Path(folder))
            self._start(entrants, programs, Path(folder))
            self._measure_raw({peer.entrant.store for peer in self._peers})
            for name, one in RATES.items():
                self._repeat(name, one)
            self._measure_latency()
            self._measure_cost()
            self._measure_kill()
        self.results["seconds"] = round(time.monotonic() - began)
        return self.results

    def _install(self, entrants: Iterable[Entrant]) -> dict[str, Program]:
        """How each library is run that could be installed, and the tools."""
        found: dict[str, Program] = {}
        for entrant in entrants:
            self.results["peers"][entrant.name] = {
                "library": entrant.library,
                "store": entrant.store,
                "figures": {},
            }
        found["tools"] = self._tools()
        for entrant in entrants:
            if entrant.environment not in found:
                try:
                    found[entrant.environment] = self._program(entrant)
                except Failed as reason:
                    self._lost(entrant, reason)
        return found

    def _tools(self) -> Program:
        try:
            return Program([str(self._python("tools"))])
        except Failed as reason:
            raise SystemExit(f"the servers' environment: {reason}") from None

    def _program(self, entrant: Entrant) -> Program:
        if entrant.on_node:
            if self.here:
                raise Failed("not measured: --here makes no environment for Node")
            _say(f"modules of {entrant.library}")
            node, modules = node_of(entrant.library)
            serve = [node, str(HERE / "peers" / "serve.cjs"), entrant.library]
            return Program(serve, {"NODE_PATH": str(modules)})
        python = self._python(entrant.environment)
        return Program([str(python), "-m", "peers.serve", entrant.library])

    def _python(self, lock: str) -> Path:
        if self.here:
            return Path(sys.executable)
        _say(f"environment of {lock}")
        return python_of(LOCKS / f"{lock}.txt")

    def _lost(self, entrant: Entrant, reason: Failed) -> None:
        _say(f"{entrant.name}: {reason}")
        self.results["peers"][entrant.name]["failed"] = str(reason)

    def _start(self, entrants: list[Entrant], programs: dict[str, Program], folder: Path) -> None:
        # As it is now: whoever goes on writing during a run does not change what is measured.
        source = shutil.copytree(
            PROJECT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__")
        )
        environment = {
            **{name: value for name, value in os.environ.items() if "PENSTOCK" not in name},
            "PYTHONPATH": os.pathsep.join([str(HERE), str(source)]),
            "PYTHONPYCACHEPREFIX": str(folder / "compiled"),
        }
        environment.pop("PYTHONWARNINGS", None)
        command = [*programs["tools"].command, str(HERE / "servers.py"), str(folder)]
        self._stores = Asked(command, environment, folder / "servers-log")
        self._open.callback(self._stores.close)
        lost: dict[str, Failed] = {}
        for store in ("postgres", "redis"):
            if store not in {entrant.store for entrant in entrants}:
                continue
            _say(f"starting {store}")
            try:
                self.results["servers"][store] = self._stores.ask(f"start_{store}")
            except Failed as reason:
                lost[store] = Failed(f"{store} did not start: {reason}")
        for entrant in entrants:
            if entrant.environment not in programs:
                continue
            try:
                if entrant.store in lost:
                    raise lost[entrant.store]
                self._enter(
                    entrant, programs[entrant.environment], folder / entrant.name, environment
                )
            except Failed as reason:
                self._lost(entrant, reason)

    def _enter(
        self, entrant: Entrant, program: Program, folder: Path, environment: dict[str, str]
    ) -> None:
        marks.make(folder)
        peer = Peer(
            entrant,
            command=program.command,
            stores=self._stores,
            folder=folder,
            environment=environment | program.environment,
        )
        self._open.callback(peer.close)
        self.results["peers"][entrant.name] |= {"about": peer.ask("about")}
        peer.renew()
        self._peers.append(peer)

    def _measure_raw(self, stores: set[str]) -> None:
        if "raw" not in self.measures:
            return
        for store in sorted(stores):
            for limit, share in RAW[store].items():
                count = int(self.sizes.raw_rows * share)
                rates = [
                    self._stores.ask("raw", limit=limit, count=count) for _ in range(self.runs)
                ]
                _say(f"raw {limit}: {median(rates):,.0f} a second")
                self.results["raw"][limit] = {"median": median(rates), "runs": rates, "rows": count}

    def _repeat(self, name: str, one: Callable[[Peer, Sizes], float]) -> None:
        """A measurement of every peer, then of every peer again: what drifts, drifts for all."""
        if name not in self.measures:
            return
        values: dict[str, list[float]] = {}
        for _ in range(self.runs):
            for peer in self._peers:
                value = self._try(peer, name, one)
                if value is not None:
                    values.setdefault(peer.entrant.name, []).append(value)
        for peer in self._peers:
            runs = values.get(peer.entrant.name)
            if runs and "reason" not in self._figures(peer).get(name, {}):
                self._figures(peer)[name] = {"median": median(runs), "runs": runs}

    def _measure_latency(self) -> None:
        if "latency" not in self.measures:
            return
        for peer in self._peers:
            seconds = self._try(peer, "latency", measure.latency)
            if seconds is not None:
                p50, p99 = (measure.percentile(seconds, percent) for percent in (50, 99))
                self._figures(peer)["latency"] = {"p50": p50, "p99": p99, "jobs": len(seconds)}

    def _measure_cost(self) -> None:
        if "cost" not in self.measures:
            return
        for peer in self._peers:
            if peer.entrant.store == "postgres":
                cost = self._try(
                    peer, "cost", lambda peer, sizes: measure.cost(peer, sizes, self._stores)
                )
                if cost is not None:
                    self._figures(peer)["cost"] = cost
        on_postgres = [peer for peer in self._peers if peer.entrant.store == "postgres"]
        for peer in on_postgres:
            peer.ask("close")  # else what others keep open would be done meanwhile
        for peer in on_postgres:
            found = self._try(
                peer, "server", lambda peer, sizes: measure.server(peer, sizes, self._stores)
            )
            if found is not None:
                self._figures(peer)["server"] = found
            peer.ask("close")
        for peer in on_postgres:
            peer.ask("open")

    def _measure_kill(self) -> None:
        """All peers at once: their jobs sleep, and whoever lets go of a job is waited for."""
        if "kill" not in self.measures or not self._peers:
            return
        for peer in self._peers:
            self._try(peer, "kill", measure.before_kill)
        with ThreadPoolExecutor(len(self._peers)) as threads:
            fates = threads.map(lambda peer: self._try(peer, "kill", measure.killed), self._peers)
            for peer, fate in zip(self._peers, fates, strict=True):
                if fate is not None:
                    self._figures(peer)["kill"] = fate

    def _try(self, peer: Peer, name: str, one: Callable[[Peer, Sizes], Any]) -> Any:
        """What came out, or None with the reason in the figures."""
        figures = self._figures(peer)
        if name not in figures and (reason := self._without(peer, name)):
            figures[name] = {"reason": reason}
        if "reason" in figures.get(name, {}):
            return None
        began = time.monotonic()
        left = self._until - began
        if left < (self.sizes.kill_seconds if name == "kill" else 1):
            figures[name] = {"reason": f"no time left of {self._minutes:g} minutes"}
            return None
        try:
            value = one(peer, replace(self.sizes, bound=min(self.sizes.bound, left)))
        except Failed as reason:
            figures[name] = {"reason": str(reason)}
            value = None
        shown = f"{value:,.2f}" if isinstance(value, float) else ""
        seconds = time.monotonic() - began
        _say(f"{name} {peer.entrant.name} {shown or figures.get(name, '')} ({seconds:.1f} s)")
        return value

    def _figures(self, peer: Peer) -> Figures:
        return self.results["peers"][peer.entrant.name]["figures"]

    def _without(self, peer: Peer, name: str) -> str | None:
        """Why a library cannot be measured so, by its own word."""
        about = self._about(peer)
        if name == "fan_out" and not about["has_fan_out"]:
            return "has none"
        return about.get("without", {}).get(name)

    def _about(self, peer: Peer) -> dict[str, Any]:
        return self.results["peers"][peer.entrant.name]["about"]


def _room() -> Path:
    """Beside the project: the disk that is meant, not a file system in memory."""
    CACHE.mkdir(parents=True, exist_ok=True)
    return CACHE


def _machine(place: Path) -> dict[str, Any]:
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(pages * size / 2**30),
        "kernel": f"{platform.system()} {platform.release().partition('-')[0]}",
        "file_system": _file_system(place),
        "python": platform.python_version(),
    }


def _file_system(place: Path) -> str:
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown"
    best, kind = "", "unknown"
    for mount in mounts:
        _, where, what, *_ = mount.split()
        inside = str(place.resolve()).startswith(where.rstrip("/") + "/")
        if inside and len(where) >= len(best):
            best, kind = where, what
    return kind


def _say(text: str) -> None:
    print(f"... {text}", file=sys.stderr, flush=True)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _measures(text: str) -> list[str]:
    names = _names(text)
    if unknown := sorted(set(names) - set(MEASURES)):
        raise argparse.ArgumentTypeError(f"no {unknown[0]!r}; there are {', '.join(MEASURES)}")
    return names


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/run.py", description=__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="two peers, small sizes; nothing is written")
    add("--only", type=_names, metavar="NAME,...", help="these peers alone")
    add("--measure", type=_measures, default=list(MEASURES), metavar="NAME,...", help="these alone")
    add("--runs", type=int, help="of which the median is taken (default: 3; quick: 1)")
    add("--minutes", type=float, default=40, help="that measuring may take (default: 40)")
    add("--json", action="store_true", help="figures as JSON")
    add("--docs", type=Path, help="the folder to write into (default: docs/, for a full run)")
    add(
        "--here",
        action="store_true",
        help="make no environments (and no plot): use this interpreter for all",
    )
    add(
        "--render",
        action="store_true",
        help="only write the page again, from the figures beside it",
    )
    add("--curves", action="store_true", help="instead: cost per job against sizes (curves.py)")
    add("--lock", action="store_true", help="only write requirements/*.txt anew")
    add("--upgrade", action="store_true", help="with --lock: newer versions")
    return parser.parse_args()


def _curves(options: argparse.Namespace, docs: Path | None) -> None:
    """Run curves.py where the drivers are; its figures, table and plot go into the page."""
    python = Path(sys.executable) if options.here else python_of(LOCKS / "tools.txt")
    folder = _room()
    command = [str(python), str(HERE / "curves.py"), "--folder", str(folder)]
    command += [f"--{name}" for name in ("quick", "json") if getattr(options, name)]
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=folder) as made:
        figures = Path(made) / "curves.json"
        path = os.pathsep.join([str(HERE), str(PROJECT / "src")])
        subprocess.run(
            [*command, "--out", str(figures)], env={**os.environ, "PYTHONPATH": path}, check=True
        )
        if docs is not None:
            found = json.loads(figures.read_text(encoding="utf-8"))
            report.write_curves(found, docs, None if options.here else python)


def main() -> None:
    """The command."""
    # Like Control-C: servers and workers are ended on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    options = _options()
    if options.lock:
        return lock_all(upgrade=options.upgrade)
    docs: Path | None = options.docs
    if options.curves:
        return _curves(options, docs or (None if options.quick or options.here else DOCS))
    full = not (options.quick or options.only or options.here)
    if docs is None and full and set(options.measure) == set(MEASURES):
        docs = DOCS
    if options.render:
        docs = docs or DOCS
        results = report.read(docs)
    else:
        results = Run(options).go(chosen(options.only, quick=options.quick))
    if options.json:
        print(json.dumps(results, indent=2))
    else:
        print(report.text(results))
    if docs is not None:
        tools = None if options.here else python_of(LOCKS / "tools.txt")
        report.write(results, docs, tools)
    return None


if __name__ == "__main__":
    main()
