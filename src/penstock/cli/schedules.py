"""schedules: list schedules with their slots; show, pause, resume, run or remove one.

Reads and changes what the store keeps; no app is loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import Json, Reason, Store, person, with_options
from penstock.errors import Refused

if TYPE_CHECKING:
    from datetime import datetime

    from penstock.broker.protocol import Broker
    from penstock.operate.actions import Actions
    from penstock.schedules.schedule import Schedule

Name = Annotated[
    str | None, typer.Argument(metavar="NAME", help="The name of a schedule.", show_default=False)
]


@with_options
def schedules(
    name: Name = None,
    *,
    next: Annotated[  # noqa: A002  what a person types
        int | None, typer.Option("--next", help="Show this many future slots.", min=1, max=1000)
    ] = None,
    pause: Annotated[
        bool, typer.Option("--pause", help="Pause it: its slots are skipped.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Resume it with its next slot.")] = False,
    run_now: Annotated[
        bool, typer.Option("--run-now", help="Enqueue its job now; its slots are unchanged.")
    ] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Remove it; its jobs stay.")] = False,
    reason: Reason = "",
    store: Store,
    json: Json = False,
) -> None:
    """List schedules with their next slots, or show, pause, run or remove one.

    Example: penstock schedules nightly --next 10
    """
    from penstock.cli.store_choice import open_actions

    acts = {"pause": pause, "resume": resume, "run-now": run_now, "remove": remove}
    chosen = [option for option, on in acts.items() if on]
    if len(chosen) + (next is not None) > 1:
        raise Refused("give only one of --next, --pause, --resume, --run-now and --remove")
    if name is None and (chosen or next is not None):
        raise Refused("name the schedule: `penstock schedules` lists them")
    with open_actions(store, person()) as (broker, actions):
        if name is None:
            _list(broker, json=json)
        elif chosen:
            _act(actions, name, chosen[0], reason, json=json)
        else:
            _one(broker, name, next or 5, json=json)


def _list(broker: Broker, *, json: bool) -> None:
    import rich.text

    from penstock.cli import output
    from penstock.operate.time_text import relative_time
    from penstock.schedules.schedule import Schedule
    from penstock.schedules.status import cron_in_words, schedule_json, slots_to_come, state_of

    now, kept = broker.clock.now(), broker.records(Schedule)
    if json:
        output.print_json_lines(schedule_json(schedule, now, 1) for schedule in kept)
        return
    if not kept:
        output.print_note("there are no schedules; a worker adds those of its code when it starts")
        return
    table = output.table("schedule", "task", "times", "state", "next", "last")
    for schedule in kept:
        following = slots_to_come(schedule, now, 1)
        times = "\n".join(filter(None, (schedule.times, cron_in_words(schedule))))
        words = (
            *(schedule.name, schedule.job.task, times, state_of(schedule, now)),
            relative_time(following[0].timestamp(), now) if following else "",
            _last(schedule, now),
        )
        table.add_row(*(rich.text.Text(word) for word in words))
    output.console().print(table)


def _one(broker: Broker, name: str, count: int, *, json: bool) -> None:
    from penstock.cli import output
    from penstock.operate.sentences import MISSED_TEXTS, OVERLAP_TEXTS
    from penstock.schedules.registered import expected
    from penstock.schedules.status import cron_in_words, schedule_json, slots_to_come, state_of

    now, schedule = broker.clock.now(), expected(broker, name)
    if json:
        output.print_json(schedule_json(schedule, now, count))
        return
    origin = "from a worker's code" if schedule.from_code else "added at run time"
    output.print_text(f"{name}: {schedule.job.task} at {schedule.times}, {origin}")
    if (words := cron_in_words(schedule)) is not None:
        output.print_text(f"{words}, in the time zone {schedule.zone}")
    output.print_text(f"state: {state_of(schedule, now)}")
    missed = MISSED_TEXTS.get(schedule.missed, schedule.missed)
    output.print_text(f"missed slots ({schedule.missed}): {missed}")
    overlap = OVERLAP_TEXTS.get(schedule.overlap, schedule.overlap)
    output.print_text(f"overlap ({schedule.overlap}): {overlap}")
    if schedule.last is not None:
        output.print_text(
            f"last: {_last(schedule, now)}, slot {schedule.moment(schedule.last.slot)}"
        )
    for line in slot_lines(slots_to_come(schedule, now, count)):
        output.print_text(line)


def slot_lines(slots: list[datetime]) -> list[str]:
    """A line for each slot with its UTC offset; a change of the offset is marked."""
    from penstock.schedules.status import moved_by

    lines: list[str] = []
    before: datetime | None = None
    for slot in slots:
        line = f"  {slot:%a %Y-%m-%d %H:%M:%S%z} {slot:%Z}"
        if before is not None and (moved := moved_by(before, slot)):
            line += f"   clocks go {'forward' if moved > 0 else 'back'} {abs(moved):g} min"
        lines.append(line)
        before = slot
    return lines


def _act(actions: Actions, name: str, act: str, reason: str, *, json: bool) -> None:
    from penstock.cli import output
    from penstock.operate.sentences import SCHEDULE_TEXTS

    verb = act.removesuffix("-now")
    job = actions.act_on_schedule(verb, name, reason)
    if json:
        output.print_json({"name": name, "done": act, **({} if job is None else {"job": job})})
    else:
        output.print_text(SCHEDULE_TEXTS[verb].format(name=name, job=job))


def _last(schedule: Schedule, now: float) -> str:
    from penstock.operate.time_text import relative_time

    return (
        ""
        if schedule.last is None
        else f"{schedule.last.says}, {relative_time(schedule.last.at, now)}"
    )
