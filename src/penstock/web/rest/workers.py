"""Workers over REST: what each runs now; change their numbers, quiet, stop, reset."""

from __future__ import annotations

import msgspec

from penstock.broker.worker_settings import WorkerSettings
from penstock.operate.worker_settings import WorkerSettingsJson, settings_json
from penstock.web.request import WebRequest


class SetWorker(msgspec.Struct, forbid_unknown_fields=True):
    """Settings of a worker, by its name; what is left out stays. `stop`: as SIGTERM."""

    worker: str
    threads: int | None = None
    async_slots: int | None = None
    processes: int | None = None
    queues: dict[str, int] = {}
    quiet: bool | None = None
    stop: bool = False
    reason: str = ""


class ResetWorker(msgspec.Struct, forbid_unknown_fields=True):
    """A worker by its name: it is as it was started."""

    worker: str
    reason: str = ""


class WasReset(msgspec.Struct):
    """Whether anything was set."""

    reset: bool


def set_worker(request: WebRequest) -> WorkerSettingsJson:
    body = request.json(SetWorker)
    settings = WorkerSettings(
        worker=body.worker,
        threads=body.threads,
        async_slots=body.async_slots,
        processes=body.processes,
        queues=body.queues,
        quiet=body.quiet,
        stop=body.stop,
    )
    return settings_json(request.store.set_worker(settings, body.reason))


def reset_worker(request: WebRequest) -> WasReset:
    body = request.json(ResetWorker)
    return WasReset(request.store.reset_worker(body.worker, body.reason))
