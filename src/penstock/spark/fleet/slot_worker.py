"""A slot: the ordinary worker inside a Spark task, for as long as the task lasts.

The Python that Spark started is the supervisor here: it runs no job, so that nothing that a job
does can keep it from its heartbeat, and a child process of it runs them. Executors that die need
nothing special: the lease ends, as with any worker.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import time

import msgspec

from penstock.app.version import release
from penstock.broker.views import LEASE_SECONDS
from penstock.brokers import open_broker
from penstock.errors import PenstockError, Refused
from penstock.spark.fleet.driver_channel import Address, SlotChannel
from penstock.worker.supervisor import Supervisor

_REPORT_SECONDS = 1.0


class SlotConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What every slot is told."""

    target: str
    address: Address
    penstock: str
    threads: int = 10
    queues: tuple[str, ...] | None = None
    tags: tuple[str, ...] = ()
    drain: bool = False
    until: float | None = None  # seconds since the epoch
    lease: float = LEASE_SECONDS
    grace: float = 25.0
    log_level: str = "info"
    log_format: str = "text"


class SlotEnd(msgspec.Struct, frozen=True):
    """How a slot ended: drained, told (by the driver), time, refused, or with a bad code."""

    slot: int
    host: str
    settled: int
    seconds: float
    code: int
    ended: str
    note: str = ""


def work_slot(config: SlotConfig, slot: int) -> SlotEnd:
    """Run jobs until drained, told to stop, or out of time."""
    began, host = time.monotonic(), socket.gethostname()
    # The children find what this process finds: the code that Spark brought here.
    os.environ["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry)
    try:
        if config.penstock != release():
            raise Refused(
                f"the driver runs Penstock {config.penstock} and the executor on {host} has"
                f" {release()}: install the same on both"
            )
        supervisor = Supervisor(
            config.target,
            processes=1,
            threads=config.threads,
            queues=config.queues,
            tags=config.tags,
            drain=config.drain,
            lease=config.lease,
            grace=config.grace,
            log_level=config.log_level,
            log_format=config.log_format,
        )
        # A file that is on another machine would be made here, empty, and drained at once.
        open_broker(supervisor.app.resolved_url.url, create=False).close()
    except Refused as error:
        return SlotEnd(slot, host, 0, time.monotonic() - began, 2, "refused", str(error))
    except PenstockError as error:
        return _unopened(slot, host, began, error)
    watch = _Watch(supervisor, config, slot)
    try:
        code = supervisor.run()
    except PenstockError as error:
        return _unopened(slot, host, began, error)
    finally:
        watch.close()
        supervisor.app.close()
    ended = watch.reason or ("drained" if code == 0 else "no child comes up")
    return SlotEnd(slot, host, supervisor.settled, time.monotonic() - began, code, ended)


def _unopened(slot: int, host: str, began: float, error: PenstockError) -> SlotEnd:
    """It is tried again: a store may come back."""
    ended = "the store did not open"
    return SlotEnd(slot, host, 0, time.monotonic() - began, 1, ended, str(error))


class _Watch(threading.Thread):
    """Beside a slot's supervisor: keeps to its time, and to the driver's word."""

    def __init__(self, supervisor: Supervisor, config: SlotConfig, slot: int) -> None:
        super().__init__(name="penstock-slot-watch", daemon=True)
        self.reason = ""
        self._supervisor = supervisor
        self._until = config.until
        self._over = threading.Event()
        self._line = SlotChannel(config.address, slot, self._told)
        self._handler = _Handler(self._line)
        logger = logging.getLogger("penstock.worker")
        logger.addHandler(self._handler)
        logger.setLevel(config.log_level.upper())
        self.start()

    def run(self) -> None:
        while not self._over.wait(_REPORT_SECONDS):
            running = sum(child.slots.vitals.running for child in list(self._supervisor.children))
            self._line.report(settled=self._supervisor.settled, running=running)
            if self._until is not None and time.time() >= self._until and not self.reason:
                self.reason = "time"
                self._supervisor.stop()

    def close(self) -> None:
        self._over.set()
        logging.getLogger("penstock.worker").removeHandler(self._handler)
        self.join(2 * _REPORT_SECONDS)
        self._line.close()

    def _told(self, word: str) -> None:
        self.reason = self.reason or "told"
        self._supervisor.stop(now=word == "now")


class _Handler(logging.Handler):
    """Log lines of the slot's supervisor, over the line."""

    def __init__(self, line: SlotChannel) -> None:
        super().__init__()
        self._line = line

    def emit(self, record: logging.LogRecord) -> None:
        self._line.report(log=f"{record.levelname.lower()}: {record.getMessage()}")
