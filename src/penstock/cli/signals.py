"""signal: end the jobs that wait for a signal (`wait_for`)."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.options import Json, Reason, Store, person, reject_unknown_options, with_options
from penstock.operate.parse_input import parse_json_or_text


@with_options
def signal(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The signal's name.", show_default=False)
    ],
    value: Annotated[
        str,
        typer.Argument(
            metavar="VALUE", help="The value; read as JSON if it is JSON, else as text."
        ),
    ] = "null",
    *,
    author: Annotated[
        str | None,
        typer.Option(
            "--author", help="Send it in this person's name instead of yours.", show_default=False
        ),
    ] = None,
    reason: Reason = "",
    store: Store,
    json: Json = False,
) -> None:
    """Send a signal: every job that waits for it ends, with the value as its output.

    Example: penstock signal approve-62 '{"by": "ada"}'
    """
    from penstock.cli import output
    from penstock.cli.store_choice import open_actions
    from penstock.operate.sentences import signal_text

    reject_unknown_options([name, value])
    read = parse_json_or_text(value, "the value")
    with open_actions(store, person(author)) as (_, actions):
        ended = actions.signal(name, read, reason)
    if json:
        output.print_json({"signal": name, "ended": ended})
    elif ended:
        output.print_text(signal_text(name, ended))
        for job_id in ended:
            output.print_text(job_id)
    else:
        output.print_error(signal_text(name, ended))
    if not ended:
        raise typer.Exit(1)
