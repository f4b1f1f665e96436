"""Measure a store in Redis, print the figures and return them."""

from __future__ import annotations

import itertools
import os
import platform
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from penstock.app.version import RELEASE
from penstock.brokers.redis.address import parse_address
from penstock.brokers.redis.connection import ServerCalls
from penstock.brokers.redis.durability import server_settings
from penstock.cli import output
from penstock.tools.bench import measure
from penstock.tools.bench.fan_in import fan_in
from penstock.tools.bench.redis import raw

SINGLE_JOBS = 2000
LATENCY_JOBS = 200
LATENCY_RATE = 50
URL = "redis://127.0.0.1:6379/0"
_AT_ONCE = 500


class Stores:
    """Stores of the benchmark's own on one server: a prefix each, deleted afterwards."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._numbers = itertools.count(1)

    @contextmanager
    def __call__(self) -> Generator[str]:
        prefix = f"{{bench-{os.getpid()}-{next(self._numbers)}}}:"
        sign = "&" if "?" in self._url else "?"
        url = f"{self._url}{sign}prefix={quote(prefix)}"
        try:
            yield url
        finally:
            _delete(url)


def _delete(url: str) -> None:
    server = ServerCalls(parse_address(url))
    pattern = server.prefix.replace("{", r"\{") + "*"
    cursor: bytes | int = 0
    while True:
        cursor, keys = server.call("SCAN", cursor, "MATCH", pattern, "COUNT", _AT_ONCE)
        if keys:
            server.call("UNLINK", *keys)
        if int(cursor) == 0:
            break
    server.close()


def bench(jobs: int, *, url: str | None = None, json: bool = False) -> dict[str, Any]:
    """Measure, print and return the figures."""
    url = url or URL
    stores = Stores(url)
    progress_line = output.ProgressLine(quiet=json)

    def say(text: str) -> None:
        progress_line.clear()
        if not json:
            output.print_note(f"... {text}")

    figures: dict[str, Any] = {"broker": "redis", "jobs": jobs, "machine": _machine(url)}
    single, waited = min(SINGLE_JOBS, jobs // 2), min(LATENCY_JOBS, jobs // 20)
    with stores() as store:
        say(f"raw limit: {jobs:,} values by LPUSH")
        figures["raw_bulk"] = raw.bulk(store, jobs)
    with stores() as store:
        figures |= measure.backlog(store, jobs, say)
    figures |= fan_in(stores, jobs, say)
    with stores() as store:
        say(f"{single:,} single enqueues")
        figures["raw_single"] = raw.single(store, single)
        figures["single_enqueue"] = measure.single(store, single)
    with stores() as store:
        say(f"latency: {waited} jobs at {LATENCY_RATE} a second")
        figures |= measure.percentiles(measure.waits(store, waited, LATENCY_RATE))
    progress_line.clear()
    if json:
        output.print_json(figures)
    else:
        _put(figures)
    return figures


def _machine(url: str) -> dict[str, Any]:
    server = ServerCalls(parse_address(url))
    settings = server_settings(server)
    server.close()
    return {
        "penstock": RELEASE,
        "python": platform.python_version(),
        "server": f"{settings.kind} {settings.version}",
        "keeps": settings.keeps or "unknown",
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
    }


def _put(figures: dict[str, Any]) -> None:
    machine = figures["machine"]
    made = output.table("measure", "figure", "unit", "beside the raw limit", right=("figure",))
    bulk, single = figures["raw_bulk"], figures["raw_single"]
    rows = [
        ("raw limit: LPUSH in pipelines", f"{bulk:,.0f}", "values/s", ""),
        *(
            (name, f"{figures[key]:,.0f}", "jobs/s", f"{figures[key] / bulk:.2f} of LPUSH")
            for name, key in (
                ("bulk enqueue", "bulk_enqueue"),
                ("processing, one process", "processing"),
                ("fan-in, one process", "fan_in"),
            )
        ),
        ("raw single: SET", f"{single:,.0f}", "calls/s", ""),
        (
            "single enqueue",
            f"{figures['single_enqueue']:,.0f}",
            "jobs/s",
            f"{figures['single_enqueue'] / single:.2f} of SET",
        ),
    ]
    for words, name in (("enqueue called", "call"), ("enqueue returned", "return")):
        p50, p99 = figures[f"{name}_to_start_p50_ms"], figures[f"{name}_to_start_p99_ms"]
        rows.append((f"{words} to task start", f"{p50:.2f} / {p99:.2f}", "ms p50/p99", ""))
    for row in rows:
        made.add_row(*row)
    output.console().print(made)
    output.print_text(
        f"Penstock {machine['penstock']}, Python {machine['python']}, {machine['server']} "
        f"({machine['keeps']}), {machine['system']}, {machine['cores']} cores; history on; "
        f"{figures['jobs']:,} jobs of about 100 bytes",
        "dim",
    )
