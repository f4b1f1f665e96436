"""Signals in memory: all that wait for a name end in one step, and whoever needs them goes on.

As everything here it does not lock: the broker does, around the verb.
"""

from __future__ import annotations

from penstock.brokers.memory.store import MemoryStore
from penstock.enqueue.secrets import redact
from penstock.flows.signals import awaits, check_signal, signal_data, signalled


def signal(store: MemoryStore, name: str, value: bytes, author: str, reason: str) -> list[str]:
    """End what waits for this signal; returns the ids."""
    check_signal(name)
    now = store.clock.now()
    waiting = sorted(job.id for job in store.awaiting(name) if awaits(job, name, now))
    ended = [signalled(store.jobs[job_id], value, now) for job_id in waiting]
    data = signal_data(name, author, reason)
    if ended:
        store.record("signal", data={**data, "jobs": len(ended)})
    for job in ended:
        store.take_out(store.jobs[job.id])
        store.jobs[job.id] = job
        store.record("attempt", job, body=redact(job.body), result=value, data=data)
    store.count_ends(ended)
    return waiting
