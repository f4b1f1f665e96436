"""penstock spark-worker."""

from __future__ import annotations

import signal
from collections.abc import Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import Json, LogFormat, LogLevel, Profile, Url
from penstock.cli.worker import lease_of, say_start
from penstock.errors import Refused
from penstock.operate.typed_values import names_of, span_of

if TYPE_CHECKING:
    from penstock.app.app import App
    from penstock.spark.fleet.driver import Fleet
    from penstock.spark.fleet.driver_channel import Report
    from penstock.spark.fleet.slot_worker import SlotEnd


def spark_worker(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET", help="module:app, a module, or a file.", show_default=False
        ),
    ],
    *,
    slots: Annotated[int, typer.Option(help="Workers on executors, a core each.", min=1)],
    master: Annotated[
        str | None,
        typer.Option(help="The cluster, as spark://host:7077.", show_default="this machine"),
    ] = None,
    threads: Annotated[int, typer.Option(help="Threads per slot.", min=1)] = 10,
    queues: Annotated[
        str | None, typer.Option(help="Only these, between commas.", show_default="all")
    ] = None,
    tags: Annotated[
        str | None, typer.Option(help="What the executors have, for tasks with runs_on.")
    ] = None,
    drain: Annotated[
        bool, typer.Option("--drain", help="End when nothing is left to run now or later.")
    ] = False,
    for_: Annotated[
        str | None, typer.Option("--for", help="End after this time, for example 10m.")
    ] = None,
    lease: Annotated[str, typer.Option(help="How long a silent slot keeps its jobs.")] = "15s",
    grace: Annotated[str, typer.Option(help="How long jobs may take to end at a stop.")] = "25s",
    config: Annotated[
        list[str] | None, typer.Option(help="Of Spark's configuration, name=value; several.")
    ] = None,
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
    url: Url = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Run jobs on the executors of a Spark cluster: in each slot an ordinary worker.

    SIGTERM or Ctrl-C: the slots take nothing more, let jobs end within the grace, and hand back the
    rest uncounted. A second time they hand back at once.

    Example: penstock spark-worker myapp:app --master spark://host:7077 --slots 64 --drain
    """
    from penstock.app.log_lines import LogOutput, log_to_stderr
    from penstock.cli.store_choice import checked, chosen, load
    from penstock.operate.typed_values import pairs_of

    log_to_stderr(LogOutput(log_level, log_format))
    seconds = None if for_ is None else span_of(for_, "--for")
    options = {
        "threads": threads,
        "queues": names_of(queues),
        "tags": names_of(tags) or (),
        "drain": drain,
        "lease": lease_of(lease),
        "grace": span_of(grace, "--grace"),
        "log_level": log_level,
        "log_format": log_format,
    }
    with chosen(url, profile):
        app = checked(load(target), url)
        say_start(app, slots, json=json, what="slot")
        try:
            spark = _session(app, target, master or f"local[{slots}]", pairs_of(config, "--config"))
            try:
                code = _work(spark, _place(app, target, spark), slots, seconds, options, json=json)
            finally:
                with suppress(Exception):  # its Java may have had the same signal, and be gone
                    spark.stop()
        finally:
            app.close()
    raise typer.Exit(code)


def _session(app: App, target: str, master: str, config: dict[str, str]) -> Any:
    import penstock.spark
    from penstock.spark.session_store import tell_name

    name = config.pop("spark.app.name", f"penstock {target}")
    # The app may name its store, and itself; the slots are told of the same.
    spark = penstock.spark.session(
        master, app_name=name, url=app.resolved_url.url, config={"spark.task.cpus": 1, **config}
    )
    tell_name(spark, app.name)
    return spark


def _place(app: App, target: str, spark: Any) -> str:
    """Where executors find the app: where it is, or in the module that was sent there."""
    from penstock.app.locate import target_of
    from penstock.spark import ship
    from penstock.spark.ship_code import on_this_machine

    if on_this_machine(spark.sparkContext.master):
        return target
    place = target_of(app)
    if place is None or "/" in place:
        raise Refused(
            f"{target}: executors import the app by its module's name; keep `app = App()` in a "
            "module that can be imported"
        )
    ship(spark, place.partition(":")[0].partition(".")[0])
    return place


def _work(
    spark: Any,
    place: str,
    slots: int,
    seconds: float | None,
    options: dict[str, Any],
    *,
    json: bool,
) -> int:
    from penstock.cli import output
    from penstock.spark.fleet.driver import Fleet

    def heard(report: Report) -> None:
        if json:
            output.put_json({"event": "log" if report.log else "slot", **_told(report)})
        elif report.log:
            output.aside(f"slot {report.slot}: {report.log}")
        elif report.host:
            output.aside(f"slot {report.slot} works on {report.host}")

    def ended(end: SlotEnd) -> None:
        if json:
            output.put_json({"event": "slot ended", **_told(end)})
        else:
            note = f" ({end.note})" if end.note else ""
            output.aside(
                f"slot {end.slot} on {end.host} ended after {end.seconds:.1f} s: {end.ended}{note};"
                f" {end.settled:,} jobs settled"
            )

    fleet = Fleet(spark, place, slots, seconds=seconds, heard=heard, ended=ended, **options)
    with _signals(fleet):
        code = fleet.run()
    settled = fleet.settled
    if json:
        output.put_json({"event": "ended", "code": code, "settled": settled})
    else:
        slots_text = "1 slot" if len(settled) == 1 else f"{len(settled)} slots"
        output.say(f"{sum(settled.values()):,} jobs settled by {slots_text}")
    return code


def _told(value: Report | SlotEnd) -> dict[str, Any]:
    import msgspec

    return {name: each for name, each in msgspec.structs.asdict(value).items() if name != "token"}


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
