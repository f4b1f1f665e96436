"""Prune, page by page: nobody waits for the whole of it, and nothing is left between pages."""

from __future__ import annotations

import msgspec

from penstock.brokers.sqlite import pruning
from penstock.job import failed, succeeded
from penstock.testing.conformance.factories import a_worker, begun, claim_for, some_jobs

DAY = 86400


def end(broker, clock, jobs, outcome):
    broker.enqueue(jobs)
    claimed = claim_for(broker, a_worker(), limit=len(jobs))
    broker.settle([(job, begun(outcome, clock.now())) for job in claimed])


def test_every_page_is_pruned_but_for_what_is_young_or_kept_longer(
    sqlite_broker, clock, monkeypatch
):
    monkeypatch.setattr(pruning, "PRUNED_AT_ONCE", 10)
    kept = some_jobs(clock, 15)
    end(sqlite_broker, clock, kept, msgspec.structs.replace(succeeded(b"1"), keep_for=30 * DAY))
    end(sqlite_broker, clock, some_jobs(clock, 35), succeeded(b"1"))
    end(sqlite_broker, clock, some_jobs(clock, 25), failed("ValueError"))
    end(sqlite_broker, clock, some_jobs(clock, 25, tags={"tenant": "a"}), succeeded(b"1"))
    clock.advance(days=2)
    young = some_jobs(clock, 12)
    end(sqlite_broker, clock, young, succeeded(b"1"))

    pruned = sqlite_broker.prune(clock.now() - DAY)

    left = [event.job for event in sqlite_broker.history()]
    assert sorted(left) == sorted(job.id for job in [*kept, *young])
    assert sqlite_broker.count() == []
    assert pruned >= 35 + 25 + 25 + 25  # history rows, and the rows of failed jobs
    assert sqlite_broker.prune(clock.now() - DAY) == 0


def test_others_write_between_two_pages(sqlite_broker, clock, monkeypatch):
    monkeypatch.setattr(pruning, "PRUNED_AT_ONCE", 10)
    end(sqlite_broker, clock, some_jobs(clock, 35), succeeded(b"1"))
    clock.advance(days=2)
    transactions = []
    sqlite_broker.store._writer.set_trace_callback(
        lambda text: transactions.append(text) if text == "begin immediate" else None
    )

    sqlite_broker.prune(clock.now() - DAY)

    assert len(transactions) >= 4
