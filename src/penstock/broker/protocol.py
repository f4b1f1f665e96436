"""Broker: what every store of jobs promises. The first page for whoever writes a store.

    enqueue --> claim --> settle            a job's way through the store
                renew --> recover           beside it, for workers that die: no renewal, recovered

35 verbs in four groups:

    Core      15  what producers and workers call: broker/core.py
    Control    6  what people and schedules do to jobs and records: broker/control.py
    Look       7  what people see: broker/look.py
    Bulk       7  reads and writes of many rows in parallel, for Spark: broker/bulk.py

What to know before the first verb:

- A **job** is an immutable value (`penstock.job.Job`). A verb takes and returns values; the store
  keeps no reference to one.
- A **claim** belongs to a worker: it holds while that worker's row is renewed. Each claim adds one
  to the job's `attempt`. Every write of a worker is fenced by (job id, attempt): a stale one
  changes nothing, and the answer says so.
- A verb that writes is **one transaction**: all of it is kept, or nothing. (`prune` alone goes
  page by page.)
- **Time** is `clock`'s, which tests move; leases run on its monotonic time.
- A **record** (rule, schedule, subscription, mark of a lake) is a value with an id. `put`,
  `clear` and `records` serve every kind: a new kind needs no new verb.
- A **position** of the history is a text that the store makes. Nobody else compares two.
- A store whose buckets can move to others (`broker/move.py`) has two verbs more: the capability
  "moves".
- `traits` declares what the store is and which optional **capabilities** it has. Nobody probes for
  methods, and everything that is not a capability every store keeps.

The docstring of a verb is its promise. The decisions behind it are pure functions that a store
calls: `broker.settlement`, `broker.checks`, `broker.worker_lease`, `broker.lake_mark`,
`penstock.rules`, `penstock.schedules.schedule`, `penstock.flows`. The suite in
`penstock.testing.conformance`, one file or more per verb, runs against every broker and is the
definition; docs/how-to/write-a-broker.md takes an author through it. A new verb costs a test file
and every store, so try first whether a value passed to an existing verb can say it.
"""

from __future__ import annotations

from typing import Protocol

from penstock.broker.bulk import Bulk
from penstock.broker.control import Control
from penstock.broker.core import Core
from penstock.broker.look import Look


class Broker(Core, Control, Look, Bulk, Protocol):
    """Stores jobs and hands them out."""
