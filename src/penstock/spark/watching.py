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

from penstock.notes import Progress

if TYPE_CHECKING:
    from penstock.current import CurrentJob

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
        self._jobs = 0  # their ids count up from nought
        self._tasks: dict[int, tuple[int, int]] = {}  # of the jobs that were seen: done, given

    def run(self) -> None:
        said = None
        while not self.over.wait(self._pause()) and not self._current.told:
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
        active = tracker.getActiveJobsIds()
        for id in [id for id in self._tasks if id not in active]:
            self._tasks[id] = (self._tasks[id][1], self._tasks[id][1])
        for id in active:
            self._jobs = max(self._jobs, id + 1)
            self._tasks[id] = _tasks_of(tracker, id)
        streams = [text for text in map(_stream_text, self._spark.streams.active) if text]
        if not self._jobs and not streams:
            return None
        done = sum(each[0] for each in self._tasks.values())
        given = sum(each[1] for each in self._tasks.values())
        text = f"Spark: {self._jobs - len(active)} jobs done"
        if active:
            now = [self._tasks[id] for id in active]
            text += f", {len(active)} running with {sum(each[0] for each in now)} of"
            text += f" {sum(each[1] for each in now)} tasks done"
        return (done / given if given else 0.0, "; ".join([text, *streams]))


def _tasks_of(tracker: Any, job: int) -> tuple[int, int]:
    """How many tasks of a job are done, and how many it has."""
    info = tracker.getJobInfo(job)
    stages = [tracker.getStageInfo(id) for id in (info.stageIds if info else ())]
    return (
        sum(stage.numCompletedTasks for stage in stages if stage),
        sum(stage.numTasks for stage in stages if stage),
    )


def _stream_text(query: Any) -> str | None:
    told = query.lastProgress
    if told is None:
        return None
    return f"stream {query.name or query.id}: batch {told['batchId']}, {told['numInputRows']:,} rows"
