"""penstock worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import Json, LogFormat, LogLevel, Profile, Url
from penstock.errors import Refused
from penstock.operate.typed_values import bytes_of, names_of, span_of

if TYPE_CHECKING:
    from penstock.app.app import App


def worker(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET", help="module:app, a module, or a file.", show_default=False
        ),
    ],
    *,
    queues: Annotated[
        str | None, typer.Option(help="Only these, between commas.", show_default="all")
    ] = None,
    processes: Annotated[
        int | None, typer.Option(help="Child processes.", min=1, show_default="one per core")
    ] = None,
    threads: Annotated[int, typer.Option(help="Threads per child.", min=1)] = 10,
    tags: Annotated[
        str | None, typer.Option(help="What this machine has, for tasks with runs_on.")
    ] = None,
    drain: Annotated[
        bool, typer.Option("--drain", help="End when nothing is left to run now or later.")
    ] = False,
    lease: Annotated[str, typer.Option(help="How long a silent worker keeps its jobs.")] = "15s",
    grace: Annotated[str, typer.Option(help="How long jobs may take to end at a stop.")] = "25s",
    max_memory: Annotated[
        str | None, typer.Option(help="Replace a child above this, for example 512M.")
    ] = None,
    health_port: Annotated[
        int | None, typer.Option(help="Serve /live and /ready on this port of loopback.")
    ] = None,
    detached: Annotated[
        int, typer.Option(help="Detached jobs that run here at a time.", min=0)
    ] = 2,
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
    url: Url = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Run jobs: a supervisor and its child processes, until it is stopped.

    SIGTERM or Ctrl-C: takes nothing more, lets jobs end within the grace, hands back the rest
    uncounted.

    Example: penstock worker myapp:app --queues mail,default --processes 2
    """
    from penstock.app.log_lines import LogOutput, log_to_stderr
    from penstock.cli import output
    from penstock.cli.store_choice import checked, chosen, load
    from penstock.worker import Supervisor

    log_to_stderr(LogOutput(log_level, log_format))
    with chosen(url, profile):
        load(target)  # what is wrong with it is said before anything starts
        supervisor = Supervisor(
            target,
            processes=processes,
            threads=threads,
            queues=names_of(queues),
            tags=names_of(tags) or (),
            drain=drain,
            lease=lease_of(lease),
            grace=span_of(grace, "--grace"),
            max_memory=None if max_memory is None else bytes_of(max_memory, "--max-memory"),
            health_port=health_port,
            log_level=log_level,
            log_format=log_format,
            detached=detached,
        )
        app = checked(supervisor.app, url)
        say_start(app, supervisor.processes, json=json)
        try:
            code = supervisor.run()
        except (OSError, OverflowError) as error:
            if health_port is None:
                raise
            raise Refused(
                f"--health-port {health_port} cannot be served: {error}; 0 takes any free port"
            ) from error
        finally:
            app.close()
    if json:
        output.put_json({"event": "ended", "code": code})
    raise typer.Exit(code)


def lease_of(text: str) -> float:
    """A lease in seconds, as people type it."""
    lease = span_of(text, "--lease")
    if not lease:
        raise Refused(
            f"--lease {text}: more than 0; a worker that is slower to renew loses its jobs"
        )
    return lease


def say_start(app: App, processes: int, *, json: bool, what: str = "process") -> None:
    """Say which store and which tasks it is about, and refuse an app that has none."""
    from penstock.app.settings import mask
    from penstock.brokers import store_condition
    from penstock.cli import output

    tasks = app.known_tasks()
    if not tasks:
        raise Refused(
            "the app has no tasks: write @app.task over a function, in a module it imports"
        )
    resolved = app.resolved_url
    _ = app.broker  # opens the store, and brings its schema forward, before children do
    condition = store_condition(resolved.url)
    several = {"process": "processes", "slot": "slots"}[what]
    if json:
        output.put_json(
            {
                "event": "started",
                "store": mask(resolved.url),
                "app": app.name,
                "schema": condition.schema,
                "tasks": tasks,
                several: processes,
            }
        )
        return
    schema = "" if condition.schema is None else f", schema {condition.schema}"
    output.aside(f"store: {mask(resolved.url)} ({resolved.source}){schema}")
    output.aside(f"promise: {condition.promise}")
    if app.name:
        output.aside(f"app: {app.name}")
    names = sorted(tasks)
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    output.aside(f"tasks: {', '.join(names[:10])}{more}")
    output.aside(f"{processes} {what if processes == 1 else several}; Ctrl-C stops")
