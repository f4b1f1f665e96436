"""Import what waits in another system: each of its jobs becomes one of a task of the app.

The id is derived from the other system's, so that a second import stores nothing. What cannot be
read, or has no task here, stays where it is, with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.enqueue.ids import derived_id
from penstock.errors import Refused

if TYPE_CHECKING:
    from penstock.app.app import App
    from penstock.brokers.other_queues import OtherJob, OtherQueues
    from penstock.job import Job
    from penstock.task.task import Task

ORIGIN = "imported_from"  # the header that names the system and its id
_STEP = 1e-6  # seconds between jobs that were in a line: they stay in their order


class StayedBehind(msgspec.Struct, frozen=True):
    """Jobs that were not imported, counted by their name there and the reason."""

    name: str
    why: str
    jobs: int


class ImportedQueues(msgspec.Struct):
    """What became of the jobs of another system, or, in a dry run, what would."""

    stored: int = 0
    known: int = 0  # were here before
    standing: int = 0  # another job holds their unique key
    removed: int = 0  # there
    taken: int = 0  # a worker there had taken them meanwhile: they run in both
    tasks: dict[str, int] = {}  # how many there are for each task here
    stayed: list[StayedBehind] = []
    notes: list[str] = []


def import_queues(
    app: App,
    system: str,
    queues: OtherQueues,
    tasks: Mapping[str, str],
    *,
    dry_run: bool = False,
    move: bool = False,
    progress: Callable[[int], None] = lambda _: None,
) -> ImportedQueues:
    """Store what waits there. With `move` what is stored is taken away there, part by part."""
    mapping = _Mapping(app, tasks)
    done, stayed = ImportedQueues(), Counter[tuple[str, str]]()
    number, begun = 0, app.broker.clock.now()
    for part in queues.parts():
        jobs: list[Job[Any]] = []
        ours: list[OtherJob] = []
        for other in part:
            try:
                job = mapping.job(system, other, begun + number * _STEP)
            except Refused as error:
                stayed[other.name, str(error)] += 1
                continue
            number += 1
            jobs.append(job)
            ours.append(other)
            done.tasks[job.task] = done.tasks.get(job.task, 0) + 1
        _store(app, jobs, done, dry_run=dry_run)
        if move and not dry_run:
            # Not before they are stored: killed in between, the next import finds them known.
            taken = queues.remove(ours)
            done.removed += len(ours) - len(taken)
            done.taken += len(taken)
        progress(number)
    done.stayed = [StayedBehind(*names, jobs) for names, jobs in stayed.most_common()]
    done.notes = queues.notes()
    return done


def _store(app: App, jobs: list[Job[Any]], done: ImportedQueues, *, dry_run: bool) -> None:
    if dry_run:
        known, standing = len(app.broker.get_many([job.id for job in jobs])), 0
    else:
        with app.sending(jobs) as sent:
            answer = app.broker.enqueue(sent)
        known, standing = len(answer.known), len(answer.standing)
    done.known += known
    done.standing += standing
    done.stored += len(jobs) - known - standing


class _Mapping:
    """Which task here a job there belongs to."""

    def __init__(self, app: App, tasks: Mapping[str, str]) -> None:
        self._app = app
        self._tasks: dict[str, Task[..., Any]] = {}
        for old, new in tasks.items():
            task = app.task_named(new)
            if task is None:
                from penstock.operate.actions import unknown_task

                raise Refused(f"--task {old}={new}: {unknown_task(new, app)}")
            self._tasks[old] = task

    def job(self, system: str, other: OtherJob, now: float) -> Job[Any]:
        """The job, as it is stored; refused where there is no task for it, or it does not fit."""
        if other.refused is not None:
            raise Refused(other.refused)
        task = self._task(other)
        origin = {ORIGIN: f"{system} {other.id}"}
        made = task.options(headers=origin).job(*other.args, **other.kwargs)
        return msgspec.structs.replace(
            made,
            id=derived_id("import", system, other.id),
            run_at=now if other.run_at is None else other.run_at,
            expires_at=other.expires_at,
            owner=None,
            given=None,
            provisional=None,
        )

    def _task(self, other: OtherJob) -> Task[..., Any]:
        for name in (f"{other.queue}/{other.name}", other.name):
            if name in self._tasks:
                return self._tasks[name]
        # shop.tasks.send there is shop.tasks:send here.
        for name in (other.name, ":".join(other.name.rpartition(".")[::2])):
            if (task := self._app.task_named(name)) is not None:
                return task
        raise Refused(f"no task here has this name: give --task {other.name}=module:function")
