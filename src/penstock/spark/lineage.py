"""OpenLineage events of datasets, Spark tasks and exports: which run read and wrote which table.

Off unless PENSTOCK_LINEAGE says where events go: `file:///var/log/lineage.jsonl`, `https://host`,
or `openlineage` for whatever OpenLineage's own settings name. Events are told by a thread from a
queue that is bounded: a receiver that is slow, away or wrong costs events, and no run waits or
fails for it. They name tables, versions, counts and classes of errors; never an argument, a row or
a message.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import uuid
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from penstock.app.settings import mask
from penstock.app.version import DISTRIBUTION, RELEASE
from penstock.errors import JobInterrupted, Refused, RetryLater
from penstock.task.dataset_plan import CheckResult, Made
from penstock.task.interval import Interval

if TYPE_CHECKING:
    from penstock.app.app import App
    from penstock.run.current import CurrentJob

logger = logging.getLogger("penstock.lineage")

SWITCH = "PENSTOCK_LINEAGE"
OWN_SETTINGS = "openlineage"
MOST_WAITING = 1000  # events
CLOSING_SECONDS = 5.0  # for what still waits, when a process ends
_PRODUCER = f"https://pypi.org/project/{DISTRIBUTION}/{RELEASE}"
_CALL_SECONDS = 5.0
_RETRY = {"total": 1, "backoff_factor": 0.1, "allowed_methods": ["POST"]}


class Table(NamedTuple):
    """A table that a run read or wrote: a folder, or the URL of one."""

    place: str
    version: str | None = None
    rows: int | None = None
    bytes: int | None = None
    checks: Sequence[CheckResult] = ()


class LineageRun:
    """What is told of a run; its tables may be added until it ends."""

    def __init__(self, kind: str, name: str, run_id: str) -> None:
        self.kind = kind
        self.name = name
        self.run_id = run_id
        self.parent: tuple[str, str] | None = None  # the job, and its task
        self.interval: Interval | None = None
        self.inputs: list[Table] = []
        self.outputs: list[Table] = []


_CURRENT: ContextVar[LineageRun | None] = ContextVar("penstock_lineage", default=None)


def lineage_of(*, reads: Iterable[str | Path] = (), writes: Iterable[str | Path] = ()) -> None:
    """Say which tables the Spark task that runs reads and writes: folders, or URLs.

    They are in the event of its end. Without lineage, and outside of a job, this does nothing.
    """
    run = _CURRENT.get()
    if run is not None:
        run.inputs += [Table(str(place)) for place in reads]
        run.outputs += [Table(str(place)) for place in writes]


class LineageSender:
    """Tells events, in order, from a thread of its own."""

    def __init__(self, target: str, emit: Callable[[Any], None] | None = None) -> None:
        self._target = target
        self._emit = emit or _client(target).emit
        self._waiting: queue.Queue[Any] = queue.Queue(MOST_WAITING)
        self._failed = 0
        self._thread = threading.Thread(target=self._work, name="penstock-lineage", daemon=True)
        self._thread.start()

    def send(self, event: Any) -> None:
        try:
            self._waiting.put_nowait(event)
        except queue.Full:
            self._lost("too many wait")

    def close(self, seconds: float = CLOSING_SECONDS) -> None:
        """Tell what still waits, for so long at most."""
        try:
            self._waiting.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(seconds)
        if self._thread.is_alive():
            self._lost("the receiver did not answer in time")

    def _work(self) -> None:
        while (event := self._waiting.get()) is not None:
            try:
                self._emit(event)
            except Exception as error:
                self._lost(type(error).__name__)  # its message may have what a URL hides
            else:
                self._failed = 0

    def _lost(self, reason: str) -> None:
        self._failed += 1
        if self._failed == 1:
            logger.warning("lineage is not told: %s: %s", mask(self._target), reason)


def lineage_sender() -> Generator[LineageSender | None]:
    """The sender of this process, as a resource: closed with the others when the process ends."""
    target = os.environ.get(SWITCH, "")
    if target in {"", "0"}:
        yield None
        return
    try:
        sender = LineageSender(target)
    except Exception as error:
        said = error if isinstance(error, Refused) else type(error).__name__
        logger.warning("lineage is not told: %s", said)
        yield None
        return
    try:
        yield sender
    finally:
        sender.close()


def _client(target: str) -> Any:
    if find_spec("openlineage") is None:
        raise Refused(f"{SWITCH} is set, and needs pip install 'penstock-queue[lineage]'")
    client: Any = import_module("openlineage.client")
    if target == OWN_SETTINGS:
        return client.OpenLineageClient()
    scheme = urlsplit(target).scheme
    if scheme == "file":
        module: Any = import_module("openlineage.client.transport.file")
        path = urlsplit(target).path
        config = module.FileConfig(log_file_path=path, append=True)
        return client.OpenLineageClient(transport=module.FileTransport(config))
    if scheme in {"http", "https"}:
        module = import_module("openlineage.client.transport.http")
        key = os.environ.get("OPENLINEAGE_API_KEY")
        auth = {} if key is None else {"auth": module.ApiKeyTokenProvider({"apiKey": key})}
        config = module.HttpConfig(url=target, timeout=_CALL_SECONDS, retry=_RETRY, **auth)
        return client.OpenLineageClient(transport=module.HttpTransport(config))
    raise Refused(
        f"{SWITCH}={mask(target)!r}: file:///var/log/lineage.jsonl, https://host, or {OWN_SETTINGS}"
    )


# Runs


@contextmanager
def job_lineage(app: App, current: CurrentJob | None, kind: str) -> Generator[LineageRun | None]:
    """Tell the start and the end of a job's attempt; in the middle of another one, nothing more."""
    if current is None or _CURRENT.get() is not None:
        yield None
        return
    sender: LineageSender | None = app.resources.open(lineage_sender)
    if sender is None:
        yield None
        return
    job = current.job
    run = LineageRun(kind, job.task, str(uuid.uuid5(uuid.UUID(job.id), str(job.attempt))))
    run.parent = (job.id, job.task)
    with _told(sender, run, app.name or "penstock"):
        yield run


