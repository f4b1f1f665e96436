"""A child of the supervisor: one worker in a fresh process.

    python -m penstock.worker child '{"target": "shop:app", ...}'

The supervisor writes to a pipe, one word a line: drain, now, retire. End of file means that the
supervisor is dead: then the child drains and renews its own lease meanwhile. What the child has to
report it writes to the shared slots (`running_slots.py`).
"""

from __future__ import annotations

import gc
import logging
import os
import select
import signal
import sys
import threading
from types import FrameType

import msgspec

from penstock.app.app import App
from penstock.app.locate import load_app
from penstock.app.log_lines import LogOutput, log_to_stderr
from penstock.app.store_retry import open_when_reachable
from penstock.errors import MissingRight
from penstock.worker.capacity import Capacity
from penstock.worker.last_words import keep_last_words
from penstock.worker.loop import Worker
from penstock.worker.outage_log import OutageLog
from penstock.worker.running_slots import RunningSlots, SlotsOwner

MISSING_RIGHT = 77  # exit code: the login may not do what a worker does

log = logging.getLogger("penstock.worker")


class ChildConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What the supervisor passes to a child, as JSON on its command line."""

    target: str
    id: str
    slots: int  # file descriptor of the shared memory
    control: int  # file descriptor of the pipe from the supervisor
    words: int  # file descriptor of what it logged last
    threads: int
    async_slots: int
    queues: tuple[str, ...] | None
    tags: tuple[str, ...]
    lease: float | None  # None: as the queues say
    grace: float
    drain: bool
    retention: float | None
    log_level: str | None = None
    log_format: str = "text"
    detached: bool = False
    quiet: bool = False
    group: str = ""


def main(config: ChildConfig) -> None:
    # The terminal sends Ctrl-C to the whole group; the supervisor decides what follows from it. Not
    # SIG_IGN: processes that a job starts would inherit that.
    signal.signal(signal.SIGINT, _ignore)
    slots = RunningSlots(config.threads + config.async_slots, config.slots)
    slots.sign(SlotsOwner.CHILD)
    if config.log_level is not None:
        log_to_stderr(LogOutput(config.log_level, config.log_format))
    keep_last_words(config.words)
    app = load_app(config.target)
    if not _open_store(app, config.control):
        return
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
        slots=slots,
        target=config.target,
        retention=config.retention,
        on_stuck=lambda _: None,
        detached="beside" if config.detached else "leave",
        group=config.group,
    )
    if config.quiet:
        worker.change(Capacity(config.threads, config.async_slots, quiet=True))

    def stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        worker.stop()

    signal.signal(signal.SIGTERM, stop)
    threading.Thread(
        target=_read_control, args=(config.control, worker), name="penstock-control", daemon=True
    ).start()
    gc.collect()
    gc.freeze()  # what is loaded by now is never garbage: spare the collector scanning it
    try:
        worker.work()
    except MissingRight as error:
        log.error("the store refuses this worker, which ends: %s", error)  # noqa: TRY400
        sys.exit(MISSING_RIGHT)
    if not worker.clean:
        # A job's thread that does not end must not keep the process alive.
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _open_store(app: App, control: int) -> bool:
    """Open the store, also after an outage; False if the supervisor wants this child to exit."""
    outage = OutageLog("this child starts work when it does")
    return open_when_reachable(
        lambda: app.broker,
        outage.log,
        lambda seconds: bool(select.select([control], [], [], seconds)[0]),
    )


def _read_control(control: int, worker: Worker) -> None:
    with os.fdopen(control) as lines:
        for line in lines:
            if line.startswith("{"):
                worker.change(msgspec.json.decode(line, type=Capacity))
                continue
            if line.strip() == "retire":
                worker.retiring = True
            worker.stop(now=line.strip() == "now")
    log.warning(
        "the supervisor of worker %s is dead: it finishes what it runs, and exits", worker.id
    )
    worker.heartbeat = True
    worker.stop()


def _ignore(number: int, frame: FrameType | None) -> None:
    del number, frame
