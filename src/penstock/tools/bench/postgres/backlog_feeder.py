"""Keeps up a backlog of no-op jobs, in a process of its own.

python -m penstock.tools.bench.postgres.backlog_feeder URL BACKLOG
"""

from __future__ import annotations

import sys
import time

from penstock.tools.bench.measure import TEXT, store
from penstock.tools.bench.tasks import app, nothing

_PER_CALL = 10_000


def feed(url: str, backlog: int) -> None:
    """Run until the process is ended."""
    rows = [(number, TEXT) for number in range(_PER_CALL)]
    with store(url):
        while True:
            if sum(count.ready for count in app.broker.count()) < backlog:
                nothing.enqueue_many(rows)
            else:
                time.sleep(0.02)


if __name__ == "__main__":
    feed(sys.argv[1], int(sys.argv[2]))
