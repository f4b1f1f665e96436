"""A producer and a worker on a disk with no room left: every file may grow to so many bytes."""

from __future__ import annotations

import json
import resource
import signal
import sys

from penstock import App, StoreFull
from penstock.broker.views import WorkerRow
from penstock.job import succeeded
from penstock.testing.conformance.factories import claim_for

path, room = sys.argv[1], int(sys.argv[2])
app = App(f"sqlite:///{path}")


@app.task(name="keep")
def keep(number: int, text: str) -> None: ...


# Without this the kernel ends the process; with it a write fails, as on a full disk.
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

accepted: list[str] = []
refused: list[int] = []


def enqueue(count: int) -> None:
    for number in range(count):
        try:
            accepted.append(keep.enqueue(number, "x" * 5000).id)
        except StoreFull:
            refused.append(number)


worker = WorkerRow(id="worker-1", tasks={"keep": 1})
enqueue(20)
held = claim_for(app.broker, worker, limit=10)

resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
enqueue(200)
settled_when_full = "no"
try:
    # More than what a page that is there already can take.
    body = json.dumps("y" * 50_000).encode()
    app.broker.settle([(job, succeeded(body)) for job in held])
    settled_when_full = "yes"
except StoreFull:
    settled_when_full = "StoreFull"
accepted_when_full = len(accepted)

resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
enqueue(20)
if settled_when_full != "yes":
    app.broker.settle([(job, succeeded()) for job in held])
ran = [job.id for job in held]
while jobs := claim_for(app.broker, worker, limit=100):
    app.broker.settle([(job, succeeded()) for job in jobs])
    ran += [job.id for job in jobs]

print(
    json.dumps(
        {
            "refused": len(refused),
            "accepted_when_full": accepted_when_full,
            "settled_when_full": settled_when_full,
            "accepted": len(accepted),
            "ran_each_once": sorted(ran) == sorted(accepted),
        }
    )
)
