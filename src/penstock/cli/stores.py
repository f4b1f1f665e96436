"""The store itself: migrate and doctor."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import AppTarget, Json, Profile, Url
from penstock.errors import SchemaTooNew, StoreUnreachable

if TYPE_CHECKING:
    from penstock.brokers.condition import StoreCondition


class Step(StrEnum):
    UP = "up"
    STATUS = "status"


def migrate(
    step: Annotated[
        Step, typer.Argument(metavar="[up|status]", help="up, or only status.")
    ] = Step.UP,
    *,
    url: Url = None,
    profile: Profile = None,
    app: AppTarget = None,
    json: Json = False,
) -> None:
    """Bring the store to this Penstock's schema, or say where it stands.

    Workers do it when they start; this is for those who want it done before.

    Example: penstock migrate status
    """
    from penstock.brokers import store_condition
    from penstock.cli import show
    from penstock.cli.place import opened, store_url

    resolved = store_url(url, profile, app)
    before = store_condition(resolved.url)
    if step is Step.UP:
        with opened(url, profile, app, create=True):
            pass
    elif not before.exists:
        raise StoreUnreachable(_no_store(before))
    after = store_condition(resolved.url)
    current = after.schema == after.newest
    if json:
        show.put_json(
            {
                "store": after.where,
                "before": before.schema,
                "schema": after.schema,
                "newest": after.newest,
                "current": current,
            }
        )
    elif current:
        moved = step is Step.UP and before.schema != after.schema
        came = f", from {before.schema or 'nothing'}" if moved else ""
        show.say(f"{after.where} has schema {after.schema}{came}, the newest this Penstock knows")
    if after.schema is not None and after.newest is not None and after.schema > after.newest:
        raise SchemaTooNew(_too_new(after))
    if not current:
        if not json:
            show.say(
                f"{after.where} has schema {after.schema}, this Penstock brings it to "
                f"{after.newest}: penstock migrate up"
            )
        raise typer.Exit(1)


def doctor(
    *,
    url: Url = None,
    profile: Profile = None,
    app: AppTarget = None,
    json: Json = False,
) -> None:
    """Examine the store, its workers and its jobs; each finding with its remedy.

    Ends with code 1 if something is red.

    Example: penstock doctor --url sqlite:///jobs.db
    """
    from penstock.brokers import store_condition
    from penstock.cli import show
    from penstock.cli.examine import Colour, examine
    from penstock.cli.place import load, say_where, store_url
    from penstock.settings import mask

    resolved = store_url(url, profile, app)
    if url is None:
        say_where(resolved)
    known = load(app).known_tasks() if app is not None else None
    findings = examine(resolved.url, store_condition(resolved.url), known)
    red = any(finding.colour is Colour.RED for finding in findings)
    if json:
        show.put_json({"store": mask(resolved.url), "red": red, "findings": findings})
    else:
        for finding in findings:
            show.put_finding(finding)
    if red:
        raise typer.Exit(1)


def _no_store(condition: StoreCondition) -> str:
    return (
        f"there is no store at {condition.where}; a worker or the first enqueue makes it, or name "
        "another one with --url"
    )


def _too_new(condition: StoreCondition) -> str:
    return (
        f"the store {condition.where} has schema {condition.schema}, this Penstock knows "
        f"{condition.newest}; upgrade Penstock here before it opens this store"
    )
