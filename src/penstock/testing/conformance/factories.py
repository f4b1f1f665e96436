"""Jobs and workers as tests need them: everything has a default, a test names what it is about."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakSet

import msgspec

from penstock.broker.protocol import Broker
from penstock.broker.values import Enqueued, Settlement, Wanted
from penstock.broker.views import Event, WorkerRow
from penstock.enqueue.ids import Ids, bucket_by, bucket_of, in_bucket
from penstock.flows.flow import Flow, Member, Node, NodeRow, OnFailure
from penstock.job import Job, Outcome, State, pack
from penstock.schedules.schedule import Schedule
from penstock.testing.clock import Clock

# Names that are paths, and so no tasks; whoever imported them would run a file.
PATHS = [
    "/tmp/x.py:f",
    "/tmp/x:f",
    "/tmp/x",
    "./x.py:f",
    "./x:f",
    "../x:f",
    "x.py:f",
    "x.PY:f",
    "a/b.py:f",
    "x.py",
    "report.py",
    "x.py:a:b",
    "a:/tmp/x:f",
    ":/tmp/x",
    ":x.py",
]
# These only stores of other programs take at all: letters, spaces and signs beyond ASCII.
ODD_PATHS = [
    "x.py :f",
    " /tmp/x:f",
    "x.py\N{NO-BREAK SPACE}:f",
    "x\N{FULLWIDTH FULL STOP}py:f",
    "x.\N{FULLWIDTH LATIN SMALL LETTER P}y:f",
    "\N{FULLWIDTH SOLIDUS}tmp/x:f",
    "x.py\N{ZERO WIDTH SPACE}:f",
    "\N{ZERO WIDTH SPACE}/tmp/x:f",
]
NO_PATHS = ["mail:report.py", "a/b:f", "a.b/c", "happy:f", "x.pyx:f", "py:f", "app.tasks.send"]

TASKS = {"mail:send": 1, "mail:sweep": 1, "media:resize": 1}

_ids: WeakKeyDictionary[Clock, Ids] = WeakKeyDictionary()
_one_bucket: WeakSet[Clock] = WeakSet()


def put_in_one_bucket(clock: Clock) -> None:
    """Make all ids of this clock in one bucket, for stores that keep no order across buckets."""
    _one_bucket.add(clock)


def an_id(clock: Clock, lane: Any = None, bucket: int | None = None) -> str:
    """An id made now, by the test's clock."""
    if clock not in _ids:
        _ids[clock] = Ids(clock)
    return _ids[clock].next(lane, 0 if bucket is None and clock in _one_bucket else bucket)


def a_job(clock: Clock, task: str = "mail:send", **fields: Any) -> Job[Any]:
    """A job made now; jobs of one lane made at the same moment are neighbours."""
    job = Job[Any](task=task, id="", **fields) if "id" not in fields else None
    if job is None:
        return Job(task=task, **fields)
    unique = None if job.unique is None else job.unique.key
    alone = clock in _one_bucket and unique is None
    bucket = None if alone else bucket_by(unique, job.key)
    return msgspec.structs.replace(job, id=an_id(clock, job.lane, bucket))


def some_jobs(clock: Clock, count: int, task: str = "mail:send", **fields: Any) -> list[Job[Any]]:
    """Neighbours of one lane, told apart by their argument `n`."""
    return [
        a_job(clock, task, body=msgspec.json.encode({"args": {"n": number}}), **fields)
        for number in range(count)
    ]


def a_schedule(name: str = "hourly", task: str = "mail:sweep", **fields: Any) -> Schedule:
    """A schedule, due every hour unless told otherwise."""
    when: dict[str, Any] = {} if fields.keys() & {"cron", "every", "at"} else {"every": 3600.0}
    return Schedule(name=name, job=Job(task=task, id=""), **when, **fields)


def a_worker(id: str = "worker-1", **fields: Any) -> WorkerRow:
    """A worker that knows the tasks used in tests."""
    known: dict[str, Any] = {"tasks": TASKS, "host": "ada", "pid": 7}
    return WorkerRow(id=id, **(known | fields))


def claim(
    broker: Broker, limit: int = 1, worker: str = "worker-1", **fields: Any
) -> list[Job[Any]]:
    """What this worker is handed."""
    return claim_for(broker, a_worker(worker, **fields), limit=limit)


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
    assert accepted is not None
    return accepted


def history_of(broker: Broker, job_id: str) -> list[Event]:
    return broker.history(job=job_id)


