"""verify: the history of a store, checked for what must never be in it."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.options import Json, Store, with_options


@with_options
def verify(
    *,
    tolerance: Annotated[
        float,
        typer.Option(help="Seconds by which the clocks of two workers may differ.", min=0.0),
    ] = 0.1,
    store: Store,
    json: Json = False,
) -> None:
    """Check the whole history: nothing ended twice, no limit exceeded, no slot decided twice.

    Reads every row of history and every open job, and changes nothing. Ends with code 1 if the
    history contradicts itself: please report that, it is a bug in Penstock or in its store.

    Example: penstock verify --url sqlite:///jobs.db
    """
    from penstock.cli import output
    from penstock.cli.store_choice import open_store
    from penstock.testing.checker import INVARIANTS, check_store

    with open_store(*store) as broker:
        verdict = check_store(broker, tolerance=tolerance)
    if json:
        output.print_json(
            {
                "ok": verdict.ok,
                "contradictions": verdict.contradictions,
                "seen": verdict.seen,
            }
        )
    else:
        for name, sentence in INVARIANTS.items():
            if name == "accepted":  # only whoever enqueued knows what was accepted
                continue
            broken = [found for found in verdict.contradictions if found.invariant == name]
            output.print_text(f"{'BROKEN' if broken else 'holds '}  {sentence}")
            for found in broken[:20]:
                output.print_text(f"        {found.subject}: {found.sentence}")
            if len(broken) > 20:
                output.print_text(f"        and {len(broken) - 20:,} more (--json lists all)")
        seen = ", ".join(f"{count:,} {what}" for what, count in sorted(verdict.seen.items()))
        output.print_text(f"read: {seen}")
    if not verdict.ok:
        raise typer.Exit(1)
