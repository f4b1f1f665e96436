"""The history checker: reads what a store wrote down and finds what must never be there.

    verdict = check_store(broker, accepted=ids)
    assert verdict.ok, verdict

It believes the history alone: one row per ended attempt, in the order of their commits. What it
checks is in `INVARIANTS`. `Verdict.seen` counts what the run exercised, so that a test can demand
that something happened: a storm without a lapse proves nothing about recovery.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from penstock.broker.filter import Filter
from penstock.broker.position import BEGINNING, Position
from penstock.broker.protocol import Broker
from penstock.broker.views import Event
from penstock.flows.flow import FlowRow
from penstock.job import ENDED, Job, State
from penstock.testing.dataset_checker import MadeVersions

INVARIANTS = {
    "accepted": "every accepted job has ended, or is in the store and may still run",
    "ended once": "a job that has ended has no further attempt, unless somebody retried it",
    "fence": "attempt numbers of a job only grow: nothing is settled after its lease lapsed",
    "overlap": "an attempt of a job begins after the one before has ended",
    "counters": "failures and lapses grow by one at most, with the reason that counts them",
    "running limit": "never more jobs run at one instant than a limit allows",
    "rate limit": "never more jobs start in a window than a limit allows",
    "slots": "every slot of a schedule is decided once",
    "datasets": "each version of a dataset's partition was made by one attempt of one job",
    "flows": "every member of a flow is counted once, and a flow ends when its last member has",
}
_PAGE = 10_000
_OPEN = (State.WAITING, State.READY, State.RUNNING)
# Reasons with which an attempt counts as a failure, or as a lapse.
_LAPSE = frozenset({"crashed", "lost"})


class Contradiction(msgspec.Struct, frozen=True):
    """One contradiction in the history."""

    invariant: str  # a key of INVARIANTS
    subject: str  # a job, flow, rule or schedule
    sentence: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.subject}: {self.sentence}"


class Verdict(msgspec.Struct, frozen=True):
    """What was found, and what was seen at all."""

    contradictions: Sequence[Contradiction]
    # attempts, jobs ended, retries, retried attempts, lapses, put back, limits, slots, flows, stale
    # settlements
    seen: Counter[str]
    succeeded: Counter[str]  # jobs that succeeded, by task

    @property
    def ok(self) -> bool:
        return not self.contradictions

    def __str__(self) -> str:
        seen = ", ".join(f"{count:,} {what}" for what, count in sorted(self.seen.items()))
        head = "nothing contradicts" if self.ok else f"{len(self.contradictions):,} contradictions"
        return "\n".join([f"{head} ({seen})", *map(str, self.contradictions[:20])])


class _Life(msgspec.Struct, gc=False):
    """A job as far as the history was read; there may be millions."""

    attempt: int
    at: float
    failures: int
    lapses: int
    state: State


class _LimitSpan(msgspec.Struct):
    """A limit from when it was set until it was changed, cleared or expired."""

    data: dict[str, Any]
    begin: float
    end: float = float("inf")
    spans: dict[str, list[tuple[float, float]]] = {}  # by key; "" for all of them

    def covers(self, event: Event) -> bool:
        return (
            event.started_at is not None
            and self.begin <= event.started_at < self.end
            and self.data.get("queue") in {None, event.queue}
            and self.data.get("task") in {None, event.task}
            and (event.key is not None or not self.data.get("per_key"))
        )


class Checker:
    """Takes the rows of a history in their order; `contradictions` has what it found.

    `tolerance`: by how many seconds the clocks of two workers may differ.
    """

    def __init__(self, tolerance: float = 0.0) -> None:
        self.contradictions: list[Contradiction] = []
        self.seen: Counter[str] = Counter()
        self.succeeded: Counter[str] = Counter()  # by task
        self._tolerance = tolerance
        self._lives: dict[str, _Life] = {}
        self._deleted: set[str] = set()
        self._limits: dict[str, _LimitSpan] = {}
        self._past_limits: list[_LimitSpan] = []
        self._slots: set[tuple[str, str]] = set()
        self._flow_ends: dict[str, int] = {}
        self._retries = 0
        self._made = MadeVersions()

    def read(self, event: Event) -> None:
        """The next row."""
        match event.kind:
            case "attempt":
                self._attempt(event)
            case "retry" | "cancel" | "delete":
                self._action(event)
            case "rule":
                self._rule(event)
            case "schedule":
                self._schedule(event)
            case "flow":
                self._flow(event)
            case _:
                pass

    def ended(self, job_id: str) -> bool:
        """Whether the job has ended, or was deleted, as far as the history was read."""
        life = self._lives.get(job_id)
        return job_id in self._deleted or (life is not None and life.state in ENDED)

    def last_row(self, job_id: str) -> tuple[int, float] | None:
        """The attempt and the time of the job's last row."""
        life = self._lives.get(job_id)
        return None if life is None else (life.attempt, life.at)

    def finish(self) -> None:
        """After the last row: the limits are swept."""
        for limit in [*self._past_limits, *self._limits.values()]:
            self._sweep(limit)

    def live_job(self, job: Job[Any]) -> None:
        """A job that the store still holds as not ended."""
        life = self._lives.get(job.id)
        if life is None:
            return
        if life.state in ENDED:
            self._report(
                "ended once", job.id, f"it is {job.state} in the store, and {life.state} in history"
            )
        elif job.attempt < life.attempt:
            self._report(
                "fence", job.id, f"attempt {life.attempt} has ended, the store is at {job.attempt}"
            )

    def live_flow(self, flow: FlowRow) -> None:
        """A flow as the store holds it."""
        open_nodes = {node.id for node in flow.nodes if node.jobs_left}
        for node in flow.nodes:
            waits_for = open_nodes.intersection(node.needs)
            if not 0 <= node.jobs_left <= node.jobs or not 0 <= node.bad <= node.jobs:
                self._report(
                    "flows",
                    flow.id,
                    f"node {node.id} has {node.jobs_left} of {node.jobs} jobs left, {node.bad} bad",
                )
            if node.jobs_left and node.needs_left and not waits_for:
                self._report("flows", flow.id, f"node {node.id} waits, but all it needs has ended")
        if flow.nodes and (flow.ended_at is None) is not bool(open_nodes):
            state = "has not ended" if flow.ended_at is None else "has ended"
            self._report("flows", flow.id, f"it {state} with {len(open_nodes)} open nodes")

    def accepted(self, job_ids: Iterable[str], live: Collection[str]) -> None:
        """Jobs whose enqueue returned."""
        for job_id in job_ids:
            if job_id not in live and not self.ended(job_id):
                self._report("accepted", job_id, "it has not ended, and the store does not hold it")

    def _report(self, invariant: str, subject: str, sentence: str) -> None:
        self.contradictions.append(Contradiction(invariant, subject, sentence))

    def _attempt(self, event: Event) -> None:
        job_id, state, attempt = event.job or "", event.state or State.READY, event.attempt or 0
        self.seen["attempts"] += 1
        self.seen["jobs ended"] += state in ENDED
        self.seen["retried attempts"] += state is State.READY and event.reason == "error"
        self.succeeded[event.task or ""] += state is State.SUCCEEDED
        if state is State.SUCCEEDED:
            for subject, sentence in self._made.read(event):
                self._report("datasets", subject, sentence)
        before = self._lives.get(job_id)
        if before is not None:
            self._follows(event, attempt, before)
        elif attempt > 1:
            self.seen["put back"] += attempt - 1
        if event.reason in _LAPSE:
            self.seen["lapses"] += 1
        # A job that waited for a signal, or was cancelled by a need, ran nowhere.
        if event.worker is not None:
            for limit in self._limits.values():
                if limit.covers(event):
                    key = event.key or "" if limit.data.get("per_key") else ""
                    limit.spans.setdefault(key, []).append((event.started_at or 0.0, event.at))
        self._lives[job_id] = _Life(attempt, event.at, event.failures, event.lapses, state)

    def _follows(self, event: Event, attempt: int, before: _Life) -> None:
        job = event.job or ""
        if before.state in ENDED:
            self._report(
                "ended once",
                job,
                f"attempt {attempt} ended as {event.state} after the job was {before.state}",
            )
        if attempt <= before.attempt and event.worker is not None:
            self._report(
                "fence", job, f"attempt {attempt} was settled after attempt {before.attempt}"
            )
        self.seen["put back"] += max(0, attempt - before.attempt - 1)
        if event.started_at is not None and event.started_at < before.at - self._tolerance:
            self._report(
                "overlap",
                job,
                f"attempt {attempt} began {before.at - event.started_at:.3f} s before attempt"
                f" {before.attempt} ended",
            )
        failed, lapsed = event.failures - before.failures, event.lapses - before.lapses
        if before.state not in ENDED and (
            failed not in {0, 1} or lapsed not in {0, 1} or (failed and lapsed)
        ):
            self._report(
                "counters",
                job,
                f"attempt {attempt} added {failed} failures and {lapsed} lapses"
                f" ({event.reason or 'no reason'})",
            )

    def _action(self, event: Event) -> None:
        job_id = event.job or ""
        if event.kind == "delete":
            self._deleted.add(job_id)
            return
        if event.state is State.RUNNING:  # asked to end; the row of its attempt is still to come
            return
        if event.kind == "retry":
            self.seen["retries"] += 1
            self._retries += 1
        self._lives[job_id] = _Life(
            event.attempt or 0,
            event.at,
            event.failures,
            event.lapses,
            event.state or State.READY,
        )

    def _rule(self, event: Event) -> None:
        data = msgspec.json.decode(event.data or b"{}")
        if data.get("kind") != "limit":
            return
        if standing := self._limits.pop(data["id"], None):
            standing.end = min(standing.end, event.at)
            self._past_limits.append(standing)
        if data["set"]:
            self.seen["limits"] += 1
            until = data.get("until")
            self._limits[data["id"]] = _LimitSpan(
                data, event.at, float("inf") if until is None else until, {}
            )

    def _sweep(self, limit: _LimitSpan) -> None:
        subject = " ".join(
            f"{name} {limit.data[name]}" for name in ("queue", "task") if limit.data.get(name)
        )
        for key, spans in limit.spans.items():
            of_key = f" of key {key}" if key else ""
            most = limit.data.get("running")
            if most is not None and (found := most_at_once(spans, self._tolerance)) > most:
                self._report("running limit", subject, f"{found} ran at once{of_key}, not {most}")
            if rate := limit.data.get("rate"):
                jobs, seconds = rate
                starts = sorted(start for start, _ in spans)
                if (found := most_in_window(starts, seconds - self._tolerance)) > jobs:
                    self._report(
                        "rate limit",
                        subject,
                        f"{found} started within {seconds:g} s{of_key}, not {jobs}",
                    )

    def _schedule(self, event: Event) -> None:
        data = msgspec.json.decode(event.data or b"{}")
        if (slot := data.get("slot")) is None:
            return
        decided = (data["schedule"], slot)
        if decided in self._slots:
            self._report("slots", data["schedule"], f"slot {slot} was decided twice")
        self._slots.add(decided)
        self.seen["slots"] += 1

    def _flow(self, event: Event) -> None:
        flow_id = event.job or ""
        says = msgspec.json.decode(event.data or b"{}")["says"]
        if says == "retry":
            self._retries += 1
        elif says == "ended":
            self.seen["flows"] += 1
            if self._flow_ends.get(flow_id) == self._retries:
                self._report("flows", flow_id, "it ended twice, and nothing was retried between")
            self._flow_ends[flow_id] = self._retries


