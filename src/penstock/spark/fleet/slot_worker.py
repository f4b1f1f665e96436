"""A slot: the ordinary worker inside a Spark task on an executor, for as long as the task lasts.

The Python worker that Spark started is the supervisor: it runs no job itself, so that no job can
block its heartbeat; a child process runs them. An executor that dies needs no special handling: the
lease ends, as with any worker.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import time

import msgspec

from penstock.app.environment import VARIABLE as ENVIRONMENT
from penstock.app.version import RELEASE
from penstock.broker.views import LEASE_SECONDS
from penstock.brokers import open_broker
from penstock.errors import PenstockError, Refused
from penstock.spark.fleet.driver_channel import Address, SlotChannel
from penstock.worker.supervisor import Supervisor

_REPORT_SECONDS = 1.0


class SlotConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver sends to every slot."""

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
    environment: str = ""  # that the driver is of


class SlotEnd(msgspec.Struct, frozen=True):
    """How a slot ended: drained, stopped (by the driver), time, refused, or an error."""

    slot: int
    host: str
    settled: int
    seconds: float
    code: int
    ended: str
    note: str = ""


def work_slot(config: SlotConfig, slot: int) -> SlotEnd:
    """Run jobs until drained, stopped, or out of time; the task that Spark runs."""
    began, host = time.monotonic(), socket.gethostname()
    # So that child processes import the code that Spark shipped to this executor.
    os.environ["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry)
    os.environ[ENVIRONMENT] = config.environment
    try:
        if config.penstock != RELEASE:
            raise Refused(
                f"the driver runs Penstock {config.penstock} and the executor on {host} has"
                f" {RELEASE}: install the same on both"
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
        # create=False: a SQLite file of another machine would be created here, empty, and drained.
        open_broker(supervisor.app.resolved_url.url, create=False).close()
    except Refused as error:
        return SlotEnd(slot, host, 0, time.monotonic() - began, 2, "refused", str(error))
    except PenstockError as error:
        return _store_unavailable(slot, host, began, error)
    monitor = _Monitor(supervisor, config, slot)
    try:
        code = supervisor.run()
    except Refused as error:
        return SlotEnd(slot, host, 0, time.monotonic() - began, 2, "refused", str(error))
    except PenstockError as error:
        return _store_unavailable(slot, host, began, error)
    finally:
        monitor.close()
        supervisor.app.close()
    ended = monitor.reason or ("drained" if code == 0 else "no child comes up")
    return SlotEnd(slot, host, supervisor.settled, time.monotonic() - began, code, ended)


def _store_unavailable(slot: int, host: str, began: float, error: PenstockError) -> SlotEnd:
    # Code 1: the driver starts the slot again, since a store may come back.
    ended = "the store did not open"
    return SlotEnd(slot, host, 0, time.monotonic() - began, 1, ended, str(error))


class _Monitor(threading.Thread):
    """Reports the supervisor's counts to the driver, and stops it in time or on command."""

    def __init__(self, supervisor: Supervisor, config: SlotConfig, slot: int) -> None:
        super().__init__(name="penstock-slot-monitor", daemon=True)
        self.reason = ""
        self._supervisor = supervisor
        self._until = config.until
        self._over = threading.Event()
        self._channel = SlotChannel(config.address, slot, self._stop_supervisor)
        self._handler = _ChannelHandler(self._channel)
        logger = logging.getLogger("penstock.worker")
        logger.addHandler(self._handler)
        logger.setLevel(config.log_level.upper())
        self.start()

    def run(self) -> None:
        while not self._over.wait(_REPORT_SECONDS):
            running = sum(child.slots.vitals.running for child in list(self._supervisor.children))
            self._channel.report(settled=self._supervisor.settled, running=running)
            if self._until is not None and time.time() >= self._until and not self.reason:
                self.reason = "time"
                self._supervisor.stop()

    def close(self) -> None:
        self._over.set()
        logging.getLogger("penstock.worker").removeHandler(self._handler)
        self.join(2 * _REPORT_SECONDS)
        self._channel.close()

    def _stop_supervisor(self, command: str) -> None:
        self.reason = self.reason or "stopped"
        self._supervisor.stop(now=command == "now")


class _ChannelHandler(logging.Handler):
    """Sends log lines of the slot's supervisor to the driver."""

    def __init__(self, channel: SlotChannel) -> None:
        super().__init__()
        self._channel = channel

    def emit(self, record: logging.LogRecord) -> None:
        self._channel.report(log=f"{record.levelname.lower()}: {record.getMessage()}")
