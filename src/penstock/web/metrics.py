"""Metrics for Prometheus: gauges from the store's counts, counters from its history.

Counters start at the first scrape of this process and count each ended attempt once, whichever
worker ran it; a restart of the dashboard resets them. Labels are queue and task, for a bounded
number of pairs; the rest is added up as `other`.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import msgspec
from starlette.responses import Response

from penstock.broker.gauge import Gauge
from penstock.broker.position import Position
from penstock.broker.views import PLACES, Count, Event, WorkerRow, by_task
from penstock.errors import Refused
from penstock.job import State
from penstock.operate.attempt_times import LAPSED, run_seconds, wait_seconds
from penstock.operate.reasons import outcome_and_reason
from penstock.operate.refusals import NotFound
from penstock.web.checked_store import CheckedStore
from penstock.web.live import newest_position
from penstock.web.request import WebRequest

MOST_PAIRS = 200
MOST_QUEUES = 200
MOST_REASONS = 400
OTHER = "other"
BUCKETS = (0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0)
_PAGE = 5_000
_LONGEST_SECONDS = 1.5  # of reading history in one scrape
_OUTCOMES = {
    State.SUCCEEDED: "succeeded",
    State.FAILED: "failed",
    State.CANCELLED: "cancelled",
    State.READY: "again",
}

Pair = tuple[str, str]  # queue and task


class Histogram:
    """Counts per bucket; the last bucket has no upper bound."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(BUCKETS, value)] += 1
        self.sum += value

    def cumulative(self) -> list[tuple[str, float]]:
        total, bounds = 0, [*(str(bound) for bound in BUCKETS), "+Inf"]
        made: list[tuple[str, float]] = []
        for bound, count in zip(bounds, self.counts, strict=True):
            total += count
            made.append((bound, total))
        return made


class Metrics:
    """The counters of one dashboard; one scrape at a time, so that no row is counted twice."""

    def __init__(self) -> None:
        if find_spec("prometheus_client") is None:
            raise Refused("metrics need prometheus-client: pip install 'penstock-queue[metrics]'")
        self._lock = threading.Lock()
        self._position: Position | None = None
        self._pairs: set[Pair] = set()
        self._ended: Counter[tuple[str, str, str]] = Counter()
        self._reasons: Counter[tuple[str, str, str]] = Counter()  # queue, outcome and reason
        self._put_back: Counter[Pair] = Counter()  # queue and reason
        self._put_back_of: dict[str, Mapping[str, Mapping[str, int]]] | None = None
        self._lapsed: Counter[Pair] = Counter()
        self._runs: dict[Pair, Histogram] = {}
        self._waits: dict[Pair, Histogram] = {}
        self._stale = 0
        self._stale_of: dict[str, int] | None = None  # by worker, at the last scrape
        self._folded = 0
        self._behind = False

    def text(self, store: CheckedStore, wrong_tokens: int = 0) -> bytes:
        """All metrics in the text format of Prometheus."""
        from prometheus_client import generate_latest
        from prometheus_client.core import CounterMetricFamily

        wrong = CounterMetricFamily(
            "penstock_dashboard_wrong_tokens", "Wrong tokens that this dashboard was given."
        )
        wrong.add_metric([], wrong_tokens)
        with self._lock:
            self._read(store)
            families = [*self._families(store), wrong]

        class Collected:
            def collect(self) -> Iterator[Any]:
                return iter(families)

        return generate_latest(Collected())

    def _read(self, store: CheckedStore) -> None:
        """Count what ended since the last scrape, within a time limit; the next scrape goes on."""
        if self._position is None:
            self._position = newest_position(store)
        until = time.monotonic() + _LONGEST_SECONDS
        self._behind = True
        while time.monotonic() < until:
            try:
                rows = store.history(self._position, _PAGE)
            except Refused:
                # The store was replaced, perhaps by an older copy.
                self._position = newest_position(store)
                return
            for row in rows:
                self._count_reason(row)
                if row.kind == "attempt":
                    self._count(row)
            if rows:
                self._position = rows[-1].position
            if len(rows) < _PAGE:
                self._behind = False
                return

    def _count(self, row: Event) -> None:
        pair = (row.queue or "", row.task or "")
        if pair not in self._pairs:
            if len(self._pairs) >= MOST_PAIRS:
                pair = (OTHER, OTHER)
                self._folded += 1
            else:
                self._pairs.add(pair)
        self._ended[*pair, _OUTCOMES.get(row.state or State.READY, "again")] += 1
        self._lapsed[pair] += row.reason in LAPSED
        if (run := run_seconds(row)) is not None:
            self._runs.setdefault(pair, Histogram()).add(run)
        if (wait := wait_seconds(row)) is not None:
            self._waits.setdefault(pair, Histogram()).add(wait)

    def _count_reason(self, row: Event) -> None:
        if (way := outcome_and_reason(row)) is None:
            return
        outcome, key = way[0], (row.queue or "", *way)
        if key not in self._reasons and len(self._reasons) >= MOST_REASONS:
            key = (OTHER, outcome, OTHER)
        self._reasons[key] += 1

    def _families(self, store: CheckedStore) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        names = ["queue", "task"]
        ended = CounterMetricFamily(
            "penstock_attempts_ended", "Attempts that ended.", labels=[*names, "outcome"]
        )
        for labels, number in self._ended.items():
            ended.add_metric(labels, number)
        lapsed = CounterMetricFamily(
            "penstock_leases_expired", "Attempts whose worker was gone.", labels=names
        )
        for pair, number in self._lapsed.items():
            lapsed.add_metric(pair, number)
        reasons = CounterMetricFamily(
            "penstock_attempt_reasons",
            "Attempts and cancels by where they led, and why.",
            labels=["queue", "outcome", "reason"],
        )
        for labels, number in self._reasons.items():
            reasons.add_metric(labels, number)
        yield from (ended, reasons, lapsed)
        yield _histogram("penstock_job_run_seconds", "How long attempts ran.", self._runs)
        yield _histogram(
            "penstock_job_wait_seconds", "From the time they were due to their start.", self._waits
        )
        yield from _depths(store.count())
        yield from _oldest(store.history(None, 10 * MOST_QUEUES, kind="gauge"))
        workers = store.workers()
        yield _workers(workers)
        yield self._stale_settlements(workers)
        yield self._put_backs(workers)
        folded = CounterMetricFamily(
            "penstock_metrics_folded_attempts", "Attempts that are counted as other."
        )
        folded.add_metric([], self._folded)
        behind = GaugeMetricFamily(
            "penstock_metrics_behind", "1 while the counters have not come to the end of history."
        )
        behind.add_metric([], int(self._behind))
        yield from (folded, behind)

    def _stale_settlements(self, workers: Sequence[WorkerRow]) -> Any:
        """The sum of what the workers' counters gained between scrapes."""
        from prometheus_client.core import CounterMetricFamily

        known, self._stale_of = self._stale_of, {row.id: row.stale for row in workers}
        if known is not None:
            self._stale += sum(max(0, row.stale - known.get(row.id, 0)) for row in workers)
        family = CounterMetricFamily(
            "penstock_stale_settlements", "Outcomes that were refused: another attempt had the job."
        )
        family.add_metric([], self._stale)
        return family

    def _put_backs(self, workers: Sequence[WorkerRow]) -> Any:
        """As `_stale_settlements`, of jobs that went back."""
        from prometheus_client.core import CounterMetricFamily

        known, self._put_back_of = self._put_back_of, {row.id: row.put_back for row in workers}
        for row in workers if known is not None else ():
            before = (known or {}).get(row.id, {})
            for queue, reasons in row.put_back.items():
                for reason, number in reasons.items():
                    pair = (queue, reason)
                    if pair not in self._put_back and len(self._put_back) >= MOST_PAIRS:
                        pair = (OTHER, OTHER)
                    gained = number - before.get(queue, {}).get(reason, 0)
                    self._put_back[pair] += max(0, gained)
        family = CounterMetricFamily(
            "penstock_put_backs",
            "Claimed jobs that went back, and count neither as failure nor as crash.",
            labels=["queue", "reason"],
        )
        for pair, number in self._put_back.items():
            family.add_metric(pair, number)
        return family


