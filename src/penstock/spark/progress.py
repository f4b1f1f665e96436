"""The progress of a job that is an application on Spark, as Spark itself tells it.

Asked from a thread beside the function, less and less often: every answer that differs becomes a
row of the history. The fraction is of the tasks that Spark was given so far, because nobody knows
what the function will ask for next; so it may fall. A task that tells its own progress is left
alone.
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
_OVER_TIME = 0.02  # of the time that has passed: after 25 minutes it is asked every 30 s
_END_SECONDS = 2.0


@contextmanager
def progress_told(spark: Any, current: CurrentJob, now: Any) -> Generator[None]:
    """While this lasts, tell how far Spark got with what the job asked of it."""
    watch = _Watch(spark, current, now)
    watch.start()
    try:
        yield
    finally:
        watch.over.set()
        watch.join(_END_SECONDS)


class _Watch(threading.Thread):
    def __init__(self, spark: Any, current: CurrentJob, now: Any) -> None:
        super().__init__(name="penstock-spark-progress", daemon=True)
        self.over = threading.Event()
        self._spark = spark
        self._current = current
        self._now = now
        self._began = time.monotonic()
        self._groups: dict[str | None, None] = {None: None}  # a stream's jobs are a group
        self._ended: dict[int, int] = {}  # the tasks of each job on Spark that has ended

    def run(self) -> None:
        said = None
        while not self.over.wait(self._pause()) and not self._current.reports_progress:
            try:
                seen = self._look()
                if seen is not None and seen != said and not self.over.is_set():
                    self._current.notebook.progress(Progress(*seen, self._now()))
                    said = seen
            except Exception:  # Java is gone, or the job is somebody else's: the function hears it
                return

    def _pause(self) -> float:
        passed = time.monotonic() - self._began
        return min(_LONGEST_SECONDS, max(_FIRST_SECONDS, passed * _OVER_TIME))

    def _look(self) -> tuple[float, str] | None:
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
        told = [f"{jobs} ended"] if self._ended else []
        if running:
            told.append(f"{len(running)} running, {done} of {given} tasks done")
        told += [text for text in map(_stream_text, streams) if text]
        if not told:
            return None
        before = sum(self._ended.values())
        fraction = (before + done) / (before + given) if before + given else 0.0
        return fraction, ", ".join(told)


def _tasks_of(tracker: Any, stages: Any) -> tuple[int, int]:
    """How many tasks of a job are done, and how many it has."""
    known = [stage for stage in map(tracker.getStageInfo, stages) if stage is not None]
    return (
        sum(stage.numCompletedTasks for stage in known),
        sum(stage.numTasks for stage in known),
    )


def _stream_text(query: Any) -> str | None:
    told = query.lastProgress
    if told is None:
        return None
    return (
        f"stream {query.name or query.id}: batch {told['batchId']}, {told['numInputRows']:,} rows"
    )
