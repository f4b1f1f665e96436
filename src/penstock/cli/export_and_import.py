"""export and import: jobs out of a store as JSON lines, and back into any store."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, NamedTuple

import typer

from penstock.cli.options import (
    Json,
    Reason,
    Store,
    person,
    reject_unknown_options,
    with_options,
)
from penstock.errors import Refused

if TYPE_CHECKING:
    from penstock.operate.import_jobs import Imported, Lines
    from penstock.operate.import_queues import ImportedQueues
    from penstock.operate.job_file import LeftOut

OTHER_SYSTEMS = ("celery", "rq", "bullmq")
_SHOWN = 10  # jobs that were left out, each in a line
Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILTER",
        help="Only jobs that match, as `penstock find` takes it.",
        show_default=False,
    ),
]


@with_options
def export(
    words: Words = None,
    *,
    jobs: Annotated[
        bool, typer.Option("--jobs", help="Every job that waits, runs or is scheduled.")
    ] = False,
    history: Annotated[
        bool, typer.Option("--history", help="Every row of the history that is kept.")
    ] = False,
    queue: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="--history: only this queue's.", show_default=False),
    ] = None,
    after: Annotated[
        str | None,
        typer.Option(
            metavar="POSITION",
            help="--history: only rows after this one, the `end` of an earlier file.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", metavar="FILE", help="The file to write.", show_default="standard output"
        ),
    ] = None,
    store: Store,
    json: Json = False,
) -> None:
    """Write the jobs that have not ended, or the history, as JSON lines.

    The jobs are for `penstock import` or other programs: workers may go on; those with secret
    arguments are named in the file, and left out. The history is the archive of what ended: a row
    for each attempt, with arguments and result, secrets hidden, and what people did.

    Example: penstock export --jobs --output jobs.jsonl
    Example: penstock export --history --queue mail --output mail.jsonl
    """
    from penstock.broker.filter import parse_filter
    from penstock.cli import output as out
    from penstock.cli.store_choice import open_actions
    from penstock.operate.export_jobs import exported
    from penstock.operate.job_file import FileEnd, JobLine, LeftOut, encode_line, head_line

    if jobs == history:
        raise Refused("what is to be exported? Write --jobs or --history, and not both")
    if history:
        if words:
            raise Refused("--history takes no filter: --queue and --after say which rows")
        _export_history(queue, after, output, store, json=json)
        return
    if queue is not None or after is not None:
        raise Refused("--queue and --after are of --history; of --jobs, write queue:NAME")
    progress_line = out.ProgressLine(quiet=json)
    left_out: list[LeftOut] = []
    count = 0
    with open_actions(store, person()) as (broker, actions):
        now = broker.clock.now()
        filter = parse_filter(reject_unknown_options(words or []), now)
        with _written(output) as file:
            file.write(head_line(now))
            for line in exported(broker, filter):
                file.write(encode_line(line))
                if isinstance(line, LeftOut):
                    left_out.append(line)
                elif isinstance(line, JobLine):
                    count += 1
                    progress_line.show(f"{count:,} jobs written")
            file.write(encode_line(FileEnd(end=count, left_out=len(left_out))))
        progress_line.clear()
        actions.record_export("jobs", count)
    if json and output is not None:
        out.print_json({"jobs": count, "left_out": left_out, "file": str(output)})
    else:
        out.print_note(f"{count:,} jobs written")
        _print_left_out(left_out)
    if left_out:
        raise typer.Exit(1)


def _export_history(
    queue: str | None, after: str | None, output: Path | None, store: Any, *, json: bool
) -> None:
    from penstock.broker.position import BEGINNING
    from penstock.cli import output as out
    from penstock.cli.store_choice import open_actions
    from penstock.operate.export_history import HistoryEnd, exported_history
    from penstock.operate.job_file import encode_line, head_line

    progress_line = out.ProgressLine(quiet=json)
    count, position = 0, after or BEGINNING
    with open_actions(store, person()) as (broker, actions):
        with _written(output) as file:
            file.write(head_line(broker.clock.now(), "history"))
            for reached, row in exported_history(broker, position, queue):
                position = reached
                if row is not None:
                    file.write(encode_line(row))
                    count += 1
                progress_line.show(f"{count:,} rows written")
            file.write(encode_line(HistoryEnd(end=position, rows=count)))
        progress_line.clear()
        actions.record_export("history", count)
    if json and output is not None:
        out.print_json({"rows": count, "end": position, "file": str(output)})
    else:
        out.print_note(f"{count:,} rows written; the next ones: --after {position}")


@contextmanager
def _written(path: Path | None) -> Generator[BinaryIO]:
    """Where the lines go: a file appears under its name when it is whole."""
    if path is None:
        try:
            yield sys.stdout.buffer
        finally:
            sys.stdout.buffer.flush()
        return
    folder = path.absolute().parent
    if not folder.is_dir():
        raise Refused(f"--output {path}: there is no folder {folder}")
    with tempfile.NamedTemporaryFile(dir=folder, prefix=f".{path.name}.", delete=False) as file:
        try:
            yield file  # pyright: ignore[reportReturnType]  a file that is written, with a name
            file.flush()
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


@with_options
def import_(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A file of `penstock export --jobs`, or - for standard input; or celery, rq or "
            "bullmq, with --from.",
        ),
    ],
    *,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="URL", help="The Redis of the other system.", show_default=False
        ),
    ] = None,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            "--queue",
            metavar="NAME",
            help="Only this queue of the other system; may be repeated.",
            show_default=False,
        ),
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option(
            "--task",
            metavar="OLD=NEW",
            help="Store jobs of the task OLD as jobs of NEW; may be repeated.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read everything, and only say what would be stored.")
    ] = False,
    move: Annotated[
        bool,
        typer.Option("--move", help="Remove from the other system what was stored here."),
    ] = False,
    reason: Reason = "",
    store: Store,
    json: Json = False,
) -> None:
    """Store the jobs of a file, or what waits in Celery, RQ or BullMQ; each once.

    A file is read to its end before anything is stored; a bad line is refused with its number. The
    other system keeps what it has, unless --move is given. Nothing is unpickled.

    Example: penstock import rq --from redis://localhost/0 --task shop.send=shop:send --dry-run
    """
    from penstock.operate.parse_input import parse_pairs

    tasks = parse_pairs(task, "--task") or {}
    if source in OTHER_SYSTEMS:
        if from_ is None:
            raise Refused(f"import {source}: where is it? Write --from redis://host:6379/0")
        other = _Other(source, from_, tuple(queue or ()), tasks, move=move)
        _import_queues(other, store, reason, dry_run=dry_run, json=json)
        return
    if from_ is not None or queue or move:
        known = ", ".join(OTHER_SYSTEMS)
        raise Refused(f"--from, --queue and --move are for {known}; {source} is read as a file")
    _import_file(source, tasks, store, reason, dry_run=dry_run, json=json)


class _Other(NamedTuple):
    """Another system, and what is wanted of it."""

    system: str
    url: str
    queues: tuple[str, ...]
    tasks: Mapping[str, str]
    move: bool


def _import_queues(other: _Other, store: Store, reason: str, *, dry_run: bool, json: bool) -> None:
    from penstock.brokers import open_other_queues
    from penstock.cli import output
    from penstock.cli.store_choice import (
        check_app_url,
        import_app,
        print_store,
        target_or_default,
        use_store,
    )
    from penstock.operate.actions import Actions
    from penstock.operate.import_queues import import_queues

    progress_line = output.ProgressLine(quiet=json)
    with use_store(store.url, store.profile):
        target = target_or_default(
            store.app, "the tasks have to be known, to check the arguments: name their app, --app"
        )
        app = check_app_url(import_app(target), store.url)
        if store.url is None:
            print_store(app.resolved_url)
        queues = open_other_queues(other.system, other.url, other.queues)
        try:
            done = import_queues(
                app,
                other.system,
                queues,
                other.tasks,
                dry_run=dry_run,
                move=other.move,
                progress=lambda jobs: progress_line.show(f"{jobs:,} jobs"),
            )
            progress_line.clear()
            if done.stored and not dry_run:
                data = {"jobs": done.stored, "from": other.system}
                Actions(app.broker, person()).record_enqueue(reason, data)
        finally:
            queues.close()
            app.close()
    _print_queues(done, other, dry_run=dry_run, json=json)


def _print_queues(done: ImportedQueues, other: _Other, *, dry_run: bool, json: bool) -> None:
    from penstock.cli import output
    from penstock.operate.sentences import jobs_text

    if json:
        output.print_json({**_as_json(done), "dry_run": dry_run})
    else:
        for name, jobs in sorted(done.tasks.items()):
            output.print_note(f"{jobs:,} of {name}")
        would = "would be " if dry_run else ""
        removed = f", {done.removed:,} removed from {other.system}" if other.move else ""
        output.print_text(
            f"{jobs_text(done.stored)} {would}stored, {done.known:,} were here before{removed}"
        )
        if done.standing:
            output.print_note(
                f"{done.standing:,} not stored: other jobs hold their unique keys", "yellow"
            )
        if done.taken:
            output.print_note(
                f"{done.taken:,} were taken by workers of {other.system} meanwhile, and run in both"
                " systems: stop its workers before an import",
                "yellow",
            )
        for each in done.stayed:
            output.print_note(f"stays: {each.jobs:,} of {each.name}: {each.why}", "yellow")
        for note in done.notes:
            output.print_note(note, "yellow")
    if done.stayed or done.standing or done.taken:
        raise typer.Exit(1)


def _import_file(
    source: str,
    tasks: Mapping[str, str],
    store: Store,
    reason: str,
    *,
    dry_run: bool,
    json: bool,
) -> None:
    from penstock.cli import output
    from penstock.cli.store_choice import open_store
    from penstock.operate.actions import Actions
    from penstock.operate.import_jobs import check_file, import_file

    progress_line = output.ProgressLine(quiet=json)
    with _read(source) as lines:
        checked = check_file(lines, tasks)
        with open_store(*store, create=not dry_run) as broker:
            actions = Actions(broker, person())
            done = import_file(
                broker,
                lines,
                checked,
                tasks,
                dry_run=dry_run,
                progress=lambda jobs: progress_line.show(f"{jobs:,} jobs"),
            )
            progress_line.clear()
            if done.stored and not dry_run:
                actions.record_enqueue(reason, {"jobs": done.stored, "from": source})
    _print_imported(done, dry_run=dry_run, json=json)


@contextmanager
def _read(source: str) -> Generator[Lines]:
    """The lines of a file, as often as they are asked for."""
    if source != "-":
        path = Path(source)
        if not path.is_file():
            raise Refused(f"{source}: there is no such file")
        yield lambda: _lines_of(path.open("rb"))
        return
    with tempfile.TemporaryFile() as kept:
        shutil.copyfileobj(sys.stdin.buffer, kept)

        def again() -> Iterable[bytes]:
            kept.seek(0)
            return kept

        yield again


def _lines_of(file: BinaryIO) -> Generator[bytes]:
    with file:
        yield from file


def _print_imported(done: Imported, *, dry_run: bool, json: bool) -> None:
    """What was stored, and with code 1 what was not."""
    from penstock.cli import output
    from penstock.operate.sentences import jobs_text

    if json:
        output.print_json({**_as_json(done), "dry_run": dry_run})
    else:
        would = "would be " if dry_run else ""
        output.print_text(
            f"{jobs_text(done.stored)} {would}stored, {done.known:,} were here before"
        )
        if done.derived:
            output.print_note(
                f"{done.derived:,} of them have new ids: the old ones are older than this store"
                " remembers ids"
            )
        if done.standing:
            output.print_note(
                f"{done.standing:,} not stored: other jobs hold their unique keys", "yellow"
            )
        _print_left_out(done.left_out)
    if done.left_out or done.standing:
        raise typer.Exit(1)


def _as_json(done: Imported | ImportedQueues) -> dict[str, Any]:
    import msgspec

    return msgspec.structs.asdict(done)


def _print_left_out(left_out: list[LeftOut]) -> None:
    from penstock.cli import output

    for line in left_out[:_SHOWN]:
        output.print_note(f"left out: {line.left_out} {line.task}: {line.why}", "yellow")
    if len(left_out) > _SHOWN:
        output.print_note(f"and {len(left_out) - _SHOWN:,} more", "yellow")
