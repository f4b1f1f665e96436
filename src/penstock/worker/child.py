"""A child of the supervisor: one worker in a fresh process.

    python -m penstock.worker child '{"target": "shop:app", ...}'

The supervisor speaks through a pipe, one word a line: drain, now, retire. Its end is the
supervisor's end: then the child renews its own lease while it drains. The child answers through the
slots only.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
import time
from types import FrameType

import msgspec

from penstock.app.app import App
from penstock.app.locate import load_app
from penstock.app.log_lines import LogOutput, log_to_stderr
from penstock.errors import StoreFull, StoreUnreachable
from penstock.worker.loop import Worker
from penstock.worker.running_slots import RunningSlots

log = logging.getLogger("penstock.worker")


class ChildConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a child is told at birth."""

    target: str
    id: str
    slots: int  # descriptors
    control: int
    threads: int
    async_slots: int
    queues: tuple[str, ...] | None
    tags: tuple[str, ...]
    lease: float
    grace: float
    drain: bool
    retention: float | None
    log_level: str | None = None
    log_format: str = "text"
    detached: bool = False


def main(config: ChildConfig) -> None:
    # The terminal sends Ctrl-C to everybody; the supervisor says what it means. Not SIG_IGN: that
    # would be inherited by whatever a job starts.
    signal.signal(signal.SIGINT, _ignore)
    if config.log_level is not None:
        log_to_stderr(LogOutput(config.log_level, config.log_format))
    app = load_app(config.target)
    _open_store(app)
    worker = Worker(
        app,
        id=config.id,
        queues=config.queues,
        threads=config.threads,
        async_slots=config.async_slots,
        tags=config.tags,
        lease=config.lease,
        grace=config.grace,
        drain=config.drain,
        heartbeat=False,
        slots=RunningSlots(config.threads + config.async_slots, config.slots),
        target=config.target,
        retention=config.retention,
        on_stuck=lambda _: None,
        detached="beside" if config.detached else "leave",
    )

    def stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        worker.stop()

    signal.signal(signal.SIGTERM, stop)
    threading.Thread(
        target=_obey, args=(config.control, worker), name="penstock-control", daemon=True
    ).start()
    gc.collect()
    gc.freeze()  # the code that was loaded is not looked through again and again
    worker.work()
    if not worker.clean:
        # A thread that does not end must not keep the process.
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _open_store(app: App) -> None:
    """Open the store, however long that takes: a child born in an outage waits for its end."""
    pause = 0.1
    while True:
        try:
            app.broker.traits.rules_version()
            return
        except (StoreUnreachable, StoreFull) as error:
            if pause == 0.1:
                log.error("the store does not answer, and is tried again: %s", error)  # noqa: TRY400
            time.sleep(pause)
            pause = min(pause * 2, 5.0)


def _obey(control: int, worker: Worker) -> None:
    with os.fdopen(control) as words:
        for word in words:
            if word.strip() == "retire":
                worker.retiring = True
            worker.stop(now=word.strip() == "now")
    log.warning("the supervisor is gone; draining")
    worker.heartbeat = True
    worker.stop()


def _ignore(number: int, frame: FrameType | None) -> None:
    del number, frame