@contextmanager
def export_lineage(store: str, lake: str, tables: Iterable[str]) -> Generator[LineageRun]:
    """Tell the start and the end of an export of history to a lake."""
    run = LineageRun(
        "EXPORT", f"history to {lake.rstrip('/').rpartition('/')[2]}", str(uuid.uuid4())
    )
    database = store.partition("?")[0].rstrip("/")
    run.inputs += [Table(f"{database}/{table}") for table in tables]
    opened = contextmanager(lineage_sender)()
    with opened as sender:
        if sender is None:
            yield run
            return
        with _told(sender, run, "penstock"):
            yield run


@contextmanager
def _told(sender: LineageSender, run: LineageRun, namespace: str) -> Generator[None]:
    token = _CURRENT.set(run)
    _tell(sender, run, namespace, "START")
    try:
        yield
    except (RetryLater, JobInterrupted, KeyboardInterrupt):
        _tell(sender, run, namespace, "ABORT")
        raise
    except BaseException as error:
        _tell(sender, run, namespace, "FAIL", error)
        raise
    else:
        _tell(sender, run, namespace, "COMPLETE")
    finally:
        _CURRENT.reset(token)


def _tell(
    sender: LineageSender,
    run: LineageRun,
    namespace: str,
    state: str,
    error: BaseException | None = None,
) -> None:
    try:
        sender.send(event_of(run, namespace, state, error))
    except Exception as failure:
        logger.warning("lineage is not told of %s: %s", run.name, type(failure).__name__)


# Events


def event_of(
    run: LineageRun, namespace: str, state: str, error: BaseException | None = None
) -> Any:
    """The event in OpenLineage's words."""
    events: Any = import_module("openlineage.client.event_v2")
    facets: Any = import_module("openlineage.client.facet_v2")
    told: dict[str, Any] = {}
    if run.interval is not None:
        told["nominalTime"] = facets.nominal_time_run.NominalTimeRunFacet(
            run.interval.start.isoformat(), run.interval.end.isoformat(), producer=_PRODUCER
        )
    if run.parent is not None:
        parents = facets.parent_run
        told["parent"] = parents.ParentRunFacet(
            parents.Run(run.parent[0]), parents.Job(namespace, run.parent[1]), producer=_PRODUCER
        )
    if error is not None:
        told["errorMessage"] = facets.error_message_run.ErrorMessageRunFacet(
            type(error).__name__, "python", producer=_PRODUCER
        )
    kind = facets.job_type_job.JobTypeJobFacet("BATCH", "PENSTOCK", run.kind, producer=_PRODUCER)
    ended = state == "COMPLETE"
    return events.RunEvent(
        eventTime=datetime.now(UTC).isoformat(),
        producer=_PRODUCER,
        eventType=events.RunState[state],
        run=events.Run(run.run_id, told),
        job=events.Job(namespace, run.name, {"jobType": kind}),
        inputs=[
            events.InputDataset(*name_of(table), facets=_facets(facets, table))
            for table in run.inputs
        ],
        outputs=[
            events.OutputDataset(
                *name_of(table),
                outputFacets=_statistics(facets, table) if ended else {},
                facets=_facets(facets, table) if ended else {},
            )
            for table in run.outputs
        ],
    )


def name_of(table: Table) -> tuple[str, str]:
    """Namespace and name by OpenLineage's rules for files and object stores."""
    parts = urlsplit(mask(table.place)) if "://" in table.place else None
    if parts is None:
        return "file", str(Path(table.place).absolute())
    host = (parts.hostname or "") + ("" if parts.port is None else f":{parts.port}")
    if parts.scheme in {"abfs", "abfss"} and parts.username:
        host = f"{parts.username}@{host}"  # the container, and no person
    if parts.scheme == "file":
        return "file", parts.path
    return f"{parts.scheme}://{host}", parts.path.strip("/") or "/"


def _facets(facets: Any, table: Table) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if table.version is not None:
        found["version"] = facets.dataset_version_dataset.DatasetVersionDatasetFacet(
            table.version, producer=_PRODUCER
        )
    if table.checks:
        quality = facets.data_quality_assertions_dataset
        found["dataQualityAssertions"] = quality.DataQualityAssertionsDatasetFacet(
            [quality.Assertion(check.name, check.passed) for check in table.checks],
            producer=_PRODUCER,
        )
    return found


def _statistics(facets: Any, table: Table) -> dict[str, Any]:
    if table.rows is None:
        return {}
    statistics = facets.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet
    return {
        "outputStatistics": statistics(table.rows, table.bytes, producer=_PRODUCER),
    }


def table_of(place: object, made: Made) -> Table:
    """What a run of a partition wrote."""
    return Table(str(place), made.run, made.rows, made.bytes, made.checks)