def most_at_once(spans: Iterable[tuple[float, float]], tolerance: float = 0.0) -> int:
    """How many of these spans were under way at the fullest instant."""
    steps: list[tuple[float, int]] = []
    for start, end in spans:
        if start < end - tolerance:
            steps += [(start, 1), (end - tolerance, -1)]
    running = most = 0
    for _, step in sorted(steps):  # an end before a start of the same instant
        running += step
        most = max(most, running)
    return most


def most_in_window(starts: Sequence[float], seconds: float) -> int:
    """How many of these moments, in order, are in the fullest window of this length."""
    most = first = 0
    for last, at in enumerate(starts):
        while at - starts[first] >= seconds:
            first += 1
        most = max(most, last - first + 1)
    return most


def check_store(
    broker: Broker, accepted: Collection[str] = (), *, tolerance: float = 0.0
) -> Verdict:
    """Read the whole history of a store, and what it holds now.

    `accepted` names jobs whose enqueue returned, by the word of whoever enqueued them.
    """
    checker = Checker(tolerance)
    after = _read(checker, broker, BEGINNING)
    live: dict[str, Job[Any]] = {job.id: job for job in _open_jobs(broker)}
    suspects = {job_id: job for job_id, job in live.items() if checker.ended(job_id)}
    flows = list(_flows(broker))
    # Whoever was retried while this looked has a row by now.
    last_rows = {job_id: checker.last_row(job_id) for job_id in suspects}
    _read(checker, broker, after)
    checker.finish()
    for job_id, job in live.items():
        if job_id not in suspects or checker.last_row(job_id) == last_rows[job_id]:
            checker.live_job(job)
    for flow in flows:
        checker.live_flow(flow)
    # Ended jobs that are kept stand for history that was pruned.
    unknown = [job_id for job_id in accepted if job_id not in live and not checker.ended(job_id)]
    kept = {job_id for job_id in unknown if broker.get(job_id) is not None}
    checker.accepted(accepted, live.keys() | kept)
    checker.seen["stale settlements"] += sum(worker.stale for worker in broker.workers())
    return Verdict(checker.contradictions, checker.seen, checker.succeeded)


def _read(checker: Checker, broker: Broker, after: Position) -> Position:
    """Hand the rows from here on to the checker; how far they go."""
    while events := broker.history(after=after, limit=_PAGE):
        for event in events:
            checker.read(event)
        after = events[-1].position
    return after


def _open_jobs(broker: Broker) -> Iterable[Job[Any]]:
    after = None
    while True:
        page = broker.find(Filter(state=_OPEN), after=after, limit=_PAGE)
        yield from page.jobs
        if (after := page.after) is None:
            return


def _flows(broker: Broker) -> Iterable[FlowRow]:
    after = None
    while True:
        page = broker.flows(after=after, limit=_PAGE)
        yield from page.flows
        if (after := page.after) is None:
            return
