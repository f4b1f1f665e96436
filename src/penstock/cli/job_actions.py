"""cancel, retry, delete (by ids, by filter, or a whole flow), and copy.

By filter the number of jobs is shown and confirmed first; then they are changed page by page, each
page in one transaction.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from penstock.cli.options import (
    Json,
    Reason,
    Store,
    Yes,
    person,
    reject_unknown_options,
    with_options,
)
from penstock.errors import Refused

if TYPE_CHECKING:
    from penstock.broker.protocol import Broker
    from penstock.operate.actions import ActionResult, Actions
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
        help="All jobs of a flow, in one transaction; its id, or that of one of its jobs.",
        show_default=False,
    ),
]


class Choice(NamedTuple):
    """The jobs to act on, and the reason."""

    words: Words = None
    flow: WholeFlow = None
    reason: Reason = ""
    yes: Yes = False


@with_options
def cancel(choice: Choice, *, store: Store, json: Json = False) -> None:
    """Cancel jobs that have not ended. A running job is asked to stop.

    Example: penstock cancel task:mail:send tag.tenant:a --yes
    """
    _act("cancel", choice, store, json=json)


@with_options
def retry(
    choice: Choice,
    *,
    secret: Annotated[
        list[str] | None,
        typer.Option(
            "--secret",
            metavar="NAME",
            help="A secret argument, deleted when the job ended; its value is asked for.",
            show_default=False,
        ),
    ] = None,
    secret_file: Annotated[
        list[Path] | None,
        typer.Option(
            "--secret-file",
            metavar="FILE",
            help="Read the value from this file; one for each --secret, in the same order.",
            show_default=False,
        ),
    ] = None,
    store: Store,
    json: Json = False,
) -> None:
    """Run failed and cancelled jobs again, and scheduled jobs now.

    Example: penstock retry task:mail:send state:failed since:2h
    """
    _act("retry", choice, store, json=json, secrets=_secrets(secret or [], secret_file or []))


def _secrets(names: list[str], files: list[Path]) -> dict[str, str]:
    """Values of secret arguments: from files, and those without a file from whoever is asked."""
    if len(files) > len(names):
        raise Refused("--secret-file has the value of a --secret: name the argument")
    values: dict[str, str] = {}
    for name, file in zip_longest(names, files):
        if name in values:
            raise Refused(f"--secret {name} is given twice")
        if file is None:
            values[name] = typer.prompt(name, hide_input=True, err=True)
            continue
        try:
            values[name] = file.read_text().removesuffix("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise Refused(f"--secret-file {file} cannot be read: {error}") from None
    return values


@with_options
def copy(
    id: Annotated[str, typer.Argument(metavar="ID", help="A job that has ended.")],
    *,
    args: Annotated[
        str | None,
        typer.Option(
            "--args",
            metavar="JSON",
            help="All arguments of the copy, as a JSON object.",
            show_default="the same",
        ),
    ] = None,
    reason: Reason = "",
    store: Store,
    json: Json = False,
) -> None:
    """Enqueue a copy of a job that has ended.

    Example: penstock copy 0190a6c4-5e1f-7000-8000-00000a1b2000 --args '{"order": 4711}'
    """
    from penstock.cli import output
    from penstock.cli.store_choice import import_app, open_actions
    from penstock.enqueue.ids import parse_id

    with open_actions(store, person()) as (_, actions):
        made = actions.copy(id, None if store.app is None else import_app(store.app), args, reason)
        if json:
            output.print_json({"id": made, "copy_of": parse_id(id)})
        else:
            output.print_text(made)


@with_options
def delete(choice: Choice, *, store: Store, json: Json = False) -> None:
    """Delete jobs that are not running. Their history stays.

    Example: penstock delete state:failed until:30d
    """
    _act("delete", choice, store, json=json)


def _act(
    verb: str,
    choice: Choice,
    store: Store,
    *,
    json: bool,
    secrets: Mapping[str, str] | None = None,
) -> None:
    from penstock.cli.store_choice import open_actions
    from penstock.operate.bulk_actions import BULK_VERBS

    words = reject_unknown_options(choice.words or [])
    filters = [word for word in words if ":" in word]
    if secrets and (choice.flow is not None or filters):
        raise Refused("--secret is for jobs that are named by their ids")
    with open_actions(store, person()) as (broker, actions):
        if choice.flow is not None:
            if words:
                raise Refused("--flow acts on a whole flow: leave out ids and filters")
            _whole_flow(actions, BULK_VERBS[verb], choice.flow, choice.reason, json=json)
            return
        if not words:
            raise Refused(f"{verb} what? Give ids, or a filter such as state:failed task:mail:send")
        if not filters:
            result = actions.act(verb, words, choice.reason, secrets=secrets)
            _tell(broker, actions, BULK_VERBS[verb], result, json=json)
        elif len(filters) < len(words):
            raise Refused("give ids or a filter, not both")
        else:
            _by_filter(broker, actions, BULK_VERBS[verb], choice, json=json)


def _whole_flow(actions: Actions, verb: BulkVerb, flow: str, reason: str, *, json: bool) -> None:
    from penstock.cli import output
    from penstock.operate.sentences import flow_acted_text, secrets_gone_count

    flow, result = actions.act_on_flow(verb.name, flow, reason)
    done, gone = result.done, result.secrets_gone
    if json:
        output.print_json({"verb": verb.name, "flow": flow, "done": done} | _gone_json(verb, gone))
    else:
        output.print_text(flow_acted_text(verb, flow, done) + secrets_gone_count(len(gone)))


def _gone_json(verb: BulkVerb, gone: list[str] | int) -> dict[str, Any]:
    """Only a retry says which jobs have lost their secrets."""
    return {"secrets_gone": gone} if verb.name == "retry" else {}


def _tell(
    broker: Broker, actions: Actions, verb: BulkVerb, result: ActionResult, *, json: bool
) -> None:
    from penstock.cli import output
    from penstock.operate.sentences import job_acted_text, left_unchanged_text, secrets_gone_text

    done, left, gone = result.done, result.left, result.secrets_gone
    if json:
        output.print_json({"verb": verb.name, "done": done, "left": left} | _gone_json(verb, gone))
    else:
        for job_id in done:
            job = broker.get(job_id)
            output.print_text(
                job_acted_text(verb, job_id, running=job is not None and job.state == "running")
            )
        for job_id in left:
            if job_id in gone:
                output.print_error(secrets_gone_text(job_id, actions.gone_secrets(job_id)))
            else:
                output.print_error(left_unchanged_text(job_id, broker.why(job_id).sentence))
    if left:
        raise typer.Exit(1)


def _by_filter(
    broker: Broker, actions: Actions, verb: BulkVerb, choice: Choice, *, json: bool
) -> None:
    from penstock.cli import output
    from penstock.enqueue.ids import Ids
    from penstock.operate.bulk_actions import Operation, act_on_pages, parse_bulk_filter
    from penstock.operate.find_pages import find_pages
    from penstock.operate.sentences import jobs_text, secrets_gone_count

    words, reason, yes = choice.words or [], choice.reason, choice.yes
    filter = parse_bulk_filter(words, verb, actions.now)
    if json and not yes:
        raise Refused("--json cannot ask before it changes jobs by filter: add --yes")
    progress_line = output.ProgressLine(quiet=json)
    total = 0
    for page in find_pages(broker.find, filter):
        total += len(page.jobs)
        progress_line.show(f"{total:,} jobs match")
    progress_line.clear()
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
    state = "cancelled"  # if it is interrupted
    try:
        for _ in act_on_pages(actions, operation, filter, broker.find):
            progress_line.show(f"{operation.done:,} of {total:,} {verb.done}")
        state = "done"
    finally:
        if operation.done:
            actions.record_operation(operation.id, operation.audit_data(state), reason)
    progress_line.clear()
    if json:
        numbers = {"verb": verb.name, "matched": total, "count": operation.done}
        output.print_json(numbers | _gone_json(verb, operation.secrets_gone))
    else:
        gone = secrets_gone_count(operation.secrets_gone)
        output.print_text(f"{jobs_text(operation.done)} {verb.done}{gone}")
