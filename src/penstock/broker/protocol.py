"""Broker: what every store of jobs promises. The first page for whoever writes a store.

    enqueue --> claim --> settle            and beside it, for workers that die:
                                            renew --> (silence) --> recover

34 verbs in four groups:

    Core      15  what a producer and a worker need: broker/core.py
    Control    6  what people and schedules do: broker/control.py
    Look       7  what people see: broker/look.py
    Bulk       6  frames in and out, for Spark: broker/bulk.py

The docstring of a verb is its promise. The suite in `penstock.testing.conformance`, one file or
more per verb, runs against every broker and is the definition. docs/how-to/write-a-broker.md takes
an author through it. A new verb costs a test file and every store, so try first whether a value
that an existing verb takes can say it.

A **lease belongs to a worker**: whatever a worker claimed is held while its row is renewed. Every
write by a worker is fenced by (job id, attempt): a stale one changes nothing and is told so.
"""

from __future__ import annotations

from typing import Protocol

from penstock.broker.bulk import Bulk
from penstock.broker.control import Control
from penstock.broker.core import Core
from penstock.broker.look import Look


class Broker(Core, Control, Look, Bulk, Protocol):
    """Stores jobs and hands them out."""
