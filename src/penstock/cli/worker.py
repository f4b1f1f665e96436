"""worker: run jobs in child processes under a supervisor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import Json, LogFormat, LogLevel, Profile, Url
from penstock.errors import Refused
from penstock.operate.parse_input import (
    parse_duration,
    parse_integer,
    parse_names,
    parse_pairs,
    parse_size,
)
from penstock.task.option_checks import check_identifier

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.app.app import App


def worker(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="TARGET",
            help="The app: module:app, a module, or a file. Default: app in penstock.toml.",
            show_default=False,
        ),
    ] = None,
    *,
    queues: Annotated[
        str | None,
        typer.Option(help="Serve only these queues; separated by commas.", show_default="all"),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(help="Number of child processes.", min=1, show_default="one per core"),
    ] = None,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            help="Child processes of one queue, as mail=2, in place of --queues and --processes;"
            " may be repeated.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            help="Its name for `penstock workers`: what is set under it stands for its next start.",
            show_default="HOST-PID",
        ),
    ] = None,
    threads: Annotated[int, typer.Option(help="Threads per child process.", min=1)] = 10,
    async_slots: Annotated[
        int,
        typer.Option(help="Most jobs of `async def` tasks at a time, per child process.", min=1),
    ] = 100,
    tags: Annotated[
        str | None,
        typer.Option(help="Tags of this worker, separated by commas, for tasks with runs_on."),
    ] = None,
    drain: Annotated[
        bool, typer.Option("--drain", help="Exit when no job is left to run, now or later.")
    ] = False,
    lease: Annotated[
        str | None,
        typer.Option(
            help="After this time without a renewal its jobs are recovered.",
            show_default="as its queues say, else 15s",
        ),
    ] = None,
    grace: Annotated[
        str, typer.Option(help="Time for running jobs to finish when it is stopped.")
    ] = "25s",
    max_memory: Annotated[
        str | None, typer.Option(help="Replace a child process that uses more, for example 512M.")
    ] = None,
    health_port: Annotated[
        int | None, typer.Option(help="Serve /live and /ready on this port of 127.0.0.1.")
    ] = None,
    detached: Annotated[
        int, typer.Option(help="Most detached jobs that run here at the same time.", min=0)
    ] = 2,
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
    url: Url = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Run jobs in child processes until it is stopped.

    SIGTERM or Ctrl-C: it claims no more jobs, waits for running ones until --grace is over, and
    puts back the rest, which does not count as a failure.

    Example: penstock worker myapp:app --queues mail,default --processes 2
    """
    from penstock.app.log_lines import LogOutput, log_to_stderr
    from penstock.cli import output
    from penstock.cli.store_choice import (
        check_app_url,
        import_app,
        target_or_default,
        use_store,
    )
    from penstock.worker import Supervisor

    target = target_or_default(target, "worker needs the app: penstock worker myapp:app")

    numbers = parse_queue_numbers(queue)
    if numbers and (queues is not None or processes is not None):
        raise Refused("--queue mail=2 says both: leave out --queues and --processes")
    if numbers and not sum(numbers.values()):
        raise Refused("--queue: at least one process of one queue, as mail=2")
    log_to_stderr(LogOutput(log_level, log_format))
    with use_store(url, profile):
        import_app(target)  # its errors are shown before anything starts
        supervisor = Supervisor(
            target,
            processes=processes,
            threads=threads,
            async_slots=async_slots,
            queues=_served(queues),
            tags=parse_names(tags) or (),
            drain=drain,
            lease=None if lease is None else parse_lease(lease),
            grace=parse_duration(grace, "--grace"),
            max_memory=None if max_memory is None else parse_size(max_memory, "--max-memory"),
            health_port=health_port,
            log_level=log_level,
            log_format=log_format,
            detached=detached,
            name=check_worker_name(name),
            by_queue=numbers,
        )
        app = check_app_url(supervisor.app, url)
        check_tasks(app)
        _warn_of_unknown_queues(app, parse_names(queues) or tuple(numbers))
        try:
            code = supervisor.run(lambda: say_start(app, supervisor.processes, json=json))
        except (OSError, OverflowError) as error:
            if health_port is None:
                raise
            raise Refused(
                f"--health-port {health_port} cannot be served: {error}; 0 takes any free port"
            ) from error
        finally:
            app.close()
    if json:
        output.print_json({"event": "ended", "code": code})
    raise typer.Exit(code)


def _served(text: str | None) -> tuple[str, ...] | None:
    """The queues that are served; None: all."""
    names = parse_names(text)
    if names == ():
        raise Refused("--queues names no queue: leave it out to serve all of them")
    return names


def _warn_of_unknown_queues(app: App, names: Sequence[str]) -> None:
    """Of queues that neither a task nor the app names: they may be mistyped."""
    from difflib import get_close_matches

    from penstock.cli.output import print_note

    known = {task.queue for task in app.tasks.values()} | app.queues.registered
    for name in names:
        if name not in known:
            near = get_close_matches(name, sorted(known), n=2)
            similar = f"; similar: {' or '.join(near)}" if near else ""
            print_note(f"no task of this app has the queue {name!r}{similar}", "yellow")


def parse_queue_numbers(texts: Sequence[str] | None) -> dict[str, int]:
    """Numbers of processes by queue, of words such as `mail=2`."""
    pairs = parse_pairs(texts, "--queue")
    return {
        check_identifier("queue", queue): parse_integer(number, f"--queue {queue}", 0, 1_000)
        for queue, number in pairs.items()
    }


def check_worker_name(name: str | None) -> str | None:
    """The name of a worker; refused if it could not be the name of anything."""
    return None if name is None else check_identifier("worker", name)


def parse_lease(text: str) -> float:
    """The lease in seconds."""
    lease = parse_duration(text, "--lease")
    if not lease:
        raise Refused(
            f"--lease {text} must be more than 0: a worker that renews too late loses its jobs"
        )
    return lease


def check_tasks(app: App) -> None:
    """Refuse an app without tasks."""
    if not app.known_tasks():
        raise Refused(
            "the app has no tasks: write @app.task over a function, in a module it imports"
        )


def say_start(app: App, processes: int, *, json: bool, what: str = "process") -> None:
    """Print the store, which is open, and the tasks."""
    from penstock.app.settings import mask
    from penstock.brokers import store_condition
    from penstock.cli import output

    tasks, resolved = app.known_tasks(), app.resolved_url
    condition = store_condition(resolved.url)
    several = {"process": "processes", "slot": "slots"}[what]
    if json:
        output.print_json(
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
    output.print_note(f"store: {mask(resolved.url)} ({resolved.source}){schema}")
    output.print_note(f"promise: {condition.promise}")
    if app.name:
        output.print_note(f"app: {app.name}")
    names = sorted(tasks)
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    output.print_note(f"tasks: {', '.join(names[:10])}{more}")
    output.print_note(f"{processes} {what if processes == 1 else several}; Ctrl-C stops")
