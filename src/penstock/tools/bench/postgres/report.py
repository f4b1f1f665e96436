"""The measurements on PostgreSQL in their order, and the tables that are printed."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from penstock.app.version import RELEASE
from penstock.cli import output
from penstock.tools.bench import due, measure
from penstock.tools.bench.fan_in import pair
from penstock.tools.bench.postgres import meter
from penstock.tools.bench.postgres.databases import BenchServer, bench_server
from penstock.tools.bench.postgres.rounds import CALLERS, Figures, round_of
from penstock.tools.bench.postgres.sink import KINDS, through_spark

LATENCY_RATE = 20
_SINK = {
    "copy": "COPY of as many rows",
    "plain": "plain rows",
    "copy_keyed": "COPY into copies of job and sent",
    "keyed": "rows with a key",
    "by_id": "rows with an id",
}


class Floor(NamedTuple):
    """A ratio of two figures that should hold on any machine."""

    of: str
    over: str
    least: float
    words: str

    def ratio(self, rounds: list[Figures]) -> float:
        """The median of the ratio of each round."""
        return median(figures[self.of] / figures[self.over] for figures in rounds)


FLOORS = (
    Floor("bulk_enqueue", "raw_copy", 0.6, "bulk enqueue / COPY"),
    Floor("processing_1", "raw_copy", 0.12, "processing, one process / COPY"),
    Floor("processing_singles", "raw_copy", 0.06, "processing of single enqueues / COPY"),
    Floor("processing_2", "processing_1", 1.15, "two processes / one"),
    Floor("fan_in", "fan_in_plain", 0.7, "fan-in / plain jobs"),
    Floor("single_enqueue", "raw_single", 0.7, "single enqueue / raw commit"),
    Floor("concurrent_enqueue", "raw_single", 8, f"{CALLERS} concurrent callers / raw commit"),
)


def bench(  # the one entry, called by the command line
    jobs: int,
    *,
    url: str | None = None,
    folder: Path | None = None,
    runs: int = 5,
    pending: int | None = None,
    snapshot: float | None = None,
    spark: int | None = None,
    json: bool = False,
) -> dict[str, Any]:
    """Measure, print and return the figures; `pending`, `snapshot`, `spark` add some minutes."""
    with bench_server(url, folder) as server:
        figures: dict[str, Any] = {"broker": "postgres", "jobs": jobs, "runs": runs}
        figures["machine"] = _machine(server)
        progress_line = output.ProgressLine(quiet=json)

        def say(text: str) -> None:
            progress_line.clear()
            if not json:
                output.print_note(f"... {text}")

        figures |= _rounds(server, jobs, runs, say)
        if pending is not None:
            from penstock.tools.bench.postgres.crowded_claim import crowd

            figures |= crowd(server, pending, say)
        if snapshot is not None:
            from penstock.tools.bench.postgres.snapshot import held_open

            figures |= held_open(server, snapshot, say)
        if spark is not None:
            figures |= through_spark(server, spark, runs, say)
        progress_line.clear()
    figures["ratios"] = {
        floor.words: {"ratio": floor.ratio(figures["rounds"]), "least": floor.least}
        for floor in FLOORS
    }
    if spark is not None:
        for kind, limit, least in KINDS:
            words = f"Spark's sink, {_SINK[kind]} / {_SINK[limit]}"
            figures["ratios"][words] = {"ratio": figures[f"spark_{kind}_ratio"], "least": least}
    if json:
        output.print_json(figures)
    else:
        _put(figures)
    return figures


def _rounds(server: BenchServer, jobs: int, runs: int, say: measure.Say) -> dict[str, Any]:
    rounds: list[Figures] = []
    waited: list[tuple[float, float]] = []
    singles = max(jobs // 10, 200)
    for number in range(1, runs + 1):
        say(f"round {number} of {runs}")
        figures = round_of(server, jobs, singles, say)
        rounds.append(figures | pair(server.database, jobs, say, number))
        with server.database() as url:
            say(f"latency at {LATENCY_RATE} jobs a second")
            waited += measure.waits(url, max(jobs // 3000, 20), LATENCY_RATE)
    medians: dict[str, Any] = {
        name: median(figures[name] for figures in rounds) for name in rounds[0]
    }
    medians |= measure.percentiles(waited)
    for name in ("idle", "busy"):
        with server.database() as url:
            timed = min(due.JOBS, max(jobs // 1000, 2))
            seconds = due.late(url, timed, say, busy=name == "busy")
            medians |= due.lateness(name, seconds)
    medians["rounds"] = rounds
    return medians


def _machine(server: BenchServer) -> dict[str, Any]:
    return {
        "penstock": RELEASE,
        "python": platform.python_version(),
        "psycopg": version("psycopg"),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "history": True,
        **meter.facts(server.url),
    }


def _put(figures: dict[str, Any]) -> None:
    made = output.table("measure", "figure", "unit", "remarks", right=("figure",))
    for row in _rows(figures):
        made.add_row(*row)
    output.console().print(made)
    made = output.table("ratio", "measured", "expected", "", right=("measured", "expected"))
    for words, row in figures["ratios"].items():
        remark = "" if row["ratio"] >= row["least"] else "lower than expected"
        made.add_row(words, f"{row['ratio']:.3f}", f"at least {row['least']:g}", remark)
    for words, value, most in _ceilings(figures):
        remark = "" if value <= most else "higher than expected"
        made.add_row(words, f"{value:.2f}", f"at most {most:g}", remark)
    output.console().print(made)
    machine = figures["machine"]
    output.print_text(
        f"Penstock {machine['penstock']}, Python {machine['python']}, "
        f"psycopg {machine['psycopg']}, PostgreSQL {machine['server_version']} "
        f"(fsync {machine['fsync']}, synchronous_commit {machine['synchronous_commit']}, "
        f"shared_buffers {machine['shared_buffers']}), {machine['system']}, "
        f"{machine['cores']} cores; history on; {figures['jobs']:,} jobs of about 100 bytes; "
        f"medians of {figures['runs']}",
        "dim",
    )


def _rows(figures: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    def cost(name: str) -> str:
        wal = f"{figures[f'{name}_wal_bytes_per_job']:,.0f} bytes of WAL per job, "
        if (statements := figures.get(f"{name}_statements_per_job")) is not None:
            return wal + f"{1000 * statements:,.0f} statements per 1,000 jobs"
        transactions = figures[f"{name}_transactions_per_job"]
        return wal + f"{1000 * transactions:,.0f} transactions per 1,000 jobs"

    def rate(words: str, name: str, beside: str = "") -> tuple[str, str, str, str]:
        return words, f"{figures[name]:,.0f}", "jobs/s", beside or cost(name)

    rows = [
        ("raw limit: COPY", f"{figures['raw_copy']:,.0f}", "rows/s", "100,000 per commit"),
        rate("bulk enqueue", "bulk_enqueue"),
        rate("processing, one process", "processing_1"),
        rate("processing, two processes", "processing_2"),
        rate("processing of single enqueues", "processing_singles"),
        rate(
            "fan-in, one process",
            "fan_in",
            f"{figures['fan_in_jobs']:,.0f} jobs and one that takes their outputs; plain jobs: "
            f"{figures['fan_in_plain']:,.0f}/s",
        ),
        ("raw single commits", f"{figures['raw_single']:,.0f}", "commits/s", "prepared insert"),
        rate("single enqueue", "single_enqueue"),
        rate(f"{CALLERS} concurrent callers", "concurrent_enqueue", "enqueue_async, one process"),
    ]
    for words, name in (("enqueue called", "call"), ("enqueue returned", "return")):
        p50, p99 = figures[f"{name}_to_start_p50_ms"], figures[f"{name}_to_start_p99_ms"]
        bound = f"{LATENCY_RATE} jobs a second"
        rows.append((f"{words} to task start", f"{p50:.2f} / {p99:.2f}", "ms p50/p99", bound))
    return rows + due.rows(figures) + _more_rows(figures)


def _more_rows(figures: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    rows: list[tuple[str, str, str, str]] = []
    if "pending" in figures:
        around = f"with {figures['pending']:,} other jobs in {figures['queues']:,} queues"
        rows += [
            ("claim 100, empty store", f"{figures['claim_alone_ms']:.2f}", "ms p50", ""),
            ("claim 100, full store", f"{figures['claim_crowded_ms']:.2f}", "ms p50", around),
            ("claim 100 of any queue", f"{figures['claim_any_ms']:.2f}", "ms p50", around),
            ("first claim of a worker", f"{figures['look_ms']:.2f}", "ms", "looks at all lanes"),
            ("count", f"{figures['count_ms']:.2f}", "ms", around),
            ("pause", f"{figures['pause_ms']:.2f}", "ms", "one commit"),
            ("resume", f"{figures['resume_ms']:.2f}", "ms", "one commit"),
        ]
    if "spark_rows" in figures:
        of = f"a frame of {figures['spark_rows']:,} rows"
        for name, words in _SINK.items():
            limit = name.startswith("copy")
            unit, remark = ("rows/s", "one process") if limit else ("jobs/s", of)
            measured = words if limit else f"Spark's sink, {words}"
            rows.append((measured, f"{figures[f'spark_{name}']:,.0f}", unit, remark))
    if "snapshot_seconds" in figures:
        news = "100 jobs, just enqueued into an empty queue"
        held = f"a snapshot held open for {figures['snapshot_seconds']:.0f} s"
        rows += [
            ("throughput before", f"{figures['load_before']:,.0f}", "jobs/s", "no snapshot"),
            ("throughput at its end", f"{figures['load_held']:,.0f}", "jobs/s", held),
            ("claim before", f"{figures['claim_before_ms']:.2f}", "ms p50", "100 jobs, under load"),
            ("claim at its end", f"{figures['claim_held_ms']:.2f}", "ms p50", held),
            ("claim of new jobs before", f"{figures['claim_news_before_ms']:.2f}", "ms p50", news),
            (
                "claim of new jobs at its end",
                f"{figures['claim_news_held_ms']:.2f}",
                "ms p50",
                held,
            ),
        ]
    return rows


def _ceilings(figures: dict[str, Any]) -> list[tuple[str, float, float]]:
    found: list[tuple[str, float, float]] = []
    if "pending" in figures:
        ratio = figures["claim_crowded_ms"] / figures["claim_alone_ms"]
        found += [
            ("claim, full / empty store", ratio, 1.5),
            ("count, ms", figures["count_ms"], 50),
            ("pause, ms", figures["pause_ms"], 10),
            ("resume, ms", figures["resume_ms"], 10),
        ]
    if "snapshot_seconds" in figures:
        slower = figures["load_before"] / figures["load_held"]
        claims = figures["claim_held_ms"] / figures["claim_before_ms"]
        found += [
            ("throughput before / with a snapshot", slower, 1 / 0.85),
            ("claim with a snapshot / before", claims, 1.3),
        ]
    return found
