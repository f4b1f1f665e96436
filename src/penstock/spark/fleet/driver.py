"""The fleet: slots on executors, each a Spark job of its own that runs the ordinary worker.

One job per slot and not one for all: Spark gives up a job once a task of it has failed so many
times, and one slot that keeps dying must not end the others. Jobs are claimed from the store by the
slots themselves; the driver only starts slots, hears what they say, and starts again what died.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.errors import Refused
from penstock.spark.fleet.driver_channel import Report, Switchboard
from penstock.spark.fleet.slot_worker import SlotConfig, SlotEnd, work_slot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OK, ERROR, CANNOT_START = 0, 1, 70
_PAUSE_FIRST, _PAUSE_LONGEST = 0.5, 15.0
_LOOK_SECONDS = 0.1
_SILENT_SECONDS = 3.0  # after a stop: so long nobody on the line, and the rest has not begun
_STILLBORN = 5  # times in a row that a slot ended before it could work

log = logging.getLogger("penstock.spark")


class Fleet:
    """`slots` workers on the executors of a session, until stopped, drained or out of time.

    `heard` is given what slots say while they run, and `ended` how each of them ended.
    """

    def __init__(
        self,
        spark: SparkSession,
        target: str,
        slots: int,
        *,
        seconds: float | None = None,
        heard: Callable[[Report], None] = lambda _: None,
        ended: Callable[[SlotEnd], None] = lambda _: None,
        **options: Any,
    ) -> None:
        from penstock.app.version import release

        if slots < 1:
            raise Refused(f"slots={slots}: a fleet has one or more")
        self._spark = spark
        self._slots = slots
        self._heard = heard
        self._ended = ended
        self._until = None if seconds is None else time.time() + seconds
        conf = spark.sparkContext.getConf()
        host = conf.get("spark.driver.host", "127.0.0.1")
        bind = conf.get("spark.driver.bindAddress", host)
        self._switchboard = Switchboard(host, bind, self._hear)
        self._config = SlotConfig(
            target=target,
            address=self._switchboard.address,
            penstock=release(),
            until=self._until,
            **options,
        )
        self._stops = 0
        self._told = 0
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._now: dict[int, Report] = {}  # the latest of each slot
        self._before: dict[int, int] = {}  # settled by runs of the slot that are over
        self.ends: list[SlotEnd] = []
        self.refusal: str | None = None

    @property
    def settled(self) -> dict[int, int]:
        """Outcomes that the store took, per slot, as far as the driver has heard."""
        with self._lock:
            known = {*self._now, *self._before}
            return {slot: self._settled(slot) for slot in sorted(known)}

    def _settled(self, slot: int) -> int:
        current = self._now.get(slot)
        return self._before.get(slot, 0) + (0 if current is None else current.settled)

    def stop(self, *, now: bool = False) -> None:
        """Have the slots drain and end; a second time, or `now`: hand back at once.

        Safe in a signal handler.
        """
        self._stops = max(2 if now else 1, self._stops + 1)

    def run(self) -> int:
        """Keep the slots up until all have ended; the exit code."""
        from pyspark import InheritableThread

        cores = self._spark.sparkContext.defaultParallelism
        if self._slots > cores:
            log.warning("%d slots and %d cores now: the others wait for one", self._slots, cores)
        threads: list[Any] = [
            InheritableThread(target=self._keep, args=(slot,)) for slot in range(self._slots)
        ]
        for thread in threads:
            thread.daemon = True
            thread.start()
        silent_since = time.monotonic()
        try:
            while any(thread.is_alive() for thread in threads):
                if self._stops > self._told:
                    self._told = self._stops
                    self._stopping.set()
                    self._switchboard.tell("now" if self._told > 1 else "drain")
                if not self._stopping.is_set() or self._switchboard.on_line:
                    silent_since = time.monotonic()
                elif time.monotonic() - silent_since > _SILENT_SECONDS:
                    # They wait for a core that may never come, or cannot call us.
                    self._spark.sparkContext.cancelAllJobs()
                    silent_since = time.monotonic()
                time.sleep(_LOOK_SECONDS)
        finally:
            self._switchboard.close()
        if self.refusal is not None:
            raise Refused(self.refusal)
        asked = self._stopping.is_set() or self._out_of_time()
        return max((end.code for end in self.ends), default=OK if asked else ERROR)

    def _keep(self, slot: int) -> None:
        """Run one slot, again and again where it dies."""
        pause, stillborn = _PAUSE_FIRST, 0
        context = self._spark.sparkContext
        while not self._out_of_time():
            try:
                context.setLocalProperty("spark.job.description", f"penstock slot {slot}")
                end = self._run(slot)
            except Exception as error:
                if self._stopping.is_set():
                    return
                why = _first_line(error)
                if slot in self._now:  # it did work
                    pause, stillborn = _PAUSE_FIRST, 0
                else:
                    stillborn += 1
                self._count_in(slot)
                if stillborn >= _STILLBORN:
                    self._end(SlotEnd(slot, "", 0, 0.0, CANNOT_START, "it never began", why))
                    return
                log.warning("slot %d died and is started again: %s", slot, why)
                self._stopping.wait(pause)
                pause = min(_PAUSE_LONGEST, pause * 2)
                continue
            pause = _PAUSE_FIRST
            self._count_in(slot, end)
            stillborn = stillborn + 1 if end.code == CANNOT_START else 0
            if end.ended == "refused":
                self.refusal = end.note
                self.stop()
            final = end.code in {OK, 2} or stillborn >= _STILLBORN or self._stopping.is_set()
            if final and not self._cut_off(end):
                self._end(end)
                return
            log.warning("slot %d ended and is started again: %s %s", slot, end.ended, end.note)
            self._stopping.wait(pause)

    def _run(self, slot: int) -> SlotEnd:
        slots: Any = self._spark.sparkContext.parallelize([slot], 1)
        # Plain rows and not Arrow: one number there, one answer back, and no pandas to install.
        [end] = slots.map(partial(work_slot, self._config)).collect()
        return end

    def _end(self, end: SlotEnd) -> None:
        self.ends.append(end)
        self._ended(end)

    def _cut_off(self, end: SlotEnd) -> bool:
        """Whether it was told to drain by nobody: its line to us broke."""
        return end.ended == "told" and not self._stopping.is_set()

    def _out_of_time(self) -> bool:
        return self._stopping.is_set() or (self._until is not None and time.time() >= self._until)

    def _hear(self, report: Report) -> None:
        with self._lock:
            known = self._now.get(report.slot)
            if report.token and known is not None:  # Spark has started it again by itself
                self._before[report.slot] = self._settled(report.slot)
            if not report.log:
                self._now[report.slot] = report
        self._heard(report)

    def _count_in(self, slot: int, end: SlotEnd | None = None) -> None:
        with self._lock:
            settled = self._settled(slot) if end is None else self._before.get(slot, 0)
            self._before[slot] = settled + (0 if end is None else end.settled)
            self._now.pop(slot, None)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # Py4J begins with a line that says nothing; Spark's own sentence is further down.
    said = [line for line in lines if "SparkException:" in line]
    return (said or lines or [type(error).__name__])[0][:500]
