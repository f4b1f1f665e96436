"""Progress of a detached Spark job, from Spark's status tracker and its streaming queries.

Polled from a thread beside the function, less and less often: every change becomes a row of the
history. The fraction is of the Spark tasks submitted so far, so it may fall when the function
starts another Spark job. A function that reports its own progress turns this off.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.run.job_notes import Progress

if TYPE_CHECKING:
    from penstock.run.current import CurrentJob

_FIRST_SECONDS = 1.0
_LONGEST_SECONDS = 30.0
_PAUSE_FRACTION = 0.02  # of the elapsed time: after 25 minutes it is polled every 30 s
_END_SECONDS = 2.0


@contextmanager
def reported_progress(spark: Any, current: CurrentJob, now: Any) -> Generator[None]:
    """Report Spark's progress with the job for as long as this lasts."""
    monitor = _ProgressMonitor(spark, current, now)
    monitor.start()
    try:
        yield
    finally:
        monitor.over.set()
        monitor.join(_END_SECONDS)


class _ProgressMonitor(threading.Thread):
    def __init__(self, spark: Any, current: CurrentJob, now: Any) -> None:
        super().__init__(name="penstock-spark-progress", daemon=True)
        self.over = threading.Event()
        self._spark = spark
        self._current = current
        self._now = now
        self._began = time.monotonic()
        self._groups: dict[str | None, None] = {None: None}  # None: no group; each stream has one
        self._ended: dict[int, int] = {}  # Spark job id -> its number of tasks

    def run(self) -> None:
        last = None
        while not self.over.wait(self._pause()) and not self._current.reports_progress:
            try:
                progress = self._poll()
                if progress is not None and progress != last and not self.over.is_set():
                    self._current.notebook.progress(Progress(*progress, self._now()))
                    last = progress
            except Exception:  # the JVM is gone, or the lease is lost: the function will see it
                return

    def _pause(self) -> float:
        passed = time.monotonic() - self._began
        return min(_LONGEST_SECONDS, max(_FIRST_SECONDS, passed * _PAUSE_FRACTION))

    def _poll(self) -> tuple[float, str] | None:
        tracker = self._spark.sparkContext.statusTracker()
        streams = self._spark.streams.active
        self._groups.update({str(query.runId): None for query in streams})
        ids = {id for group in self._groups for id in tracker.getJobIdsForGroup(group)}
        running: list[tuple[int, int]] = []
        for id in ids - self._ended.keys():
            info = tracker.getJobInfo(id)
            if info is None:
                continue
            tasks = _tasks_of(tracker, info.stageIds)
            if info.status == "RUNNING":
                running.append(tasks)
            else:
                self._ended[id] = tasks[1]
        done, given = map(sum, zip((0, 0), *running, strict=True))
        jobs = "1 Spark job" if len(self._ended) == 1 else f"{len(self._ended):,} Spark jobs"
        texts = [f"{jobs} ended"] if self._ended else []
        if running:
            texts.append(f"{len(running)} running, {done} of {given} tasks done")
        texts += [text for text in map(_stream_text, streams) if text]
        if not texts:
            return None
        ended = sum(self._ended.values())
        fraction = (ended + done) / (ended + given) if ended + given else 0.0
        return fraction, ", ".join(texts)


def _tasks_of(tracker: Any, stages: Any) -> tuple[int, int]:
    """How many tasks of a Spark job are done, and how many it has."""
    known = [stage for stage in map(tracker.getStageInfo, stages) if stage is not None]
    return (
        sum(stage.numCompletedTasks for stage in known),
        sum(stage.numTasks for stage in known),
    )


def _stream_text(query: Any) -> str | None:
    progress = query.lastProgress
    if progress is None:
        return None
    return (
        f"stream {query.name or query.id}: batch {progress['batchId']},"
        f" {progress['numInputRows']:,} rows"
    )
