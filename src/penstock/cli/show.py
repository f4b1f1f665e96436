"""show: everything about one job, on one screen."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.options import Json, Store, with_options


@with_options
def show(
    id: Annotated[str, typer.Argument(metavar="ID", help="A job's id.", show_default=False)],
    *,
    full: Annotated[
        bool,
        typer.Option(
            "--full", help="Cut nothing: all attempts, tracebacks, log lines and arguments."
        ),
    ] = False,
    store: Store,
    json: Json = False,
) -> None:
    """Show everything about a job: why, arguments, attempts, errors, log, result, flow.

    Example: penstock show 0190a6c4-5e1f-7000-8000-00000a1b2000
    """
    from penstock.cli import output
    from penstock.cli.store_choice import open_store
    from penstock.enqueue.ids import parse_id
    from penstock.operate.job_view import view_job
    from penstock.operate.job_view_json import job_view_json
    from penstock.operate.refusals import NotFound

    job_id = parse_id(id)
    with open_store(*store) as broker:
        try:
            view = view_job(broker, job_id)
        except NotFound as error:
            if json:
                output.print_json({"id": job_id, "known": False, "sentence": str(error)})
            else:
                output.print_text(str(error))
            raise typer.Exit(1) from None
        now = broker.clock.now()
    output.note_sealed([None if view.job is None else view.job.body])
    if json:
        output.print_json(job_view_json(view))
        return
    from penstock.cli.job_screen import job_screen

    console = output.console()
    for line in job_screen(view, now, None if full else console.width):
        console.print(line, soft_wrap=True)
