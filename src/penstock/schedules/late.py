"""Late jobs: calls that no store knows as a job before their time (`options(late=True)`).

Such a call is kept as a schedule of one slot, with a name of its own. Its job has an id that
follows from that name, so that there is one handle from the beginning; whoever decides the slot
makes the job, and whoever next reads the schedules removes what is over.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.enqueue.handle import Handle
from penstock.errors import Refused
from penstock.schedules.schedule import LATE, job_for, slot_id
from penstock.schedules.timetable import put
from penstock.task.options import Prepared

if TYPE_CHECKING:
    from collections.abc import Mapping

_SOONEST = 2.0  # seconds: what is due before that is stored as a job at once


def enqueue_late(
    task: Prepared[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Handle[Any]:
    """Keep the call until its time."""
    app, chosen = task.task.app, task.chosen
    if chosen.connection is not None or chosen.unique is not None:
        raise Refused("late=True joins no transaction and takes no unique key: leave them out")
    broker = app.broker
    now = broker.clock.now()
    at = now + (chosen.delay or 0.0) if chosen.at is None else chosen.at
    plain = Prepared(task.task, msgspec.structs.replace(chosen, delay=None, at=None, late=False))
    if at < now + _SOONEST:
        return plain.enqueue(*args, **kwargs)
    app.know_time()
    schedule = app.schedules.one_call(
        f"{LATE}{app.ids.first()}", plain, datetime.fromtimestamp(at, UTC), args, kwargs
    )
    kept = put(broker, schedule)
    slot = schedule.at or at
    if kept.decided_until >= slot:  # the call took so long that its time is over
        app.enqueue([job_for(schedule, slot, broker.clock.now())])
    key = schedule.job.key
    return Handle(app, slot_id(schedule.name, slot, schedule.name if key is None else key))
