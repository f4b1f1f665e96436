"""One run of a partition: look, make, commit, go on. It may be killed at every step.

    killed before the commit     files that no log names; the next attempt makes it again
    killed after the commit      the next attempt finds the version of its job, and only goes on
    two at the same time         the second commit fails, looks again, and finds the first

The commit is fenced twice: the store refuses the note of an attempt that lost its lease, and
the log takes no commit but the one that follows the snapshot taken before that note.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import Refused, RetryLater
from penstock.job import ENDED
from penstock.run.current import CurrentJob, current_job
from penstock.spark.datasets.pipeline import Pipeline
from penstock.spark.datasets.table import DatasetTable, PartFile, TableSnapshot
from penstock.spark.lineage import LineageRun, Table, job_lineage, table_of
from penstock.spark.pipelines.lake.lake import CommitConflict
from penstock.task.dataset import AskedPartitions, Dataset
from penstock.task.dataset_graph import Partition, Ref
from penstock.task.dataset_plan import (
    CheckResult,
    Made,
    PartitionVersion,
    PipelineRun,
    base_name,
    run_name,
)
from penstock.task.interval import Interval

if TYPE_CHECKING:
    from penstock.app.app import App

KIND = "dataset"  # of the note that fences a commit
CHECKS = "checks"  # of the event that keeps what checks counted
_LOOK_AGAIN = 5.0

Written = tuple[list[PartFile], list[CheckResult], Any]  # with the schema of the files
Build = Callable[[], Written]


def fill(
    app: App,
    names: Sequence[str],
    *,
    since: float | None = None,
    until: float | None = None,
    again: bool = False,
    max_running: int | None = None,
    author_and_reason: tuple[str, str] = ("pipeline", ""),
) -> PipelineRun:
    """Enqueue what these datasets lack, and what they need for it; the rest follows by itself.

    `again`: also the partitions of these datasets that are current.
    """
    pipeline = Pipeline(app)
    asked = AskedPartitions(tuple(pipeline.dataset(name).name for name in names), since, until)
    return pipeline.fill(
        asked, again=again, max_running=max_running, author_and_reason=author_and_reason
    )


def make_partition(dataset: Dataset[...], text: str, again: int, asked: AskedPartitions) -> Made:
    """Make this partition, unless that was done; then enqueue what was asked for and needs it."""
    current = current_job()
    pipeline = Pipeline(dataset.app)
    partition = pipeline.graph.partition(dataset.name, text)
    with job_lineage(dataset.app, current, "DATASET") as told:
        if told is not None:
            _tell_tables(told, pipeline, dataset, partition)
        made = Run(pipeline, dataset, partition, again, current).make()
        if told is not None:
            told.inputs = _inputs_of(pipeline, made)
            told.outputs = [table_of(dataset.place, made)]
    pipeline.follow(dataset.name, partition, asked)
    return made


def _tell_tables(
    told: LineageRun, pipeline: Pipeline, dataset: Dataset[...], partition: Partition
) -> None:
    """What a run is about to read and write; versions are known once it looked."""
    told.name = dataset.name
    told.interval = partition if isinstance(partition, Interval) else None
    told.inputs = [Table(str(pipeline.app.datasets[ref.name].place)) for ref in dataset.node.inputs]
    told.outputs = [Table(str(dataset.place))]


def _inputs_of(pipeline: Pipeline, made: Made) -> list[Table]:
    """The tables that a version was made of; with its version where that is one partition."""
    tables: list[Table] = []
    for name, versions in made.inputs:
        if isinstance(name, str):
            version = versions[0][1] if len(versions) == 1 else None
            tables.append(Table(str(pipeline.app.datasets[name].place), version))
    return tables


class Run:
    """An attempt at a version of a partition."""

    def __init__(
        self,
        pipeline: Pipeline,
        dataset: Dataset[...],
        partition: Partition,
        again: int,
        current: CurrentJob,
    ) -> None:
        self.dataset = dataset
        self.partition = partition
        self.table = DatasetTable(dataset.place)
        self._pipeline = pipeline
        self._current = current
        self._began = time.monotonic()
        # One look at each input: what is read, and what the version is named after, is this.
        names = list(dict.fromkeys(pipeline.graph.needs(dataset.name)))
        tables = {name: DatasetTable(dataset.app.datasets[name].place).find() for name in names}
        self.inputs = {name: table for name, table in tables.items() if table is not None}
        versions = {name: table.versions() for name, table in self.inputs.items()}
        self.made_of = self._versions_of_inputs(versions)
        self.base = base_name(dataset.task.version, self.made_of)
        self.again = again
        self.name = run_name(self.base, again)

    def _versions_of_inputs(
        self, versions: Mapping[str, Mapping[str, PartitionVersion]]
    ) -> list[Any]:
        found = self._pipeline.inputs(versions).of(self.dataset.name, self.partition)
        if found is not None:
            return found
        [(name, text), *_] = [
            (ref.name, str(each))
            for ref, parts in self._pipeline.graph.parents(self.dataset.name, self.partition)
            for each in parts
            if str(each) not in versions.get(ref.name, {})
        ]
        raise Refused(
            f"{self.dataset.name} {self.partition} is made of {name} {text}, which was never made:"
            f" penstock pipeline run {self.dataset.name} makes both, in order"
        )

    def make(self) -> Made:
        """Make and commit it; or what is there, if it was committed before."""
        snapshot = self.table.find()
        found = None if snapshot is None else self._committed(snapshot)
        if found is not None:
            return found
        self._let_others_go_first()
        written = self._build()
        try:
            return self._commit(*written)
        except BaseException:
            self._discard(written[0])
            raise

    def _let_others_go_first(self) -> None:
        """Wait for the job that is named after this version, if this is another one."""
        key = (self.dataset.name, str(self.partition))
        first = self._pipeline.job_id(key, self.name)
        if first == self._current.id:
            return
        job = self._current.ask(lambda: self.dataset.app.broker.get(first))
        if job is not None and job.state not in ENDED:
            raise RetryLater(_LOOK_AGAIN, f"job {first} is to make this version")

    def _committed(self, snapshot: TableSnapshot) -> Made | None:
        """The version that an earlier attempt of this job made, or another job of the same."""
        if snapshot.committed_by(self._current.id):
            made = snapshot.made(str(self.partition), job=self._current.id)
            if made is not None:
                return msgspec.structs.replace(made, found=True)
        version = snapshot.versions().get(str(self.partition))
        if version is None or (version.run if self.again else version.base) != (
            self.name if self.again else self.base
        ):
            return None
        made = snapshot.made(str(self.partition), run=version.run)
        return None if made is None else msgspec.structs.replace(made, found=True)

    def _build(self) -> Written:
        """Call the function with a session, write its frame and check it."""
        from penstock.spark.task import spark_function

        dataset = self.dataset
        given, detached = session_of(dataset), dataset.task.detached
        build = spark_function(dataset.app, self._written_by, given, detached=detached)
        return build()

    def _written_by(self, spark: Any) -> Written:
        from penstock.spark.datasets.frames import (
            check_frame,
            count_bad_rows,
            refuse_failed,
            schema_of,
            write_frame,
        )

        dataset, text = self.dataset, str(self.partition)
        frame: Any = dataset.function(spark, dataset.argument(self.partition), *self._frames(spark))
        check_frame(dataset.name, frame)
        files = write_frame(frame, self.table.folder, text, self.name)
        try:
            checks = count_bad_rows(spark, self.table.folder, files, dataset.checks)
            if checks:
                self._current.event(CHECKS, partition=text, run=self.name, results=checks)
            refuse_failed(dataset.name, text, checks)
        except BaseException:
            self._discard(files)
            raise
        return files, checks, schema_of(self.table.folder, files)

    def _frames(self, spark: Any) -> Generator[Any]:
        """The inputs, in the order of the parameters."""
        from penstock.spark.datasets.frames import read_versions

        parents = iter(self._pipeline.graph.parents(self.dataset.name, self.partition))
        for each in self.dataset.inputs:
            if not isinstance(each, Ref):
                yield each.read(spark, self.dataset.argument(self.partition))
                continue
            _, parts = next(parents)
            snapshot = self.inputs.get(each.name)
            if snapshot is None:
                raise Refused(f"dataset {each.name} has no table yet: run it first")
            yield read_versions(spark, snapshot, map(str, parts))

    def _commit(self, files: list[PartFile], checks: list[CheckResult], schema: Any) -> Made:
        """Commit these files as the version, unless it is there; tried again after a conflict."""
        made = Made(
            dataset=self.dataset.name,
            partition=str(self.partition),
            run=self.name,
            job=self._current.id,
            attempt=self._current.attempt,
            rows=sum(file.rows for file in files),
            bytes=sum(file.bytes for file in files),
            inputs=self.made_of,
            checks=checks,
            seconds=round(time.monotonic() - self._began, 3),
        )
        while True:
            snapshot = self.table.create(schema)
            found = self._committed(snapshot)
            if found is not None:
                self._discard(files)
                return found
            # Refused by the store if this attempt lost its lease: behind the snapshot, or one that
            # was stopped for long could commit behind a version that was made meanwhile.
            self._current.notebook.write(KIND, made.partition, msgspec.json.encode(made.run))
            try:
                snapshot.commit(made, files)
                return made
            except CommitConflict:
                continue

    def _discard(self, files: list[PartFile]) -> None:
        from penstock.spark.datasets.frames import discard

        snapshot = self.table.find()
        named = set[str]() if snapshot is None else snapshot.paths()
        discard(self.table.folder, [file for file in files if file.path not in named])


@cache
def session_of(dataset: Dataset[...]) -> Any:
    """What makes the session of a dataset's runs: True for the app's own."""
    given, app = dataset.spark, dataset.app
    if given is None or callable(given):
        return given or True
    settings = {name: str(value) for name, value in given.items()}

    def own_session() -> Generator[Any]:
        from penstock.spark.task import opened_session

        yield from opened_session(app.resolved_url.url, settings)

    def session_beside_others() -> Any:
        from penstock.spark.session import attach

        spark: Any = app.resources.open(app.spark_session).newSession()
        for name, value in settings.items():
            spark.conf.set(name, value)
        return attach(spark, url=app.resolved_url.url)

    # A detached run has an application of its own, and so settings of the application too.
    return own_session if dataset.task.detached else session_beside_others
