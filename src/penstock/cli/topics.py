"""topics: list subscriptions, publish, or remove a subscription.

Reads and changes what the store keeps; no app is loaded.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import Json, Reason, Store, person, with_options
from penstock.errors import Refused

if TYPE_CHECKING:
    from penstock.enqueue.subscription import Publication, Subscription
    from penstock.operate.actions import Actions


class TopicsCommand(StrEnum):
    LIST = "list"
    PUBLISH = "publish"
    UNSUBSCRIBE = "unsubscribe"


@with_options
def topics(
    action: Annotated[
        TopicsCommand,
        typer.Argument(metavar="list|publish|unsubscribe", help="What to do.", show_default=False),
    ] = TopicsCommand.LIST,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="A topic, or the name of a subscription.", show_default=False
        ),
    ] = None,
    value: Annotated[
        str,
        typer.Argument(metavar="VALUE", help="publish: read as JSON if it is JSON, else as text."),
    ] = "null",
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="publish: only say who would receive it.")
    ] = False,
    tag: Annotated[
        list[str] | None,
        typer.Option("--tag", help="publish: NAME=VALUE; may be repeated.", show_default=False),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", help="publish: what it is about.", show_default=False),
    ] = None,
    by: Annotated[
        str, typer.Option("--by", help="publish: the name of the program that publishes.")
    ] = "",
    reason: Reason = "",
    store: Store,
    json: Json = False,
) -> None:
    """List who subscribed to which topics, publish, or remove a subscription.

    publish: store a job for each subscription that fits, all or none. unsubscribe: remove a
    subscription by its name; its jobs stay.

    Example: penstock topics publish order.paid '{"id": 7}' --dry-run
    """
    from penstock.cli import output
    from penstock.cli.store_choice import open_actions
    from penstock.operate.parse_input import parse_json_or_text, parse_pairs
    from penstock.operate.sentences import unsubscribed_text
    from penstock.operate.topics import publication_of

    if (action is TopicsCommand.LIST) is not (name is None):
        raise Refused("list takes no name; publish needs a topic, unsubscribe a subscription")
    with open_actions(store, person()) as (_, actions):
        if action is TopicsCommand.PUBLISH:
            publication = publication_of(
                name or "",
                parse_json_or_text(value, "the value"),
                app=by,
                tags=parse_pairs(tag, "tag"),
                key=key,
            )
            _publish(actions, publication, reason, dry_run=dry_run, json=json)
        elif action is TopicsCommand.UNSUBSCRIBE:
            removed = actions.unsubscribe(name or "", reason)
            if json:
                output.print_json({"name": name, "removed": removed})
            else:
                output.print_text(unsubscribed_text(name or "", removed=removed))
            if not removed:
                raise typer.Exit(1)
        else:
            _list(actions.subscriptions(), json=json)


def _publish(
    actions: Actions, publication: Publication, reason: str, *, dry_run: bool, json: bool
) -> None:
    from penstock.cli import output
    from penstock.operate.sentences import published_text

    found = actions.receivers(publication)
    ids = [] if dry_run else actions.publish(publication, reason)
    if json:
        names = [each.name for each in found]
        output.print_json({"topic": publication.topic, "ids": ids, "subscriptions": names})
        return
    stored = len(found) if dry_run else len(ids)
    output.print_text(published_text(publication.topic, stored, dry_run=dry_run))
    for each in found:
        output.print_text(f"  {each.name}: {each.job.task} in {each.job.queue}")


def _list(found: list[Subscription], *, json: bool) -> None:
    import rich.text

    from penstock.cli import output
    from penstock.operate.topics import subscription_json

    if json:
        output.print_json_lines(subscription_json(each) for each in found)
        return
    if not found:
        output.print_note(
            "nobody subscribed; a worker stores the subscriptions of its code when it starts"
        )
        return
    table = output.table("subscription", "pattern", "where", "task", "queue")
    for each in found:
        words = (each.name, each.pattern, " ".join(each.where), each.job.task, each.job.queue)
        table.add_row(*(rich.text.Text(word) for word in words))
    output.console().print(table)
