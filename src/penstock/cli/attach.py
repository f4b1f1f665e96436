"""attach: tables of the user's own as queues, by triggers. Loads no app."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import Json, Store, with_options
from penstock.errors import Refused

if TYPE_CHECKING:
    from penstock.brokers.attached import AttachedTable


def _column(name: str, meaning: str) -> typer.models.OptionInfo:
    return typer.Option(name, metavar="COLUMN", help=meaning, show_default=False)


@with_options
def attach(
    table: Annotated[
        str | None,
        typer.Argument(metavar="TABLE", help="As SQL writes it: shop.orders.", show_default=False),
    ] = None,
    *,
    task: Annotated[
        str | None,
        typer.Option("--task", metavar="NAME", help="What the jobs call.", show_default=False),
    ] = None,
    queue: Annotated[str, typer.Option("--queue", metavar="NAME", help="Where they wait.")] = (
        "default"
    ),
    arg: Annotated[
        list[str] | None,
        typer.Option(
            "--arg",
            metavar="NAME=COLUMN",
            help="An argument, and its column; may be repeated. None: every column is one.",
            show_default=False,
        ),
    ] = None,
    key: Annotated[str | None, _column("--key", "What the job belongs to.")] = None,
    unique: Annotated[str | None, _column("--unique", "Its unique key.")] = None,
    at: Annotated[
        str | None, _column("--at", "When it runs: a time, or nanoseconds since 1970.")
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option(
            "--tag", metavar="NAME=COLUMN", help="A tag; may be repeated.", show_default=False
        ),
    ] = None,
    secret: Annotated[
        list[str] | None,
        typer.Option(
            "--secret", metavar="NAME", help="An argument that is never shown.", show_default=False
        ),
    ] = None,
    priority: Annotated[int, typer.Option(help="-100 to 100.", min=-100, max=100)] = 0,
    version: Annotated[int, typer.Option(help="Of the task.", min=1)] = 1,
    by: Annotated[str, typer.Option("--by", help="The name of the program that runs them.")] = "",
    detach: Annotated[
        bool, typer.Option("--detach", help="Remove the trigger: new rows are only rows.")
    ] = (False),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the SQL.")] = False,
    store: Store,
    json: Json = False,
) -> None:
    """Make a table of your own a queue: each row that is inserted becomes a job, with its commit.

    A trigger does it, on PostgreSQL, in the database that the store is in. Without TABLE: list what
    is attached. Attaching the same task again replaces how its jobs are made.

    Example: penstock attach shop.orders --task shop:ship --arg order=id --key customer --dry-run
    """
    from penstock.brokers import attaching
    from penstock.brokers.attached import RowJobs
    from penstock.cli import output
    from penstock.cli.store_choice import open_store, store_url
    from penstock.operate.parse_input import parse_pairs

    with open_store(*store):
        pass  # it exists, and its schema is this release's
    tables = attaching(store_url(*store).url)
    if table is None:
        if task or detach:
            raise Refused("which table? Write penstock attach schema.table --task NAME")
        _list(tables.attached(), json=json)
        return
    if detach:
        done = tables.detach(table, task, dry_run=dry_run)
        if done is None:
            raise Refused(f"table {table} is not attached" + (f" to {task}" if task else ""))
        said = "detached"
    else:
        if task is None:
            raise Refused(f"what do the jobs of {table} call? Write --task module:function")
        jobs = RowJobs(
            task=task,
            app=by,
            queue=queue,
            priority=priority,
            version=version,
            args=parse_pairs(arg, "--arg") or None,
            key=key,
            unique=unique,
            at=at,
            tags=parse_pairs(tag, "--tag"),
            secret=tuple(secret or ()),
        )
        done = tables.attach(table, jobs, dry_run=dry_run)
        said = f"attached: each new row is a job of {task}"
    if json:
        output.print_json({"table": table, "sql": done, "dry_run": dry_run})
    elif dry_run:
        output.print_text(f"{done};")
    else:
        output.print_note(f"{table} is {said}")


def _list(attached: list[AttachedTable], *, json: bool) -> None:
    from penstock.cli import output

    for each in attached:
        made = f"{each.table}  {each.jobs.task}, queue {each.jobs.queue}"
        if json:
            output.print_json(each)
        else:
            output.print_text(made if each.enabled else f"{made} (the trigger is disabled)")
    if not attached and not json:
        output.print_note("no table is attached")