def ids_of(jobs: Any) -> list[str]:
    return [job.id for job in jobs]


def end_all(broker: Broker, outcome: Outcome, limit: int = 100) -> list[str]:
    """Claim what there is and end it; returns the ids, sorted."""
    jobs = claim(broker, limit=limit)
    assert broker.settle([(job, outcome) for job in jobs]) == [True] * len(jobs)
    return sorted(ids_of(jobs))


class Part(NamedTuple):
    """What a node of a flow is to be; `needs` are names of other parts."""

    needs: tuple[str, ...]
    jobs: int | None  # None: one job, and no map
    on_failure: OnFailure
    fields: dict[str, Any]


def part(
    *needs: str, jobs: int | None = None, on_failure: OnFailure = "cancel", **fields: Any
) -> Part:
    return Part(needs, jobs, on_failure, fields)


class Parts(NamedTuple):
    """A flow as it is sent, and its jobs by the name of their part."""

    flow: Flow
    named: dict[str, list[Job[Any]]]
    nodes: dict[str, str]  # ids

    @property
    def jobs(self) -> list[Job[Any]]:
        return [job for jobs in self.named.values() for job in jobs]

    def ids(self, *names: str) -> list[str]:
        return [job.id for name in names for job in self.named[name]]

    def spawned_by(self, outcome: Outcome) -> Outcome:
        """The outcome of a job that spawned this."""
        return msgspec.structs.replace(outcome, spawned=tuple(self.jobs), flow=self.flow)

    def send(self, broker: Broker) -> Enqueued:
        return broker.enqueue(self.jobs, flow=self.flow)

    def states(self, broker: Broker, name: str) -> list[State | None]:
        jobs = [broker.get(job_id) for job_id in self.ids(name)]
        return [None if job is None else job.state for job in jobs]

    def row(self, broker: Broker, name: str) -> NodeRow:
        flow = broker.flow(self.flow.id)
        assert flow is not None
        [row] = [node for node in flow.nodes if node.id == self.nodes[name]]
        return row


def a_flow(clock: Clock, joins: str | None = None, /, **parts: Part) -> Parts:
    """A flow of these parts, the last of which was enqueued; or more of the flow `joins`."""
    made = {
        name: [a_job(clock, **each.fields) for _ in range(each.jobs or 1)]
        for name, each in parts.items()
    }
    flow_id = joins or list(made.values())[-1][0].id
    bucket = bucket_of(flow_id)  # of all its members
    made = {
        name: [msgspec.structs.replace(job, id=in_bucket(job.id, bucket)) for job in jobs]
        for name, jobs in made.items()
    }
    ids = {
        name: made[name][0].id if each.jobs is None else an_id(clock, bucket=bucket)
        for name, each in parts.items()
    }
    nodes: list[Node] = []
    for name, each in parts.items():
        place = msgspec.json.encode(Member.of(flow_id, ids[name]))
        made[name] = [
            msgspec.structs.replace(job, body=b'{"args":{"n":%d},"flow":%s}' % (number, place))
            for number, job in enumerate(made[name])
        ]
        parcels, alone = pack(made[name])
        node = Node(
            id=ids[name],
            task=made[name][0].task,
            members=(
                *((parcel.id, len(parcel.bodies)) for parcel in parcels),
                *((job.id, 1) for job in alone),
            ),
            needs=tuple(ids.get(need, need) for need in each.needs),
            on_failure=each.on_failure,
        )
        nodes.append(node)
    return Parts(Flow(id=flow_id, nodes=tuple(nodes)), made, ids)


def claim_for(
    broker: Broker,
    worker: WorkerRow,
    queues: Collection[str] | None = None,
    limit: int = 1,
    sizes: Mapping[str, int] | None = None,
) -> list[Job[Any]]:
    """What one worker is handed."""
    return broker.claim([Wanted(worker, limit, queues, sizes)]).jobs[0]


def settle_and_claim_for(
    broker: Broker,
    settlements: Sequence[Settlement],
    worker: WorkerRow,
    *,
    queues: Collection[str] | None = None,
    limit: int = 1,
    sizes: Mapping[str, int] | None = None,
) -> tuple[Sequence[bool | None], list[Job[Any]]]:
    """Which settlements were accepted, and what the worker is handed in the same round trip."""
    answer = broker.claim([Wanted(worker, limit, queues, sizes)], settlements)
    return answer.accepted, answer.jobs[0]
