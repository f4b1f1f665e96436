"""Signal: the word from outside that jobs of `wait_for` wait for."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.options import Json, Reason, Store, no_stray_options, person, with_options
from penstock.operate.typed_values import json_or_text


@with_options
def signal(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The signal's name.", show_default=False)
    ],
    value: Annotated[
        str, typer.Argument(metavar="VALUE", help="JSON where it is JSON, else text.")
    ] = "null",
    *,
    author: Annotated[
        str | None,
        typer.Option("--author", help="Who says so; otherwise you.", show_default=False),
    ] = None,
    reason: Reason = "",
    store: Store,
    json: Json = False,
) -> None:
    """End every job that waits for this signal, with the value as its output.

    Example: penstock signal approve-62 '{"by": "ada"}'
    """
    from penstock.cli import output
    from penstock.cli.store_choice import acting
    from penstock.operate.sentences import signalled

    no_stray_options([name, value])
    read = json_or_text(value, "the value")
    with acting(store, person(author)) as (_, actions):
        ended = actions.signal(name, read, reason)
    if json:
        output.put_json({"signal": name, "ended": ended})
    elif ended:
        output.say(signalled(name, ended))
        for job_id in ended:
            output.say(job_id)
    else:
        output.complain(signalled(name, ended))
    if not ended:
        raise typer.Exit(1)
