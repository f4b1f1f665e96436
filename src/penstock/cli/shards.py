"""shards: list, status, add, move, remove: where buckets are, and moving them while jobs run."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import Json, Reason, Store, person, with_options
from penstock.errors import Refused

if TYPE_CHECKING:
    from penstock.brokers.sharded.resharding import Resharding


class ShardsVerb(StrEnum):
    """What to do."""

    LIST = "list"
    STATUS = "status"
    ADD = "add"
    MOVE = "move"
    REMOVE = "remove"


@with_options
def shards(
    verb: Annotated[
        ShardsVerb,
        typer.Argument(metavar="list|status|add|move|remove", help="What to do."),
    ] = ShardsVerb.LIST,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="For add and remove: a shard of the file.", show_default=False
        ),
    ] = None,
    *,
    buckets: Annotated[
        str | None,
        typer.Option(
            "--buckets", help="For move: as 0-511,600, or all (of 1,024).", show_default=False
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", help="Where they go; for remove: all of them.", show_default=False),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would move, and change nothing.")
    ] = False,
    busy: Annotated[
        float,
        typer.Option(help="The part of its time that a move works, 0.01 to 1; else it rests."),
    ] = 0.2,
    wait: Annotated[
        float, typer.Option(help="Seconds to wait until all workers know the shard.")
    ] = 30.0,
    forget_history: Annotated[
        bool,
        typer.Option("--forget-history", help="remove: do without the history that it still has."),
    ] = False,
    reason: Reason = "",
    store: Store,
    json: Json = False,
) -> None:
    """Show where the buckets of shards are; add a shard; move buckets; empty a shard.

    Jobs go on meanwhile, running ones too. A move may be stopped or killed at any time: the same
    command goes on. It prints how far it is; a call about a bucket waits until that has come.

    From SQLite to PostgreSQL, with both in the file of shards:
    penstock shards add new && penstock shards move --buckets all --to new

    Example: penstock shards move --buckets 0-511 --to b --dry-run
    """
    from penstock.broker.shard_map import parse_buckets

    _check(verb, name, buckets, to)
    if not 0.01 <= busy <= 1:
        raise Refused(f"--busy {busy:g}: from 0.01 to 1")
    looks = verb in {ShardsVerb.LIST, ShardsVerb.STATUS}
    with _opened(store, create=not looks) as resharding:
        if looks:
            _print(resharding, full=verb is ShardsVerb.STATUS, json=json)
            return
        if verb is ShardsVerb.ADD:
            _add(resharding, name or "", wait, dry_run=dry_run, json=json)
            return
        if verb is ShardsVerb.MOVE:
            plan = {to or "": parse_buckets(buckets or "")}
        elif to is not None:
            plan = {to: [b for share in resharding.shares(name or "").values() for b in share]}
        else:
            plan = resharding.shares(name or "")
        for target, some in plan.items():
            _move(resharding, some, target, (busy, wait, reason), dry_run=dry_run, json=json)
        if verb is ShardsVerb.REMOVE and not dry_run:
            _say_rest(resharding, name or "", forget=forget_history, json=json)


def _check(verb: ShardsVerb, name: str | None, buckets: str | None, to: str | None) -> None:
    if verb is ShardsVerb.MOVE:
        if buckets is None or to is None or name is not None:
            raise Refused("shards move what, where? As in --buckets 0-511 --to b")
        return
    if verb in {ShardsVerb.ADD, ShardsVerb.REMOVE} and name is None:
        raise Refused(f"shards {verb} which one? Give a name of the file of shards")
    if buckets is not None:
        raise Refused(f"shards {verb} takes no --buckets: that is for move")
    if verb in {ShardsVerb.LIST, ShardsVerb.STATUS} and name is not None:
        raise Refused(f"shards {verb} shows all shards: leave out {name}")


@contextmanager
def _opened(store: Store, *, create: bool) -> Generator[Resharding]:
    from penstock.brokers import open_shards
    from penstock.cli.store_choice import print_store, store_url

    resolved = store_url(*store)
    resharding = open_shards(resolved.url, create=create)
    if store.url is None:
        print_store(resolved)
    try:
        yield resharding
    finally:
        resharding.close()


def _print(resharding: Resharding, *, full: bool, json: bool) -> None:
    import msgspec

    from penstock.cli import output
    from penstock.operate.sentences import jobs_text

    states = resharding.states()
    if json:
        output.print_json_lines(msgspec.structs.asdict(state) for state in states)
        return
    for state in states:
        output.print_text(
            f"{state.name}: {state.number} buckets ({state.buckets or 'none'}), {state.url}"
        )
        if not full:
            continue
        if state.away is not None:
            output.print_text(f"  away: {state.away}")
            continue
        output.print_text(
            f"  {jobs_text(state.open_jobs or 0)} open, {state.failed_jobs:,} failed; "
            f"workers alive: {state.workers}"
        )
        if state.on_their_way:
            output.print_text(
                f"  {state.on_their_way} buckets left it and have not come yet: workers bring them "
                "in within seconds, and so does `penstock shards move`"
            )


def _add(resharding: Resharding, name: str, wait: float, *, dry_run: bool, json: bool) -> None:
    from penstock.cli import output

    if not dry_run:
        resharding.add(name)
        resharding.wait_for_workers(name, wait)
    if json:
        output.print_json({"shard": name, "added": not dry_run})
    elif dry_run:
        output.print_text(f"shard {name} would be added; nothing was changed")
    else:
        output.print_text(
            f"shard {name} is one of the shards, and all workers know it; it has no buckets: move "
            f"some with `penstock shards move --buckets ... --to {name}`"
        )


def _move(
    resharding: Resharding,
    buckets: list[int],
    to: str,
    how: tuple[float, float, str],
    *,
    dry_run: bool,
    json: bool,
) -> None:
    import msgspec

    from penstock.broker.shard_map import text_of_buckets
    from penstock.cli import output

    busy, wait, reason = how
    left = resharding.to_move(buckets, to)
    said = {"buckets": text_of_buckets(left), "to": to}
    if dry_run:
        if json:
            output.print_json({**said, "number": len(left), "dry_run": True})
        else:
            output.print_text(
                f"{len(left)} buckets would move to {to}: {said['buckets'] or 'none'}; nothing was "
                "changed"
            )
        return
    resharding.add(to)
    resharding.wait_for_workers(to, wait)
    audit = resharding.broker.audit
    author = person().name
    if left:
        audit("move", author, reason, {**said, "says": "begun"})
    longest = 0.0
    for moved in resharding.move(left, to, busy=busy):
        longest = moved.longest
        if json:
            output.print_json_lines([{"to": to, **msgspec.structs.asdict(moved)}])
        else:
            seconds = moved.seconds_left or 0.0
            output.print_text(
                f"{moved.done} of {moved.of} buckets are on {to}; about {seconds:.0f} s left"
            )
    if left:
        audit("move", author, reason, {**said, "says": "done", "longest": round(longest, 3)})
    if not json:
        output.print_text(
            f"all of {len(left)} buckets are on {to}; the longest that calls waited was about "
            f"{longest:.2f} s"
            if left
            else f"shard {to} has these buckets already"
        )


def _say_rest(resharding: Resharding, name: str, *, forget: bool, json: bool) -> None:
    from penstock.cli import output

    rows = resharding.rest(name)
    retention = resharding.broker.traits.retention / 86400
    if json:
        output.print_json({"shard": name, "buckets": 0, "history": bool(rows)})
        return
    if rows and not forget:
        output.print_text(
            f"shard {name} has no buckets any more. Its history, and the results of jobs that "
            f"succeeded there, are still read from it: leave its line in the files for "
            f"{retention:g} days, or take it out now and do without them (--forget-history)"
        )
    else:
        output.print_text(
            f"shard {name} has no buckets any more: take its line out of every client's file"
        )
