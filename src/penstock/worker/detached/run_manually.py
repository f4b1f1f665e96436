"""`penstock detached run`: one detached job by its id, on this terminal, under the same lock.

No verb of a store claims one certain job. So ready jobs of its task are claimed, up to a page, and
the others are put back at once, uncounted: rules and limits hold as for every claim.
"""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.app.environment import open_to_run
from penstock.app.version import RELEASE
from penstock.broker.values import Wanted
from penstock.broker.views import WorkerRow
from penstock.errors import Refused
from penstock.job import Job, put_back
from penstock.worker.detached.exit_codes import Exit
from penstock.worker.detached.keeper import KeeperConfig
from penstock.worker.detached.state_folder import StateFolder, state_folder

if TYPE_CHECKING:
    from penstock.app.app import App

_LEASE_SECONDS = 60.0  # until the keeper has loaded its code, nobody renews
_GRACE_SECONDS = 25.0
_PAGE = 1000


def run_manually(app: App, target: str, job_id: str, log_level: str = "info") -> int:
    """Run a ready job in the foreground; returns the exit code of its keeper, see `exit_codes`.

    Ctrl-C puts the job back. What it prints goes to this terminal, not to its log.
    """
    job = app.broker.get(job_id)
    if job is None:
        raise Refused(f"there is no job {job_id}: `penstock detached list` shows those that exist")
    task = app.task_named(job.task)
    if task is None or not task.detached:
        raise Refused(f"job {job_id} calls {job.task}, which is not a detached task of {target}")
    worker = f"{socket.gethostname()}-by-hand-{secrets.token_hex(6)}"
    rules = app.broker.traits.rules_version()
    claimed = _claim(app, job, worker)
    folder = StateFolder(state_folder(app.resolved_url.url))
    config = KeeperConfig(
        target=target,
        job=claimed.id,
        attempt=claimed.attempt,
        worker=worker,
        rules=rules,
        folder=str(folder.path),
        lease=_LEASE_SECONDS,
        grace=_GRACE_SECONDS,
        tags=claimed.runs_on,
        log_level=log_level,
    )
    command = [
        sys.executable,
        "-m",
        "penstock.worker",
        "keep",
        msgspec.json.encode(config).decode(),
    ]
    process = subprocess.Popen(command)
    while True:
        try:
            code = process.wait()
            break
        except KeyboardInterrupt:  # the keeper got it too, and puts the job back
            continue
    begun = () if code in {Exit.LOCKED, Exit.MISSING} else (claimed.id,)
    app.broker.recover(dead=worker, started=begun)  # does nothing if the keeper has settled the job
    return code


def _claim(app: App, job: Job[Any], worker: str) -> Job[Any]:
    broker = open_to_run(app)
    row = WorkerRow(
        id=worker,
        app=job.app,
        tasks={job.task: job.version},
        tags=frozenset(job.runs_on),
        queues=(job.queue,),
        host=socket.gethostname(),
        pid=os.getpid(),
        lease=_LEASE_SECONDS,
        started_at=broker.clock.now(),
        penstock=RELEASE,
    )
    claimed = None
    others: list[Job[Any]] = []
    try:
        # A claim may return less than its limit although more is ready: claim until a page is full.
        while claimed is None and len(others) < _PAGE:
            jobs = broker.claim([Wanted(row, limit=_PAGE, queues=(job.queue,))]).jobs[0]
            others += [other for other in jobs if other.id != job.id]
            claimed = next((same for same in jobs if same.id == job.id), None)
            if not jobs:
                break
    finally:
        broker.settle([(other, put_back("for another")) for other in others])
    if claimed is None:
        broker.recover(dead=worker, started=())
        raise Refused(f"job {job.id} cannot be run now: {broker.why(job.id).sentence}")
    return claimed
