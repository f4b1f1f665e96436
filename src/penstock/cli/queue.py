"""queue: show the options of queues; set or reset an override; create or drop a queue."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import Json, Reason, Store, Yes, person, with_options
from penstock.errors import Refused

if TYPE_CHECKING:
    from penstock.broker.protocol import Broker
    from penstock.broker.queue_options import QueueOptions
    from penstock.operate.actions import Actions


class QueueVerb(StrEnum):
    """What to do."""

    SHOW = "show"
    SET = "set"
    RESET = "reset"
    CREATE = "create"
    DROP = "drop"


@with_options
def queue(
    verb: Annotated[
        QueueVerb,
        typer.Argument(metavar="show|set|reset|create|drop", help="What to do."),
    ] = QueueVerb.SHOW,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A queue's name.", show_default=False)
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="OPTION=VALUE...",
            help="For set and create, as timeout=60s or retry=limit=5,delay=30s; for reset, names.",
            show_default=False,
        ),
    ] = None,
    *,
    app_name: Annotated[
        str, typer.Option("--app-name", help="The program whose queue it is, if it has a name.")
    ] = "",
    yes: Yes = False,
    cancel_running: Annotated[
        bool, typer.Option("--cancel-running", help="drop: cancel its jobs that run.")
    ] = False,
    reason: Reason = "",
    store: Store,
    json: Json = False,
) -> None:
    """Show queues with their options; set or reset an override; create or drop a queue.

    An override stands until it is reset, whatever is deployed. Drop deletes the queue's jobs and
    rules; its history stays.

    Example: penstock queue set imports timeout=10m running=4 --reason "big files today"
    """
    from penstock.cli import output
    from penstock.cli.store_choice import open_actions
    from penstock.operate.queue_settings import (
        options_of_queues,
        parse_option_words,
        queue_options_json,
    )

    words = options or []
    if name is None and verb is not QueueVerb.SHOW:
        raise Refused(f"queue {verb} what? Name a queue")
    if words and verb in {QueueVerb.SHOW, QueueVerb.DROP}:
        raise Refused(f"queue {verb} takes no options: leave out {words[0]}")
    with open_actions(store, person()) as (broker, actions):
        if verb is QueueVerb.SHOW:
            _show(broker, name, json=json)
            return
        queue = (name or "", app_name)
        if verb is QueueVerb.DROP:
            _confirm_drop(broker, *queue, yes=yes)
            _drop(actions, queue, reason, cancel=cancel_running, json=json)
            return
        if verb is QueueVerb.RESET:
            record = actions.reset_queue(*queue, words, reason)
        else:
            known = [each for each in options_of_queues(broker, name) if each.app == app_name]
            if known and verb is QueueVerb.CREATE:
                raise Refused(f"queue {name} exists; change it with `penstock queue set`")
            if not words and verb is QueueVerb.SET:
                raise Refused("queue set what? Give options, as timeout=60s")
            if verb is QueueVerb.SET:
                _warn_of_unknown(broker, name or "")
            record = actions.set_queue(*queue, parse_option_words(words), reason)
    if json:
        output.print_json(queue_options_json(record))
        return
    _print(record)


def _warn_of_unknown(broker: Broker, name: str) -> None:
    from penstock.cli import output
    from penstock.operate.unknown_names import unknown_queue_text

    if unknown := unknown_queue_text(broker, name):
        output.print_note(f"{unknown}; the options apply as soon as there is one", "yellow")


def _confirm_drop(broker: Broker, name: str, app: str, *, yes: bool) -> None:
    import sys

    from penstock.operate.sentences import jobs_text
    from penstock.operate.unknown_names import unknown_queue_text

    if yes:
        return
    if unknown := unknown_queue_text(broker, name):
        raise Refused(unknown)
    counts = [count for count in broker.count() if (count.queue, count.app) == (name, app)]
    if jobs := sum(count.total + count.failed for count in counts):
        sys.stderr.write(f"queue {name} has {jobs_text(jobs)}. ")
        typer.confirm(f"delete {'it' if jobs == 1 else 'them'}?", abort=True, err=True)


def _drop(
    actions: Actions, queue: tuple[str, str], reason: str, *, cancel: bool, json: bool
) -> None:
    import msgspec

    from penstock.cli import output
    from penstock.operate.sentences import jobs_text

    name, app = queue
    dropped = actions.drop_queue(name, app, "cancel" if cancel else "refuse", reason)
    if json:
        output.print_json({"queue": name, "app": app, **msgspec.structs.asdict(dropped)})
        return
    output.print_text(
        f"queue {name} is dropped: {jobs_text(dropped.deleted)} deleted, {dropped.cancelled:,} of"
        " them cancelled before; its history stays"
    )


def _show(broker: Broker, name: str | None, *, json: bool) -> None:
    from penstock.cli import output
    from penstock.operate.queue_settings import options_of_queues, queue_options_json

    records = options_of_queues(broker, name)
    if json:
        output.print_json_lines(queue_options_json(record) for record in records)
        return
    if not records:
        which = "no queue has options" if name is None else f"queue {name} has no options"
        output.print_note(f"{which} of its own: its jobs go by their tasks")
    for record in records:
        _print(record)


def _print(record: QueueOptions) -> None:
    from penstock.cli import output
    from penstock.operate.time_text import time_text

    app = f" of the program {record.app}" if record.app else ""
    output.print_text(f"queue {record.queue}{app}: {record.effective.text}")
    if record.declared is not None:
        since = time_text(record.declared_at)
        output.print_text(f"  declared since {since} by code {record.code}: {record.declared.text}")
    if record.override is not None:
        why = f": {record.reason}" if record.reason else ""
        output.print_text(
            f"  override by {record.author or 'somebody'} since {time_text(record.set_at)}"
            f" ({record.override.text}){why}"
        )
