"""Import: the jobs of a file into a store. The whole file is read before anything is stored.

Each job keeps its id, so that a second import stores nothing. An id that is older than the store
remembers ids is derived from the old one, which is the same each time, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from penstock.app.encrypted_broker import EncryptedBroker
from penstock.app.key_file import NO_KEYS
from penstock.broker.checks import check_job, check_lane
from penstock.broker.protocol import Broker
from penstock.enqueue.ids import derived_id, offset_of, prefix_of, time_of
from penstock.enqueue.secrets import is_sealed
from penstock.errors import Refused
from penstock.flows.flow import Flow, check_flow, member_of
from penstock.job import Job, State
from penstock.operate.job_file import (
    VERSION,
    FileEnd,
    FileHead,
    FlowLine,
    JobLine,
    LeftOut,
    job_of_line,
    node_of_line,
    parse_line,
)

AT_ONCE = 1000  # jobs of one commit; a flow is one commit, however many jobs it has
_MARGIN = 60.0  # seconds: an id that is nearly too old might be refused when it is sent

Lines = Callable[[], Iterable[bytes]]  # opens the file, from its beginning


class Checked(msgspec.Struct):
    """A file that can be imported: every line of it was read."""

    jobs: int = 0
    left_out: list[LeftOut] = []  # when it was written
    flows: dict[str, FlowLine] = {}
    members: Counter[str] = msgspec.field(default_factory=Counter)  # jobs in the file, by flow
    oldest: dict[str, str] = {}  # the first id of each flow
    once: set[str] = set()  # flows with a job that ran and may not run again


class Imported(msgspec.Struct):
    """What became of the jobs of a file, or, in a dry run, what would."""

    stored: int = 0
    known: int = 0  # were here before
    derived: int = 0  # of those stored, with an id derived from one that is too old
    standing: int = 0  # another job holds their unique key
    left_out: list[LeftOut] = []


def check_file(lines: Lines, tasks: Mapping[str, str]) -> Checked:
    """Read all lines; refused as a whole, with the number of the first bad one."""
    checked, last = Checked(), None
    number = 0
    for number, text in enumerate(lines(), 1):
        try:
            if last is not None:
                raise Refused("there is a line behind the last one")
            line = parse_line(text)
            if (number == 1) != isinstance(line, FileHead):
                raise Refused("a file of jobs begins with one line of its kind and version")
            last = _check_line(line, checked, tasks)
        except Refused as error:
            raise Refused(f"line {number}: {error}. Nothing was imported") from None
    if last is None:
        raise Refused(
            f"the file ends at line {number} without its last line: it was cut off. Nothing was"
            " imported; export again"
        )
    return checked


def _check_line(line: Any, checked: Checked, tasks: Mapping[str, str]) -> FileEnd | None:
    if isinstance(line, FileHead):
        if line.penstock != "jobs" or line.version != VERSION:
            raise Refused(
                f"a file of {line.penstock!r}, version {line.version}: this Penstock reads"
                f" version {VERSION} of 'jobs'"
            )
    elif isinstance(line, JobLine):
        job = _job(line, tasks)
        check_lane(job.lane)
        check_job(job)
        checked.jobs += 1
        if line.flow is not None:
            _node_of(job)
            checked.members[line.flow] += 1
            checked.oldest[line.flow] = min(job.id, checked.oldest.get(line.flow, job.id))
            if _may_not_run_again(line):
                checked.once.add(line.flow)
    elif isinstance(line, FlowLine):
        checked.flows[line.flow] = line
    elif isinstance(line, LeftOut):
        checked.left_out.append(line)
    else:
        if line.end != checked.jobs:
            raise Refused(f"it counts {line.end} jobs, and {checked.jobs} are in the file")
        return line
    return None


def _job(line: JobLine, tasks: Mapping[str, str]) -> Job[Any]:
    job = job_of_line(line)
    return msgspec.structs.replace(job, task=tasks.get(job.task, job.task))


def import_file(
    broker: Broker,
    lines: Lines,
    checked: Checked,
    tasks: Mapping[str, str],
    *,
    dry_run: bool = False,
    progress: Callable[[int], None] = lambda _: None,
) -> Imported:
    """Store the jobs of a file that was checked."""
    done = Imported(left_out=list(checked.left_out))
    intake = _Intake(broker, done, dry_run=dry_run)
    flows: dict[str, list[Job[Any]]] = {}
    waiting: list[Job[Any]] = []
    for text in lines():
        line = parse_line(text)
        if not isinstance(line, JobLine):
            continue
        job = _job(line, tasks)
        why = _not_taken(line, job, checked, intake)
        if why is not None:
            done.left_out.append(LeftOut(left_out=job.id, task=job.task, why=why))
        elif line.flow is not None:
            flows.setdefault(line.flow, []).append(job)
        else:
            waiting.append(job)
            if len(waiting) >= AT_ONCE:
                intake.store(waiting)
                waiting.clear()
                progress(done.stored + done.known)
    intake.store(waiting)
    for flow_id, jobs in flows.items():
        intake.store_flow(checked.flows[flow_id], jobs, tasks)
        progress(done.stored + done.known)
    return done


def _not_taken(line: JobLine, job: Job[Any], checked: Checked, intake: _Intake) -> str | None:
    """Why a job of the file cannot be stored."""
    if line.flow is not None:
        return _flow_not_taken(line.flow, checked, intake)
    if _may_not_run_again(line):
        return "it ran when the file was written, and may run at most once"
    if is_sealed(job.body) and intake.is_too_old(job.id):
        return "its arguments are encrypted for its id, which is too old here"
    return None


def _flow_not_taken(flow_id: str, checked: Checked, intake: _Intake) -> str | None:
    """Why no job of a flow can be stored: it is stored as a whole."""
    flow = checked.flows.get(flow_id)
    if flow is None:
        return f"flow {flow_id} is not in the file"
    if not flow.untouched:
        return f"some jobs of its flow {flow_id} have ended; their results are not in the file"
    if sum(node.jobs for node in flow.nodes) != checked.members[flow_id]:
        return f"not all jobs of its flow {flow_id} are in the file"
    if flow_id in checked.once:
        return f"a job of its flow {flow_id} ran, and may run at most once"
    if flow_id in checked.oldest and intake.is_too_old(checked.oldest[flow_id]):
        return f"its flow {flow_id} is older than this store remembers ids"
    return None


def _may_not_run_again(line: JobLine) -> bool:
    return line.at_most_once and line.state is State.RUNNING


class _Intake:
    """Stores jobs in parts, and counts what became of them."""

    def __init__(self, broker: Broker, done: Imported, *, dry_run: bool) -> None:
        self._broker = broker
        # What is encrypted stays as it is, and is not encrypted once more.
        self._plain = broker.store if isinstance(broker, EncryptedBroker) else broker
        self._done = done
        self._dry_run = dry_run
        self._oldest = broker.clock.now() - broker.traits.retention + _MARGIN
        self._sealing = broker.traits.sealed_apps()

    def is_too_old(self, job_id: str) -> bool:
        """Whether the store would refuse the id, because it forgot the ids of its time."""
        made_at = time_of(job_id)
        return made_at is not None and made_at < self._oldest

    def store(self, jobs: Sequence[Job[Any]]) -> None:
        """Store jobs that are in no flow, the oldest first."""
        renamed = [self._renamed(job) for job in sorted(jobs, key=lambda job: job.id)]
        self._done.derived += len({job.id for job in renamed} - {job.id for job in jobs})
        for broker, part in self._by_broker(renamed):
            self._send(broker, part, None)

    def store_flow(self, line: FlowLine, jobs: list[Job[Any]], tasks: Mapping[str, str]) -> None:
        """Store a flow, all of it or nothing."""
        members: dict[str, list[str]] = {}
        for job in jobs:
            members.setdefault(_node_of(job), []).append(job.id)
        nodes = tuple(
            node_of_line(
                msgspec.structs.replace(node, task=tasks.get(node.task, node.task)),
                tuple(_runs(sorted(members.get(node.id, ())))),
            )
            for node in line.nodes
        )
        flow = Flow(
            id=line.flow,
            nodes=nodes,
            name=line.name,
            find=line.find,
            state=bytes(line.state),
            state_ttl=line.state_ttl,
        )
        check_flow(flow, jobs)
        sealed = any(is_sealed(job.body) for job in jobs)
        broker = self._plain if sealed else self._broker
        self._check_keys(broker, jobs)
        self._send(broker, sorted(jobs, key=lambda job: job.id), flow)

    def _renamed(self, job: Job[Any]) -> Job[Any]:
        if not self.is_too_old(job.id):
            return job
        bucket = (job.unique and job.unique.key) or job.key
        return msgspec.structs.replace(job, id=derived_id("import", job.id, bucket=bucket))

    def _by_broker(self, jobs: Sequence[Job[Any]]) -> Iterator[tuple[Broker, list[Job[Any]]]]:
        for broker, sealed in ((self._plain, True), (self._broker, False)):
            part = [job for job in jobs if is_sealed(job.body) == sealed]
            if part:
                self._check_keys(broker, part)
                yield broker, part

    def _check_keys(self, broker: Broker, jobs: Sequence[Job[Any]]) -> None:
        for job in jobs:
            readable = broker is self._plain and not is_sealed(job.body)
            if readable and job.app in self._sealing:
                raise Refused(f"job {job.id}: its app encrypts its jobs, and {NO_KEYS}")

    def _send(self, broker: Broker, jobs: list[Job[Any]], flow: Flow | None) -> None:
        done = self._done
        if self._dry_run:
            here = len(self._plain.get_many([job.id for job in jobs]))
            done.known += here
            done.stored += len(jobs) - here
            return
        answer = broker.enqueue(jobs, flow=flow)
        done.known += len(answer.known)
        done.standing += len(answer.standing)
        done.stored += len(jobs) - len(answer.known) - len(answer.standing)


def _node_of(job: Job[Any]) -> str:
    member = member_of(job.body)
    if member is None:
        raise Refused(f"job {job.id}: its options do not say where in its flow it is")
    return member.node


def _runs(ids: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Ids that follow on from one another: the first, and how many."""
    first, count = "", 0
    for job_id in ids:
        follows = first and prefix_of(job_id) == prefix_of(first)
        if follows and offset_of(job_id) == offset_of(first) + count:
            count += 1
            continue
        if count:
            yield first, count
        first, count = job_id, 1
    if count:
        yield first, count
