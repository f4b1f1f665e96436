"""pipeline plan, run, why and graph: the datasets of an app, and what they lack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.cli.options import Store, person
from penstock.errors import Refused

if TYPE_CHECKING:
    from penstock.app.app import App
    from penstock.spark.datasets.pipeline import Pipeline, Standing
    from penstock.task.dataset import AskedPartitions

_ROWS = 20  # of a dataset that are listed one by one


class RunOptions(NamedTuple):
    """What `plan` and `run` take."""

    since: str | None = None
    until: str | None = None
    again: bool = False
    max_running: int | None = None
    dry_run: bool = False
    reason: str = ""


@contextmanager
def open_pipeline(store: Store) -> Generator[Pipeline]:
    """The datasets of the app that the options name."""
    from penstock.cli.store_choice import (
        check_app_url,
        check_not_memory,
        import_app,
        print_store,
        target_or_default,
        use_store,
    )
    from penstock.spark.datasets.pipeline import Pipeline

    target = target_or_default(store.app, "name the app that has the datasets: --app myapp:app")
    with use_store(store.url, store.profile):
        app: App = check_app_url(import_app(target), store.url)
        resolved = app.resolved_url
        check_not_memory(resolved.url)
        if store.url is None:
            print_store(resolved)
        try:
            yield Pipeline(app)
        finally:
            app.close()


def print_plan(store: Store, names: Sequence[str], options: RunOptions, *, json: bool) -> None:
    """Print what each dataset lacks."""
    from penstock.cli import output
    from penstock.spark.datasets.status import plan_json, standing_text

    with open_pipeline(store) as pipeline:
        asked = _asked(pipeline, names, options)
        plans = pipeline.plan(pipeline.asked_partitions(asked))
        standings = pipeline.standings(plans)
        if json:
            output.print_json(plan_json(pipeline, standings))
            return
        _print_counts(pipeline, standings)
        lacking = [each for each in standings if each.plan.state != "current"]
        for name in pipeline.graph.order:
            rows = [each for each in lacking if each.plan.dataset == name]
            for each in rows[:_ROWS]:
                output.print_text(f"  {name} {each.plan.partition}: {standing_text(each)}")
            if len(rows) > _ROWS:
                output.print_text(f"  {name}: and {len(rows) - _ROWS:,} more")
        if not lacking:
            output.print_text("all of it is current")
        elif any(each.plan.due and each.job is None for each in lacking):
            output.print_note(f"penstock pipeline run {' '.join(names) or '--all'} makes them")


def run_datasets(store: Store, names: Sequence[str], options: RunOptions, *, json: bool) -> None:
    """Enqueue what these datasets lack; the rest follows by itself."""
    import msgspec

    from penstock.cli import output
    from penstock.operate.actions import Actions

    with open_pipeline(store) as pipeline:
        asked = _asked(pipeline, names, options)
        if options.dry_run:
            filled = pipeline.fill(asked, again=options.again, dry_run=True)
        else:
            filled = Actions(pipeline.app.broker, person()).run_datasets(
                pipeline.app,
                asked,
                again=options.again,
                max_running=options.max_running,
                reason=options.reason,
            )
    if json:
        output.print_json({**msgspec.to_builtins(filled), "dry_run": options.dry_run})
        return
    jobs = sum(filled.enqueued.values())
    would = "would be " if options.dry_run else ""
    parts = ", ".join(f"{number:,} of {name}" for name, number in filled.enqueued.items())
    output.print_text(f"{jobs:,} runs {would}enqueued{f': {parts}' if parts else ''}")
    for number, words in (
        (filled.retried, f"that failed {would}tried again"),
        (filled.open, "were enqueued before, and have not ended"),
        (filled.waiting, "follow by themselves, once what they need is current"),
    ):
        if number:
            output.print_text(f"{number:,} {words}")


def print_why(store: Store, dataset: str, text: str, *, json: bool) -> None:
    """Print why a partition is as it is, and what made it."""
    import msgspec

    from penstock.cli import output
    from penstock.spark.datasets.status import why_partition

    with open_pipeline(store) as pipeline:
        why = why_partition(pipeline, dataset, text)
    made = why.made
    if json:
        fields: dict[str, Any] = msgspec.to_builtins(why.standing)
        output.print_json({**fields, "made": msgspec.to_builtins(made)})
        return
    output.print_text(f"{why.standing.dataset} {why.standing.partition} is {why.says}")
    for key, says in why.waits_for:
        output.print_text(f"  waits for {key.dataset} {key.partition}: {says}")
    if made is None:
        return
    output.print_text(
        f"made by job {made.job}, attempt {made.attempt}, in {made.seconds:.1f} s:"
        f" {made.rows:,} rows, {made.bytes:,} bytes, run {made.run}"
    )
    for source, versions in made.inputs:
        if isinstance(source, str):
            output.print_text(f"  from {source}: {', '.join(key for key, _ in versions) or 'none'}")
    for check in made.checks:
        said = "passed" if check.passed else "warned"
        output.print_text(f"  check {check.name}: {said}, {check.bad:,} bad rows")


def print_graph(store: Store, *, json: bool) -> None:
    """Print the datasets in order of need, each with its inputs."""
    from penstock.cli import output
    from penstock.spark.datasets.status import node_json

    with open_pipeline(store) as pipeline:
        nodes = [node_json(pipeline, name) for name in pipeline.graph.order]
    if json:
        output.print_json(nodes)
        return
    for node in nodes:
        line = node.partition
        each = line if isinstance(line, str) else f"{len(line)} names"
        made_of = ", ".join([*node.inputs, *(f"{name}()" for name in node.sources)])
        after = f", after {', '.join(node.after)}" if node.after else ""
        output.print_text(f"{node.dataset} ({each}) <- {made_of or 'nothing'}{after}")


def _asked(pipeline: Pipeline, names: Sequence[str], options: RunOptions) -> AskedPartitions:
    from penstock.task.dataset import AskedPartitions
    from penstock.task.interval import Timeline

    wanted = tuple(pipeline.dataset(name).name for name in names) or tuple(pipeline.graph.order)
    lines = [pipeline.graph.nodes[name].partitions for name in wanted]
    timeline = next((line for line in lines if isinstance(line, Timeline)), Timeline("day"))
    since = _moment(options.since, timeline, pipeline.now, "--since")
    until = _moment(options.until, timeline, pipeline.now, "--until", at_end=True)
    return AskedPartitions(wanted, since, until)


def _moment(
    text: str | None, timeline: Any, now: float, option: str, *, at_end: bool = False
) -> float | None:
    """A time that a person wrote: 7d (ago), or a day or interval, included as a whole."""
    from penstock.operate.parse_input import parse_duration

    if text is None:
        return None
    if text[-1:].isalpha() and text[:1].isdigit() and "-" not in text:
        return now - parse_duration(text, option)
    try:
        interval = timeline.parse(text)
    except Refused as error:
        raise Refused(f"{option}: {error}, or 7d for so long ago") from None
    moment: datetime = interval.end if at_end else interval.start
    return moment.timestamp()


def _print_counts(pipeline: Pipeline, standings: Sequence[Standing]) -> None:
    from penstock.cli import output

    table = output.table("dataset", "partition", "current", "lacking", right=("current",))
    for name in pipeline.graph.order:
        states = Counter(each.state for each in standings if each.plan.dataset == name)
        if not states:
            continue
        partitions = pipeline.graph.nodes[name].partitions
        lacking = ", ".join(
            f"{number:,} {state}" for state, number in states.items() if state != "current"
        )
        table.add_row(
            name, getattr(partitions, "every", "names"), f"{states['current']:,}", lacking
        )
    output.console().print(table)