def show(request: WebRequest) -> Response:
    """The route's handler."""
    if request.site.metrics is None:
        raise NotFound(
            "Metrics are off: start the dashboard with --metrics, after pip install "
            "'penstock-queue[metrics]'."
        )
    text = request.site.metrics.text(request.store, request.site.wrong_tokens.total)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


def _histogram(name: str, text: str, found: dict[Pair, Histogram]) -> Any:
    from prometheus_client.core import HistogramMetricFamily

    family = HistogramMetricFamily(name, text, labels=["queue", "task"])
    for pair, each in found.items():
        family.add_metric(pair, buckets=each.cumulative(), sum_value=each.sum)
    return family


def _depths(counts: Sequence[Count]) -> Iterator[Any]:
    from prometheus_client.core import GaugeMetricFamily

    ranked = sorted(by_task(counts), key=lambda each: -each.total - each.failed)
    depth = GaugeMetricFamily(
        "penstock_queue_depth", "Jobs by where they stand.", labels=["queue", "task", "state"]
    )
    for count in ranked[:MOST_PAIRS]:
        for place in PLACES:
            depth.add_metric([count.queue, count.task, place], getattr(count, place))
    rest = ranked[MOST_PAIRS:]
    if rest:
        for place in PLACES:
            total = sum(getattr(count, place) for count in rest)
            depth.add_metric([OTHER, OTHER, place], total)
    folded = GaugeMetricFamily(
        "penstock_metrics_folded_pairs", "Pairs of queue and task that are added up as other."
    )
    folded.add_metric([], len(rest))
    yield from (depth, folded)


def _oldest(rows: Sequence[Event]) -> Iterator[Any]:
    from prometheus_client.core import GaugeMetricFamily

    oldest = GaugeMetricFamily(
        "penstock_queue_oldest_ready_seconds",
        "How long the oldest due job that is not paused waits, at the last gauge.",
        labels=["queue"],
    )
    gauged = GaugeMetricFamily(
        "penstock_gauged_timestamp_seconds", "The minute that was gauged last."
    )
    if rows:
        minute = rows[-1].at
        gauged.add_metric([], minute)
        found = [_gauge(row) for row in rows if row.at == minute]
        found = sorted((each for each in found if each is not None), key=lambda g: -(g.oldest or 0))
        for gauge in found[:MOST_QUEUES]:
            oldest.add_metric([gauge.queue], gauge.oldest or 0.0)
    yield from (oldest, gauged)


def _gauge(row: Event) -> Gauge | None:
    try:
        return msgspec.json.decode(row.data or b"", type=Gauge)
    except msgspec.MsgspecError:
        return None


def _workers(workers: Sequence[WorkerRow]) -> Any:
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily("penstock_workers", "Workers.", labels=["state"])
    found = Counter(row.state for row in workers)
    for state in ("busy", "idle", "detached", "manager", "lapsed"):
        family.add_metric([state], found[state])
    return family
