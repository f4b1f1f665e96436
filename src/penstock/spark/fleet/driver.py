"""The fleet's driver: starts slots on executors, each as a Spark job, and restarts those that die.

One Spark job per slot, not one for all: Spark aborts a job after `spark.task.maxFailures`, and a
slot that keeps dying must not end the others. Slots claim jobs from the store themselves.
"""

from __future__ import annotations

import logging
import resource
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.errors import Refused
from penstock.spark.connect import refuse_connect
from penstock.spark.fleet.driver_channel import ChannelServer, Report
from penstock.spark.fleet.slot_worker import SlotConfig, SlotEnd, work_slot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OK, ERROR, CANNOT_START = 0, 1, 70
CONNECTIONS = 4  # to PostgreSQL, of one slot: its supervisor and its child have two each
_PAUSE_FIRST, _PAUSE_LONGEST = 0.5, 15.0
_POLL_SECONDS = 0.1
_SILENT_SECONDS = 3.0  # after a stop, with no slot connected: the others have not started
_OTHER_FILES = 512
_MOST_FAILED_STARTS = 5  # in a row, of one slot

log = logging.getLogger("penstock.spark")


class Fleet:
    """`slots` workers on the executors of a session, until stopped, drained or out of time.

    Refused if they would have more than so many `connections` to the store, not counting those
    that writing progress and transactions of tasks take for a moment.
    `on_report` is called with the reports of running slots, `on_end` when a slot has ended.
    """

    def __init__(
        self,
        spark: SparkSession,
        target: str,
        slots: int,
        *,
        seconds: float | None = None,
        connections: int | None = None,
        on_report: Callable[[Report], None] = lambda _: None,
        on_end: Callable[[SlotEnd], None] = lambda _: None,
        **options: Any,
    ) -> None:
        from penstock.app.version import RELEASE

        refuse_connect(spark, "the fleet")
        if slots < 1:
            raise Refused(f"slots={slots}: give 1 or more")
        if connections is not None and slots * CONNECTIONS > connections:
            raise Refused(
                f"{slots} slots have {slots * CONNECTIONS} connections to the store, and"
                f" {connections} are allowed: give at most {connections // CONNECTIONS} slots, with"
                " more threads each, or a store behind a pooler (?pooler=true)"
            )
        _allow_files(slots)
        self._spark = spark
        self._slots = slots
        self._on_report = on_report
        self._on_end = on_end
        self._until = None if seconds is None else time.time() + seconds
        conf = spark.sparkContext.getConf()
        host = conf.get("spark.driver.host", "127.0.0.1")
        bind = conf.get("spark.driver.bindAddress", host)
        self._channel = ChannelServer(host, bind, self._receive)
        self._config = SlotConfig(
            target=target,
            address=self._channel.address,
            penstock=RELEASE,
            until=self._until,
            **options,
        )
        self._stops = 0  # requested
        self._stops_sent = 0
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._latest: dict[int, Report] = {}  # of each running slot
        self._settled_before: dict[int, int] = {}  # by earlier runs of the slot
        self.ends: list[SlotEnd] = []
        self.refusal: str | None = None

    @property
    def settled(self) -> dict[int, int]:
        """Settled jobs per slot, as far as slots have reported."""
        with self._lock:
            slots = {*self._latest, *self._settled_before}
            return {slot: self._settled(slot) for slot in sorted(slots)}

    def _settled(self, slot: int) -> int:
        latest = self._latest.get(slot)
        return self._settled_before.get(slot, 0) + (0 if latest is None else latest.settled)

    def stop(self, *, now: bool = False) -> None:
        """Drain the slots; a second call, or `now`: hand jobs back at once. For signal handlers."""
        self._stops = max(2 if now else 1, self._stops + 1)

    def run(self) -> int:
        """Run the slots until all have ended; returns the exit code."""
        from pyspark import InheritableThread

        cores = self._spark.sparkContext.defaultParallelism
        if self._slots > cores:
            log.warning("%d slots, but %d cores now: the others wait for one", self._slots, cores)
        threads: list[Any] = [
            InheritableThread(target=self._run_slot, args=(slot,)) for slot in range(self._slots)
        ]
        for thread in threads:
            thread.daemon = True
            thread.start()
        silent_since = time.monotonic()
        try:
            while any(thread.is_alive() for thread in threads):
                if self._stops > self._stops_sent:
                    self._stops_sent = self._stops
                    self._stopping.set()
                    self._channel.send("now" if self._stops_sent > 1 else "drain")
                if not self._stopping.is_set() or self._channel.connected:
                    silent_since = time.monotonic()
                elif time.monotonic() - silent_since > _SILENT_SECONDS:
                    # What is left waits for a core that may never come, or cannot connect to us.
                    self._spark.sparkContext.cancelAllJobs()
                    silent_since = time.monotonic()
                time.sleep(_POLL_SECONDS)
        finally:
            self._channel.close()
        if self.refusal is not None:
            raise Refused(self.refusal)
        return max((end.code for end in self.ends), default=OK if self._over() else ERROR)

    def _run_slot(self, slot: int) -> None:
        """Run one slot, and restart it when it dies."""
        pause, failed_starts = _PAUSE_FIRST, 0
        context = self._spark.sparkContext
        while not self._over():
            try:
                context.setLocalProperty("spark.job.description", f"penstock slot {slot}")
                end = self._run_task(slot)
            except Exception as error:
                if self._stopping.is_set():
                    return
                why = _first_line(error)
                if slot in self._latest:  # it had started
                    pause, failed_starts = _PAUSE_FIRST, 0
                else:
                    failed_starts += 1
                self._add_settled(slot)
                if failed_starts >= _MOST_FAILED_STARTS:
                    self._end(SlotEnd(slot, "", 0, 0.0, CANNOT_START, "it never started", why))
                    return
                log.warning("slot %d died and is restarted: %s", slot, why)
                self._stopping.wait(pause)
                pause = min(_PAUSE_LONGEST, pause * 2)
                continue
            pause = _PAUSE_FIRST
            self._add_settled(slot, end)
            failed_starts = failed_starts + 1 if end.code == CANNOT_START else 0
            if end.ended == "refused":
                self.refusal = end.note
                self.stop()
            final = (
                end.code in {OK, 2}
                or failed_starts >= _MOST_FAILED_STARTS
                or self._stopping.is_set()
            )
            # It drained without our command: its connection broke.
            disconnected = end.ended == "stopped" and not self._stopping.is_set()
            if final and not disconnected:
                self._end(end)
                return
            log.warning("slot %d ended and is restarted: %s %s", slot, end.ended, end.note)
            self._stopping.wait(pause)

    def _run_task(self, slot: int) -> SlotEnd:
        slots: Any = self._spark.sparkContext.parallelize([slot], 1)
        # An RDD, not Arrow: one number there, one value back, and no pandas to install.
        [end] = slots.map(partial(work_slot, self._config)).collect()
        return end

    def _end(self, end: SlotEnd) -> None:
        self.ends.append(end)
        self._on_end(end)

    def _over(self) -> bool:
        """Whether the fleet was stopped, or is out of time."""
        return self._stopping.is_set() or (self._until is not None and time.time() >= self._until)

    def _receive(self, report: Report) -> None:
        with self._lock:
            # A second first report: Spark has retried the task by itself.
            if report.token and report.slot in self._latest:
                self._settled_before[report.slot] = self._settled(report.slot)
            if not report.log:
                self._latest[report.slot] = report
        self._on_report(report)

    def _add_settled(self, slot: int, end: SlotEnd | None = None) -> None:
        with self._lock:
            settled = self._settled(slot) if end is None else self._settled_before.get(slot, 0)
            self._settled_before[slot] = settled + (0 if end is None else end.settled)
            self._latest.pop(slot, None)


def _allow_files(slots: int) -> None:
    """Each slot is two open files here: its thread's line to Java, and its channel."""
    needed = 2 * slots + _OTHER_FILES
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and needed > most:
        raise Refused(
            f"{slots} slots need {needed} open files in the driver, and {most} are allowed: raise"
            " the limit (ulimit -Hn), or give fewer slots more threads"
        )
    if allowed != resource.RLIM_INFINITY and needed > allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, most))


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # py4j's first line is generic; Spark's own message is further down.
    messages = [line for line in lines if "SparkException:" in line]
    return (messages or lines or [type(error).__name__])[0][:500]
