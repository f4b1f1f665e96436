"""One detached job, run by a person: claimed by its id, under the same lock, on this terminal.

No verb of a store takes one certain job. So all that is ready of its task is claimed, up to a page,
and the others are put back at once, uncounted: rules and limits hold as for everybody.
"""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.app.version import release
from penstock.broker.values import Wanted
from penstock.broker.views import WorkerRow
from penstock.errors import Refused
from penstock.job import Job, put_back
from penstock.worker.detached.exit_codes import Exit
from penstock.worker.detached.keeper import KeeperConfig
from penstock.worker.detached.state_folder import Folder, state_folder

if TYPE_CHECKING:
    from penstock.app.app import App

_LEASE_SECONDS = 60.0  # nobody renews for the process until its code is loaded
_GRACE_SECONDS = 25.0
_PAGE = 1000


def run_by_hand(app: App, target: str, job_id: str, log_level: str = "info") -> int:
    """Run a job that is ready, here and now; the exit code of its process, see `exits`.

    Ctrl-C has it put back. What it prints goes to this terminal, and not to its log.
    """
    job = app.broker.get(job_id)
    if job is None:
        raise Refused(f"there is no job {job_id}: `penstock detached list` shows those there are")
    task = app.task_named(job.task)
    if task is None or not task.detached:
        raise Refused(f"job {job_id} is of {job.task}, which is no detached task of {target}")
    worker = f"{socket.gethostname()}-by-hand-{secrets.token_hex(6)}"
    rules = app.broker.traits.rules_version()
    claimed = _claimed(app, job, worker)
    folder = Folder(state_folder(app.resolved_url.url))
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
    told = msgspec.json.encode(config).decode()
    process = subprocess.Popen([sys.executable, "-m", "penstock.worker", "keep", told])
    while True:
        try:
            code = process.wait()
            break
        except KeyboardInterrupt:  # the process had it, too, and puts the job back
            continue
    begun = () if code in {Exit.LOCKED, Exit.MISSING} else (claimed.id,)
    app.broker.recover(dead=worker, started=begun)  # nothing, if the process ended as it should
    return code


def _claimed(app: App, job: Job[Any], worker: str) -> Job[Any]:
    broker = app.broker
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
        penstock=release(),
    )
    found = None
    others: list[Job[Any]] = []
    try:
        # One page: each claim may be of one job alone, if that is how the store hands it out.
        while found is None and len(others) < _PAGE:
            jobs = broker.claim([Wanted(row, limit=_PAGE, queues=(job.queue,))]).jobs[0]
            others += [each for each in jobs if each.id != job.id]
            found = next((each for each in jobs if each.id == job.id), None)
            if not jobs:
                break
    finally:
        broker.settle([(each, put_back("for another")) for each in others])
    if found is None:
        broker.recover(dead=worker, started=())
        raise Refused(f"job {job.id} cannot be run now: {broker.why(job.id).sentence}")
    return found
