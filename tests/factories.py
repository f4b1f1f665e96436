"""Jobs and workers as tests need them: everything has a default, a test names what it is about."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from penstock.broker import Broker, Event, WorkerRow
from penstock.ids import Ids
from penstock.job import Job, Outcome
from penstock.schedule import Schedule
from penstock.testing.clock import Clock

TASKS = {"mail:send": 1, "mail:sweep": 1, "media:resize": 1}

_ids: WeakKeyDictionary[Clock, Ids] = WeakKeyDictionary()


def an_id(clock: Clock, lane: Any = None) -> str:
    """An id made now, by the test's clock."""
    if clock not in _ids:
        _ids[clock] = Ids(clock)
    return _ids[clock].next(lane)


def a_job(clock: Clock, task: str = "mail:send", **fields: Any) -> Job[Any]:
    """A job made now; jobs of one lane made at the same moment are neighbours."""
    job = Job[Any](task=task, id="", **fields) if "id" not in fields else None
    if job is None:
        return Job(task=task, **fields)
    return msgspec.structs.replace(job, id=an_id(clock, job.lane))


def some_jobs(clock: Clock, count: int, task: str = "mail:send", **fields: Any) -> list[Job[Any]]:
    """Neighbours of one lane, told apart by their argument `n`."""
    return [
        a_job(clock, task, body=msgspec.json.encode({"args": {"n": number}}), **fields)
        for number in range(count)
    ]


def a_schedule(name: str = "hourly", task: str = "mail:sweep", **fields: Any) -> Schedule:
    """A schedule, due every hour unless told otherwise."""
    when = {} if fields.keys() & {"cron", "every", "at"} else {"every": 3600.0}
    return Schedule(name=name, job=Job(task=task, id=""), **when, **fields)


def a_worker(id: str = "worker-1", **fields: Any) -> WorkerRow:
    """A worker that knows the tasks used in tests."""
    return WorkerRow(id=id, **{"tasks": TASKS, "host": "ada", "pid": 7, **fields})


def claim(
    broker: Broker, limit: int = 1, worker: str = "worker-1", **fields: Any
) -> list[Job[Any]]:
    """What this worker is handed."""
    return broker.claim(a_worker(worker, **fields), limit=limit)


def enqueue_and_claim(broker: Broker, clock: Clock, **fields: Any) -> Job[Any]:
    """One job, stored and taken by worker-1."""
    job = a_job(clock, **fields)
    broker.enqueue([job])
    [claimed] = claim(broker)
    assert claimed.id == job.id
    return claimed


def begun(outcome: Outcome, at: float) -> Outcome:
    """The outcome of an attempt that began: it leaves a row in the history."""
    return msgspec.structs.replace(outcome, started_at=at)


def settle(broker: Broker, job: Job[Any], outcome: Outcome) -> bool:
    [accepted] = broker.settle([(job, outcome)])
    return accepted


def history_of(broker: Broker, job_id: str) -> list[Event]:
    return broker.history(job=job_id)


def ids_of(jobs: Any) -> list[str]:
    return [job.id for job in jobs]
