"""Cancel, retry, delete: by ids, by the filter that `find` takes, or a whole flow.

A filter may mean a million jobs: the number is shown and asked about first, and then it is done
page by page, each page one transaction. What is interrupted is done as far as it got, and can be
repeated.
"""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import (
    AppTarget,
    Json,
    Profile,
    Reason,
    Url,
    Yes,
    author,
    no_stray_options,
)
from penstock.errors import Refused

if TYPE_CHECKING:
    from penstock.broker.protocol import Broker
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


def cancel(
    words: Words = None,
    *,
    flow: WholeFlow = None,
    reason: Reason = "",
    yes: Yes = False,
    url: Url = None,
    profile: Profile = None,
    app: AppTarget = None,
    json: Json = False,
) -> None:
    """End jobs that have not ended; a running one is told to stop.

    Example: penstock cancel task:mail:send tag.tenant:a --yes
    """
    from penstock.cli.store_choice import opened
    from penstock.operate.bulk_actions import CANCEL

    with opened(url, profile, app) as broker:
        _act(broker, CANCEL, words or [], reason, flow=flow, yes=yes, json=json)


def retry(
    words: Words = None,
    *,
    flow: WholeFlow = None,
    reason: Reason = "",
    yes: Yes = False,
    url: Url = None,
    profile: Profile = None,
    app: AppTarget = None,
    json: Json = False,
) -> None:
    """Run failed and cancelled jobs again, and scheduled ones now.

    Example: penstock retry task:mail:send state:failed since:2h
    """
    from penstock.cli.store_choice import opened
    from penstock.operate.bulk_actions import RETRY

    with opened(url, profile, app) as broker:
        _act(broker, RETRY, words or [], reason, flow=flow, yes=yes, json=json)


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
    url: Url = None,
    profile: Profile = None,
    app: AppTarget = None,
    json: Json = False,
) -> None:
    """Run a job that has ended once more, as a new job.

    Example: penstock copy 0190a6c4-5e1f-7000-8000-00000a1b2000 --args '{"order": 4711}'
    """
    from penstock.cli import output
    from penstock.cli.store_choice import load, opened
    from penstock.enqueue.copy import enqueue_copy
    from penstock.enqueue.ids import parse_id

    with opened(url, profile, app) as broker:
        owner = None if app is None else load(app)
        made = enqueue_copy(broker, parse_id(id), (author(), reason), args, owner)
        if json:
            output.put_json({"id": made, "copy_of": parse_id(id)})
        else:
            output.say(made)


def delete(
    words: Words = None,
    *,
    flow: WholeFlow = None,
    reason: Reason = "",
    yes: Yes = False,
    url: Url = None,
    profile: Profile = None,
    app: AppTarget = None,
    json: Json = False,
) -> None:
    """Forget jobs that are not running; their history rows stay.

    Example: penstock delete state:failed until:30d
    """
    from penstock.cli.store_choice import opened
    from penstock.operate.bulk_actions import DELETE

    with opened(url, profile, app) as broker:
        _act(broker, DELETE, words or [], reason, flow=flow, yes=yes, json=json)


def _act(
    broker: Broker,
    verb: BulkVerb,
    words: list[str],
    reason: str,
    *,
    flow: str | None,
    yes: bool,
    json: bool,
) -> None:
    from penstock.enqueue.ids import parse_id

    no_stray_options(words)
    if flow is not None:
        if words:
            raise Refused("--flow means all jobs of a flow: leave out other ids and filters")
        _whole_flow(broker, verb, parse_id(flow), reason, json=json)
        return
    if not words:
        raise Refused(
            f"{verb.name} what? Give ids, or a filter such as state:failed task:mail:send"
        )
    filters = [word for word in words if ":" in word]
    if not filters:
        _by_ids(broker, verb, [parse_id(word) for word in words], reason, json=json)
    elif len(filters) < len(words):
        raise Refused("ids and a filter do not go together: give one of the two")
    else:
        _by_filter(broker, verb, words, reason, yes=yes, json=json)


def _whole_flow(broker: Broker, verb: BulkVerb, wanted: str, reason: str, *, json: bool) -> None:
    from penstock.cli import output
    from penstock.flows.status import flow_with

    found = flow_with(broker, wanted)
    if found is None:
        raise Refused(f"{wanted} is no flow that is stored here, and no job of one")
    done = broker.act(verb.name, (), author(), reason, flow=found.id)
    if json:
        output.put_json({"verb": verb.name, "flow": found.id, "done": done})
        return
    several = "job" if len(done) == 1 else "jobs"
    told = ", or told to stop" if verb.name == "cancel" else ""
    output.say(f"flow {found.id}: {len(done):,} {several} {verb.done}{told}")


def _by_ids(broker: Broker, verb: BulkVerb, ids: list[str], reason: str, *, json: bool) -> None:
    from penstock.cli import output

    done = broker.act(verb.name, ids, author(), reason)
    left = [job_id for job_id in dict.fromkeys(ids) if job_id not in set(done)]
    if json:
        output.put_json({"verb": verb.name, "done": done, "left": left})
    else:
        for job_id in done:
            state = broker.get(job_id)
            told = verb.name == "cancel" and state is not None and state.state == "running"
            output.say(f"{job_id} {'is running and was told to stop' if told else verb.done}")
        for job_id in left:
            output.complain(f"{job_id} left as it is. {broker.why(job_id).sentence}")
    if left:
        raise typer.Exit(1)


def _by_filter(
    broker: Broker, verb: BulkVerb, words: list[str], reason: str, *, yes: bool, json: bool
) -> None:
    from penstock.cli import output
    from penstock.enqueue.ids import Ids
    from penstock.operate.audit import OPERATION
    from penstock.operate.bulk_actions import meant_by, pages

    wanted = meant_by(words, verb, broker.clock.now())
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
    done, id = 0, Ids(broker.clock).first()
    try:
        for ids in pages(broker, wanted):
            part_of = f"{OPERATION} {id}"
            done += len(broker.act(verb.name, ids, author(), reason, part_of=part_of))
            ticker.say(f"{done:,} of {total:,} {verb.done}")
    finally:
        if done:  # of one that was interrupted, as far as it got
            said = {"verb": verb.name, "filter": shlex.join(words), "jobs": done}
            broker.audit(OPERATION, author(), reason, {OPERATION: id, **said})
    ticker.done()
    if json:
        output.put_json({"verb": verb.name, "matched": total, "count": done})
    else:
        output.say(f"{done:,} {'job' if done == 1 else 'jobs'} {verb.done}")
