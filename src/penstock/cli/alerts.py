"""alerts: what penstock.toml says to watch, whether it fires now, and a test message."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.options import Json, Store, with_options


@with_options
def alerts(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Send a test message of this alert to the webhook.",
            show_default=False,
        ),
    ] = None,
    *,
    store: Store,
    json: Json = False,
) -> None:
    """List the alerts of penstock.toml and what fires now; with NAME, send a test message.

    `penstock dashboard` watches them and sends their messages. Ends with code 1 if one fires.

    Example: penstock alerts mail-is-late
    """
    from penstock.cli import output
    from penstock.cli.store_choice import open_store
    from penstock.operate.alert_watch import configured_watch

    with open_store(*store) as broker:
        watch = configured_watch(lambda: broker)
        if name is not None:
            fault = watch.test(name)
            if json:
                output.print_json({"alert": name, "delivered": not fault, "fault": fault or None})
            elif fault:
                output.print_error(fault)
            else:
                output.print_text(f"a test message of {name} was delivered")
            if fault:
                raise typer.Exit(1)
            return
        rows = watch.look()
    if json:
        output.print_json(
            [
                {
                    "alert": row.name,
                    "watches": row.watches,
                    "firing": bool(row.faults),
                    "faults": row.faults,
                }
                for row in rows
            ]
        )
    else:
        for row in rows:
            output.print_text(f"{'FIRES' if row.faults else 'quiet'}  {row.name}: {row.watches}")
            for sentence in row.faults:
                output.print_text(f"       {sentence}")
    if any(row.faults for row in rows):
        raise typer.Exit(1)
