"""inspect: what is in a store, without an app; on Redis also its keys, legibly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import Json, Profile, with_options

if TYPE_CHECKING:
    from penstock.broker.protocol import Broker
    from penstock.brokers.condition import StoreCondition
    from penstock.brokers.key_views import KeyFamily

_NEWEST = 5  # jobs, and rows of the history


@with_options
def inspect(
    url: Annotated[
        str | None,
        typer.Argument(
            metavar="URL",
            help="The store, for example redis://localhost/0.",
            show_default="as for every command",
        ),
    ] = None,
    *,
    key: Annotated[
        str | None,
        typer.Option(
            "--key", metavar="KEY", help="Redis: show what is in this key.", show_default=False
        ),
    ] = None,
    limit: Annotated[int, typer.Option(help="With --key: the most members.", min=1)] = 20,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Look into a store: what it promises, how many jobs are where, its keys. Changes nothing.

    Example: penstock inspect redis://localhost/0 --key q:9f2c41d0aa31b7e4
    """
    from penstock.brokers import open_broker, store_condition, store_key, store_keys
    from penstock.cli import output
    from penstock.cli.store_choice import check_not_memory, store_url

    resolved = store_url(url, profile, None)
    check_not_memory(resolved.url)
    if key is not None:
        content = store_key(resolved.url, key, limit)
        if json:
            output.print_json(content)
            return
        output.print_note(
            f"{content.name}: {content.type}, {content.members:,} members, {content.bytes:,} bytes:"
            f" {content.holds}"
        )
        output.print_json_lines(content.shown)
        if content.members > len(content.shown):
            output.print_note(f"there is more: --limit {2 * limit}")
        return
    # Without a key ring: what is encrypted stays so.
    broker = open_broker(resolved.url, create=False)
    try:
        found = _found(broker, store_condition(resolved.url))
    finally:
        broker.close()
    keys = store_keys(resolved.url)
    if json:
        output.print_json({**found, "keys": keys})
        return
    _print(found, keys)


def _found(broker: Broker, condition: StoreCondition) -> dict[str, Any]:
    from penstock.broker.filter import Filter
    from penstock.broker.lake_mark import Mark
    from penstock.operate.to_json import event_json, job_json, rule_json
    from penstock.rules.rule import Rule
    from penstock.schedules.schedule import Schedule

    return {
        "store": condition.where,
        "kind": condition.kind,
        "promise": condition.promise,
        "settings": condition.settings,
        "counts": broker.count(),
        "workers": [
            {"id": row.id, "host": row.host, "state": row.state, "running": row.running}
            for row in broker.workers()
        ],
        "rules": [rule_json(rule) for rule in broker.records(Rule)],
        "schedules": [schedule.name for schedule in broker.records(Schedule)],
        "lakes": [mark.lake for mark in broker.records(Mark)],
        "newest": [job_json(job) for job in broker.find(Filter(), limit=_NEWEST).jobs],
        "history": [event_json(event) for event in broker.history(None, _NEWEST)],
    }


def _print(found: dict[str, Any], keys: list[KeyFamily]) -> None:
    from penstock.cli import output

    settings = ", ".join(f"{name} {value}" for name, value in found["settings"].items())
    output.print_text(f"{found['store']} ({settings or found['kind']})")
    output.print_text(f"{found['promise']}.")
    console = output.console()
    if found["counts"]:
        console.print(output.counts_table(found["counts"], by_task=True))
    else:
        output.print_text("no job is waiting, running or failed")
    numbers = {name: len(found[name]) for name in ("workers", "rules", "schedules", "lakes")}
    output.print_text(", ".join(f"{name}: {number}" for name, number in numbers.items()))
    for job in found["newest"]:
        output.print_text(f"{job['id']}  {job['state']:<9}  {job['task']}  {job['queue']}")
    if keys:
        table = output.table(
            "key", "type", "keys", "members", "bytes", "holds", right=("keys", "members", "bytes")
        )
        for family in keys:
            numbers_of = (family.keys, family.members, family.bytes)
            table.add_row(
                family.name, family.type, *(f"{number:,}" for number in numbers_of), family.holds
            )
        console.print(table)
