"""top: the overview in a terminal, refreshed every second.

Each refresh costs a `count` and a bounded number of history rows.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from penstock.cli.options import Json, Store, with_options

if TYPE_CHECKING:
    import rich.console

    from penstock.broker.protocol import Broker
    from penstock.job import Job

_MOST_ROWS = 5_000  # of the history, in one refresh
_FAILED = 5


class TopLook(msgspec.Struct, frozen=True, kw_only=True):
    """One refresh; rates are per second since the one before, None in the first."""

    at: str
    queues: list[dict[str, Any]]
    workers: dict[str, int]
    ended: float | None = None
    failed: float | None = None
    more: bool = False  # more ended than were read
    latest_failures: list[dict[str, Any]] = []


@with_options
def top(
    *,
    once: Annotated[bool, typer.Option("--once", help="Print once and exit.")] = False,
    every: Annotated[
        float, typer.Option(help="Seconds between refreshes.", min=0.2, max=3600)
    ] = 1.0,
    store: Store,
    json: Json = False,
) -> None:
    """Show queues, rates, workers and the latest failures live, until Ctrl-C.

    Example: penstock top
    """
    from penstock.cli import output
    from penstock.cli.store_choice import open_store

    with open_store(*store) as broker:
        watch = _Watch(broker)
        look = watch.look()
        if once:
            output.print_json(look) if json else output.console().print(_drawn(look, None))
            return
        try:
            if json:
                while True:
                    output.print_json(look)
                    time.sleep(every)
                    look = watch.look()
            _draw_on(watch, look, every)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


def _draw_on(watch: _Watch, look: TopLook, every: float) -> None:
    import rich.live

    from penstock.cli import output

    console = output.console()
    while not console.is_terminal:
        console.print(_drawn(look, None))
        time.sleep(every)
        look = watch.look()
    first = _drawn(look, console.height)
    with rich.live.Live(first, console=console, auto_refresh=False, screen=True) as live:
        while True:
            live.refresh()
            time.sleep(every)
            live.update(_drawn(watch.look(), console.height))


class _Watch:
    """Reads the store again and again, and remembers its position in the history."""

    def __init__(self, broker: Broker) -> None:
        from penstock.broker.position import BEGINNING

        last = broker.history(None, 1)
        self._broker = broker
        self._position = last[-1].position if last else BEGINNING
        self._looked_at: float | None = None

    def look(self) -> TopLook:
        from penstock.broker.filter import Filter
        from penstock.broker.views import by_queue
        from penstock.job import State
        from penstock.operate.counts import fullest_first, queue_json
        from penstock.operate.to_json import iso

        broker, now = self._broker, time.monotonic()
        rows = broker.history(self._position, _MOST_ROWS)
        more = len(rows) == _MOST_ROWS
        if rows:
            newest = broker.history(None, 1) if more else rows
            self._position = newest[-1].position if newest else rows[-1].position
        since, self._looked_at = self._looked_at, now
        ended = [row for row in rows if row.kind == "attempt"]
        bad = sum(row.state is State.FAILED for row in ended)
        jobs = broker.find(Filter(state=(State.FAILED,)), limit=_FAILED).jobs
        return TopLook(
            at=iso(broker.clock.now()) or "",
            queues=[queue_json(count) for count in fullest_first(by_queue(broker.count()))],
            workers=_workers(broker),
            ended=None if since is None else round(len(ended) / (now - since), 1),
            failed=None if since is None else round(bad / (now - since), 1),
            more=more,
            latest_failures=[_failure(job) for job in jobs],
        )


def _workers(broker: Broker) -> dict[str, int]:
    found = {"busy": 0, "idle": 0, "detached": 0, "manager": 0, "lapsed": 0}
    for row in broker.workers():
        found[row.state] += 1
    return found


def _failure(job: Job[Any]) -> dict[str, Any]:
    from penstock.operate.to_json import iso
    from penstock.run.error_text import headline

    return {
        "id": job.id,
        "task": job.task,
        "ended_at": iso(job.ended_at),
        "reason": job.reason,
        "error": headline(job.error),
    }


def _drawn(look: TopLook, height: int | None) -> rich.console.Group:
    import rich.console
    import rich.text

    from penstock.broker.views import Count
    from penstock.cli import output

    head = rich.text.Text(f"{look.at[:19]}Z  ", "dim")
    head.append(", ".join(f"{number} {kind}" for kind, number in look.workers.items()))
    head.append(" workers", "dim")
    if look.ended is not None:
        head.append(f"   {look.ended:,.1f} attempts/s", "green")
        head.append(f", {look.failed:,.1f} failed/s", "red" if look.failed else "dim")
        if look.more:
            head.append(" and more", "dim")
    room = len(look.queues) if height is None else max(3, height - 8 - len(look.latest_failures))
    counts = [Count(task="", **queue) for queue in look.queues[:room]]
    parts: list[Any] = [head, rich.text.Text("")]
    if counts:
        parts.append(output.counts_table(counts, by_task=False))
        if len(look.queues) > room:
            parts.append(rich.text.Text(f"and {len(look.queues) - room:,} more queues", "dim"))
    else:
        parts.append(rich.text.Text("no job is waiting, running or failed", "dim"))
    if look.latest_failures:
        parts.append(rich.text.Text("\nlatest failures", "bold"))
    for failure in look.latest_failures:
        line = rich.text.Text(f"{failure['id']}  {failure['task']}  ", no_wrap=True)
        line.append(failure["error"] or failure["reason"] or "", "red")
        parts.append(line)
    return rich.console.Group(*parts)
