"""Cancel, retry, delete: by ids, by the filter that `find` takes, or a whole flow.

A filter may mean a million jobs: the number is shown and asked about first, and then it is done
page by page, each page one transaction. What is interrupted is done as far as it got, and can be
repeated.
"""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from penstock.cli.options import Json, Reason, Store, Yes, no_stray_options, person, with_options
from penstock.errors import Refused

if TYPE_CHECKING:
    from penstock.broker.protocol import Broker
    from penstock.operate.actions import Actions
    from penstock.operate.bulk_actions import BulkVerb

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="ID|FILTER",
        help="Ids of jobs, or a filter as `penstock find` takes it.",
        show_default=False,
    ),
]
WholeFlow = Annotated[
    str | None,
    typer.Option(
        "--flow",
        metavar="ID",
        help="All jobs of a flow, by its id or that of any of them, in one step.",
        show_default=False,
    ),
]


class Choice(NamedTuple):
    """Which jobs are meant, and why."""

    words: Words = None
    flow: WholeFlow = None
    reason: Reason = ""
    yes: Yes = False


@with_options
def cancel(choice: Choice, *, store: Store, json: Json = False) -> None:
    """End jobs that have not ended; a running one is told to stop.

    Example: penstock cancel task:mail:send tag.tenant:a --yes
    """
    _act("cancel", choice, store, json=json)


@with_options
def retry(choice: Choice, *, store: Store, json: Json = False) -> None:
    """Run failed and cancelled jobs again, and scheduled ones now.

    Example: penstock retry task:mail:send state:failed since:2h
    """
    _act("retry", choice, store, json=json)


@with_options
def copy(
    id: Annotated[str, typer.Argument(metavar="ID", help="A job that has ended.")],
    *,
    args: Annotated[
        str | None,
        typer.Option(
            "--args",
            metavar="JSON",
            help="All of its arguments, as a JSON object.",
            show_default="those of the job",
        ),
    ] = None,
    reason: Reason = "",
    store: Store,
    json: Json = False,
) -> None:
    """Run a job that has ended once more, as a new job.

    Example: penstock copy 0190a6c4-5e1f-7000-8000-00000a1b2000 --args '{"order": 4711}'
    """
    from penstock.cli import output
    from penstock.cli.store_choice import acting, load
    from penstock.enqueue.ids import parse_id

    with acting(store, person()) as (_, actions):
        made = actions.copy(id, None if store.app is None else load(store.app), args, reason)
        if json:
            output.put_json({"id": made, "copy_of": parse_id(id)})
        else:
            output.say(made)


@with_options
def delete(choice: Choice, *, store: Store, json: Json = False) -> None:
    """Forget jobs that are not running; their history rows stay.

    Example: penstock delete state:failed until:30d
    """
    _act("delete", choice, store, json=json)


def _act(verb: str, choice: Choice, store: Store, *, json: bool) -> None:
    from penstock.cli.store_choice import acting
    from penstock.operate.bulk_actions import ACTS

    words = no_stray_options(choice.words or [])
    with acting(store, person()) as (broker, actions):
        if choice.flow is not None:
            if words:
                raise Refused("--flow means all jobs of a flow: leave out other ids and filters")
            _whole_flow(actions, ACTS[verb], choice.flow, choice.reason, json=json)
            return
        if not words:
            raise Refused(f"{verb} what? Give ids, or a filter such as state:failed task:mail:send")
        filters = [word for word in words if ":" in word]
        if not filters:
            _by_ids(broker, actions, ACTS[verb], words, choice.reason, json=json)
        elif len(filters) < len(words):
            raise Refused("ids and a filter do not go together: give one of the two")
        else:
            _by_filter(broker, actions, ACTS[verb], choice, json=json)


def _whole_flow(actions: Actions, verb: BulkVerb, flow: str, reason: str, *, json: bool) -> None:
    from penstock.cli import output
    from penstock.operate.sentences import acted_on_flow

    flow, done = actions.act_on_flow(verb.name, flow, reason)
    if json:
        output.put_json({"verb": verb.name, "flow": flow, "done": done})
    else:
        output.say(acted_on_flow(verb, flow, done))


def _by_ids(
    broker: Broker, actions: Actions, verb: BulkVerb, ids: list[str], reason: str, *, json: bool
) -> None:
    from penstock.cli import output
    from penstock.operate.sentences import acted, left_as_it_is

    result = actions.act(verb.name, ids, reason)
    done, left = result.done, result.left
    if json:
        output.put_json({"verb": verb.name, "done": done, "left": left})
    else:
        for job_id in done:
            job = broker.get(job_id)
            output.say(acted(verb, job_id, running=job is not None and job.state == "running"))
        for job_id in left:
            output.complain(left_as_it_is(job_id, broker.why(job_id).sentence))
    if left:
        raise typer.Exit(1)


def _by_filter(
    broker: Broker, actions: Actions, verb: BulkVerb, choice: Choice, *, json: bool
) -> None:
    from penstock.cli import output
    from penstock.enqueue.ids import Ids
    from penstock.operate.bulk_actions import Operation, act_on_pages, meant_by, pages
    from penstock.operate.sentences import jobs_text

    words, reason, yes = choice.words or [], choice.reason, choice.yes
    wanted = meant_by(words, verb, actions.now)
    if json and not yes:
        raise Refused("--json with a filter asks nobody: say --yes as well")
    ticker = output.Ticker(quiet=json)
    total = 0
    for ids in pages(broker, wanted):
        total += len(ids)
        ticker.say(f"{total:,} jobs match")
    ticker.done()
    if not yes and total:
        sys.stderr.write(f"{total:,} {'job matches' if total == 1 else 'jobs match'}. ")
        typer.confirm(f"{verb.name} {'it' if total == 1 else 'them'}?", abort=True, err=True)
    operation = Operation(
        id=Ids(actions.clock).first(),
        verb=verb.name,
        filter=shlex.join(words),
        author=actions.author,
        reason=reason,
    )
    state = "cancelled"  # of one that was interrupted: done as far as it got
    try:
        for _ in act_on_pages(actions, operation, wanted, broker.find):
            ticker.say(f"{operation.done:,} of {total:,} {verb.done}")
        state = "done"
    finally:
        if operation.done:
            actions.record_operation(operation.id, operation.says(state), reason)
    ticker.done()
    if json:
        output.put_json({"verb": verb.name, "matched": total, "count": operation.done})
    else:
        output.say(f"{jobs_text(operation.done)} {verb.done}")
