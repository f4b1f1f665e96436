"""migrate and doctor."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import Json, Store, with_options
from penstock.errors import Refused, SchemaTooNew, StoreUnreachable

if TYPE_CHECKING:
    from penstock.brokers.condition import StoreCondition


class MigrateCommand(StrEnum):
    UP = "up"
    STATUS = "status"
    SQL = "sql"
    ROLES = "roles"


@with_options
def migrate(
    step: Annotated[
        MigrateCommand,
        typer.Argument(metavar="[up|status|sql|roles]", help="What to do; see above."),
    ] = MigrateCommand.UP,
    *,
    post: Annotated[
        bool,
        typer.Option(
            "--post", help="up, sql: also the steps that need all older workers to have ended."
        ),
    ] = False,
    viewer: Annotated[
        list[str] | None,
        typer.Option(help="roles: a database login that may read; may be repeated."),
    ] = None,
    producer: Annotated[
        list[str] | None,
        typer.Option(help="roles: one that may also enqueue."),
    ] = None,
    worker: Annotated[
        list[str] | None,
        typer.Option(help="roles: one that may also run jobs, and operate."),
    ] = None,
    admin: Annotated[
        list[str] | None,
        typer.Option(help="roles: one that may also block and unblock."),
    ] = None,
    store: Store,
    json: Json = False,
) -> None:
    """Migrate the store to the schema of this Penstock.

    up: migrate. status: show the schema, change nothing. sql: print the SQL of up. roles: print the
    SQL that grants database roles. Workers migrate by themselves when they start.

    Example: penstock migrate status
    """
    from penstock.brokers import migrate_store, migration_sql, roles_sql, store_condition
    from penstock.brokers.schemes import in_process
    from penstock.cli.store_choice import print_store, store_url

    resolved = store_url(*store)
    if in_process(resolved.url):
        raise Refused("a memory: store has no schema to migrate")
    if json and step in {MigrateCommand.SQL, MigrateCommand.ROLES}:
        raise Refused(f"migrate {step} prints SQL: leave out --json")
    if step is MigrateCommand.SQL:
        sys.stdout.write(migration_sql(resolved.url, post=post))
        return
    if step is MigrateCommand.ROLES:
        members = {"viewer": viewer, "producer": producer, "worker": worker, "admin": admin}
        sys.stdout.write(
            roles_sql(resolved.url, {role: names or [] for role, names in members.items()})
        )
        return
    if store.url is None:
        print_store(resolved)
    before = store_condition(resolved.url)
    if step is MigrateCommand.UP:
        migrate_store(resolved.url, post=post)
    _print_schema(before, store_condition(resolved.url), json=json)


def _print_schema(before: StoreCondition, after: StoreCondition, *, json: bool) -> None:
    """Print the schema of the store; exit code 1 if it is not the newest."""
    from penstock.cli import output

    if after.unseen is not None:
        raise StoreUnreachable(
            f"{after.where} cannot be read: {after.unseen.says}; {after.unseen.remedy}"
        )
    if not after.exists:
        raise StoreUnreachable(_no_store(after))
    current = not after.pending and not after.too_new
    if json:
        output.print_json(
            {
                "store": after.where,
                "before": before.schema,
                "schema": after.schema,
                "newest": after.newest,
                "current": current,
                "pending": after.pending,
                "pending_post": after.pending_post,
            }
        )
    elif current:
        came = "is up to date with"
        if before.schema != after.schema:
            old = before.schema
            came = f"was brought from schema {old} to" if old else "is new, with"
        newer = (after.schema or 0) > (after.newest or 0)
        known = (
            "newer than this Penstock, but compatible"
            if newer
            else "the newest this Penstock knows"
        )
        output.print_text(f"{after.where} {came} schema {after.schema}, {known}")
    if after.too_new:
        raise SchemaTooNew(_too_new(after))
    if after.pending_post and not json:
        output.print_text(
            f"when no worker of an older Penstock runs any more: penstock migrate up --post "
            f"({', '.join(after.pending_post)})"
        )
    if not current:
        if not json:
            output.print_text(
                f"{after.where} has schema {after.schema}; penstock migrate up brings it to "
                f"{after.newest} ({', '.join(after.pending)})"
            )
        raise typer.Exit(1)


@with_options
def doctor(
    *,
    store: Store,
    json: Json = False,
) -> None:
    """Examine the store, its workers and jobs; each problem with its remedy.

    The exit code is 1 if something is red.

    Example: penstock doctor --url sqlite:///jobs.db
    """
    from penstock.app.settings import mask
    from penstock.cli import output
    from penstock.cli.store_choice import import_app, print_store, store_url
    from penstock.operate.doctor import Colour, detached_here, examine

    resolved = store_url(*store)
    if store.url is None:
        print_store(resolved)
    loaded = import_app(store.app) if store.app is not None else None
    known = loaded.known_tasks() if loaded is not None else None
    findings = examine(resolved.url, known)
    if loaded is not None and loaded.known_tasks(detached=True):
        findings.append(detached_here())
    red = any(finding.colour is Colour.RED for finding in findings)
    if json:
        output.print_json({"store": mask(resolved.url), "red": red, "findings": findings})
    else:
        for finding in findings:
            output.print_finding(finding)
    if red:
        raise typer.Exit(1)


def _no_store(condition: StoreCondition) -> str:
    return (
        f"there is no store at {condition.where}; a worker or the first enqueue creates it, or "
        "name another one with --url"
    )


def _too_new(condition: StoreCondition) -> str:
    return (
        f"the store {condition.where} has schema {condition.schema}, this Penstock knows "
        f"{condition.newest}; upgrade Penstock here before it opens this store"
    )
