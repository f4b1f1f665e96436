"""Signal: the word from outside that jobs of `wait_for` wait for."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli import options
from penstock.cli.options import AppTarget, Json, Profile, Reason, Url, no_stray_options
from penstock.errors import Refused

_LOOKS_LIKE_JSON = ("{", "[", '"')


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
    url: Url = None,
    profile: Profile = None,
    app: AppTarget = None,
    json: Json = False,
) -> None:
    """End every job that waits for this signal, with the value as its output.

    Example: penstock signal approve-62 '{"by": "ada"}'
    """
    from penstock.cli import output
    from penstock.cli.store_choice import opened
    from penstock.enqueue.codec import encode_value

    no_stray_options([name, value])
    encoded = encode_value(_read(value), f"signal {name}")
    by = options.author() if author is None else author
    with opened(url, profile, app) as broker:
        ended = broker.signal(name, encoded, by, reason)
    if json:
        output.put_json({"signal": name, "ended": ended})
    elif ended:
        jobs = "1 job" if len(ended) == 1 else f"{len(ended):,} jobs"
        output.say(f"{jobs} waited for the signal {name!r}, and ended with that:")
        for job_id in ended:
            output.say(job_id)
    else:
        output.complain(
            f"nobody waits for the signal {name!r}, and it is not kept for whoever comes later; "
            "`penstock find task:penstock:wait_for state:waiting` shows who waits"
        )
    if not ended:
        raise typer.Exit(1)


def _read(word: str) -> Any:
    import msgspec

    try:
        return msgspec.json.decode(word)
    except msgspec.DecodeError as error:
        if word.lstrip().startswith(_LOOKS_LIKE_JSON):
            raise Refused(f"the value {word[:60]!r} begins as JSON, but is not: {error}") from error
        return word
