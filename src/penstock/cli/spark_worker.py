"""spark-worker: run jobs on the executors of a Spark cluster."""

from __future__ import annotations

import signal
from collections.abc import Generator
from contextlib import contextmanager, suppress
from time import sleep
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import Json, LogFormat, LogLevel, Profile, Url
from penstock.cli.worker import check_tasks, parse_lease, say_start
from penstock.errors import Refused
from penstock.operate.parse_input import parse_duration, parse_names

if TYPE_CHECKING:
    from penstock.app.app import App
    from penstock.spark.fleet.driver import Fleet
    from penstock.spark.fleet.driver_channel import Report
    from penstock.spark.fleet.slot_worker import SlotEnd


def spark_worker(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="TARGET",
            help="The app: module:app, a module, or a file. Default: app in penstock.toml.",
            show_default=False,
        ),
    ] = None,
    *,
    slots: Annotated[
        int, typer.Option(help="Number of workers on executors; each takes one core.", min=1)
    ],
    master: Annotated[
        str | None,
        typer.Option(
            help="The cluster, for example spark://host:7077.", show_default="this machine"
        ),
    ] = None,
    threads: Annotated[int, typer.Option(help="Threads per slot.", min=1)] = 10,
    queues: Annotated[
        str | None,
        typer.Option(help="Serve only these queues; separated by commas.", show_default="all"),
    ] = None,
    tags: Annotated[
        str | None,
        typer.Option(help="Tags of these workers, separated by commas, for tasks with runs_on."),
    ] = None,
    drain: Annotated[
        bool, typer.Option("--drain", help="Exit when no job is left to run, now or later.")
    ] = False,
    for_: Annotated[
        str | None, typer.Option("--for", help="Exit after this time, for example 10m.")
    ] = None,
    lease: Annotated[
        str, typer.Option(help="After this time without a renewal its jobs are recovered.")
    ] = "15s",
    grace: Annotated[
        str, typer.Option(help="Time for running jobs to finish when it is stopped.")
    ] = "25s",
    connections: Annotated[
        int | None,
        typer.Option(
            help="Refuse slots that would have more connections to the store; each has 4.", min=1
        ),
    ] = None,
    config: Annotated[
        list[str] | None, typer.Option(help="A Spark setting, name=value; may be repeated.")
    ] = None,
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
    url: Url = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Run jobs on the executors of a Spark cluster; each slot is an ordinary worker.

    SIGTERM or Ctrl-C: the slots claim no more jobs, wait for running ones until --grace is over,
    and put back the rest. A second Ctrl-C puts them back at once.

    Example: penstock spark-worker myapp:app --master spark://host:7077 --slots 64 --drain
    """
    from penstock.app.environment import environment_of, open_to_run
    from penstock.app.log_lines import LogOutput, log_to_stderr
    from penstock.app.store_retry import open_when_reachable
    from penstock.cli.store_choice import (
        check_app_url,
        import_app,
        target_or_default,
        use_store,
    )
    from penstock.operate.parse_input import parse_pairs
    from penstock.worker.outage_log import OutageLog

    target = target_or_default(
        target, "spark-worker needs the app: penstock spark-worker myapp:app"
    )
    log_to_stderr(LogOutput(log_level, log_format))
    seconds = None if for_ is None else parse_duration(for_, "--for")
    options = {
        "threads": threads,
        "queues": parse_names(queues),
        "tags": parse_names(tags) or (),
        "drain": drain,
        "connections": connections,
        "lease": parse_lease(lease),
        "grace": parse_duration(grace, "--grace"),
        "log_level": log_level,
        "log_format": log_format,
    }
    with use_store(url, profile):
        app = check_app_url(import_app(target), url)
        check_tasks(app)
        outage = OutageLog("no slot starts until it does")
        open_when_reachable(
            lambda: open_to_run(app), outage.log, lambda seconds: bool(sleep(seconds))
        )
        options["environment"] = environment_of(app.resolved_url)
        say_start(app, slots, json=json, what="slot")
        try:
            spark = _session(
                app, target, master or f"local[{slots}]", parse_pairs(config, "--config")
            )
            try:
                code = _work(
                    spark,
                    _target_on_executors(app, target, spark),
                    slots,
                    seconds,
                    options,
                    json=json,
                )
            finally:
                with suppress(Exception):  # its Java may have had the same signal, and be gone
                    spark.stop()
        finally:
            app.close()
    raise typer.Exit(code)


def _session(app: App, target: str, master: str, config: dict[str, str]) -> Any:
    import penstock.spark
    from penstock.spark.session_store import set_app_name

    name = config.pop("spark.app.name", f"penstock {target}")
    # The app may name its store, and itself; the slots are told of the same.
    spark = penstock.spark.session(
        master, app_name=name, url=app.resolved_url.url, config={"spark.task.cpus": 1, **config}
    )
    set_app_name(spark, app.name)
    return spark


def _target_on_executors(app: App, target: str, spark: Any) -> str:
    """The app's target for executors; its module is shipped to those on other machines."""
    from penstock.app.locate import target_of
    from penstock.spark import ship
    from penstock.spark.ship_code import on_this_machine

    if on_this_machine(spark.sparkContext.master):
        return target
    target_there = target_of(app)
    if target_there is None or "/" in target_there:
        raise Refused(
            f"{target}: executors import the app by its module's name; keep `app = App()` in a "
            "module that can be imported"
        )
    ship(spark, target_there.partition(":")[0].partition(".")[0])
    return target_there


def _work(
    spark: Any,
    target_there: str,
    slots: int,
    seconds: float | None,
    options: dict[str, Any],
    *,
    json: bool,
) -> int:
    from penstock.cli import output
    from penstock.spark.fleet.driver import Fleet

    def on_report(report: Report) -> None:
        if json:
            output.print_json({"event": "log" if report.log else "slot", **_fields(report)})
        elif report.log:
            output.print_note(f"slot {report.slot}: {report.log}")
        elif report.host:
            output.print_note(f"slot {report.slot} works on {report.host}")

    def on_end(end: SlotEnd) -> None:
        if json:
            output.print_json({"event": "slot ended", **_fields(end)})
        else:
            note = f" ({end.note})" if end.note else ""
            output.print_note(
                f"slot {end.slot} on {end.host} ended after {end.seconds:.1f} s: {end.ended}{note};"
                f" {end.settled:,} jobs settled"
            )

    fleet = Fleet(
        spark, target_there, slots, seconds=seconds, on_report=on_report, on_end=on_end, **options
    )
    with _signals(fleet):
        code = fleet.run()
    settled = fleet.settled
    if json:
        output.print_json({"event": "ended", "code": code, "settled": settled})
    else:
        slots_text = "1 slot" if len(settled) == 1 else f"{len(settled)} slots"
        output.print_text(f"{sum(settled.values()):,} jobs settled by {slots_text}")
    return code


def _fields(value: Report | SlotEnd) -> dict[str, Any]:
    import msgspec

    return {name: field for name, field in msgspec.structs.asdict(value).items() if name != "token"}


@contextmanager
def _signals(fleet: Fleet) -> Generator[None]:
    # After the session was made: Spark's own answer to Ctrl-C is to cancel its jobs.
    def stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        fleet.stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
