"""Makes jobs of rows, one Arrow batch at a time.

A plain row becomes Python values, a struct, a line of JSON and an entry of a parcel, all in loops
that run in C. Only columns that set options of single jobs are handled row by row in Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from penstock.app.app import App
from penstock.broker.checks import MOST_BODY_BYTES
from penstock.broker.filter import argument_text
from penstock.enqueue.codec import ArgumentCodec, add_options
from penstock.enqueue.ids import Ids, bucket_by
from penstock.enqueue.secrets import HASH, redact
from penstock.errors import Refused
from penstock.job import Job, Lane, Parcel, cut
from penstock.spark.row_ids import hash_of, row_id
from penstock.spark.session_store import named_app
from penstock.spark.sink.column_roles import Layout, task_of
from penstock.spark.sink.json_values import Faults, seconds_of, values_of
from penstock.spark.sink.options import NOT_IN_PARCELS, SinkOptions
from penstock.task.option_checks import (
    check_identifier,
    check_priority,
    check_short_text,
    check_tags,
    check_task,
)
from penstock.task.task import Task

_SHOWN = 300  # characters of a row in an error message
_ROWS_BYTES = MOST_BODY_BYTES - 1024  # leaves room for the argument's name, and options
_encode_lines = msgspec.json.Encoder().encode_lines


class MadeJobs(NamedTuple):
    """The jobs made of a batch, and the rows that cannot become one."""

    jobs: list[Job[Any] | Parcel]
    number: int  # of jobs
    faults: Faults


class JobTemplate(msgspec.Struct, frozen=True):
    """What the jobs of one task, queue and priority have in common."""

    lane: Lane
    options: bytes = b"{}"
    tags: dict[str, str] = {}
    search: tuple[str, ...] = ()
    at_most_once: bool = False
    key: str | None = None  # the short hash that names the app's key, if it encrypts

    @property
    def plain(self) -> bool:
        """Whether its jobs fit into a parcel."""
        return not (self.tags or self.search or self.at_most_once)


def template_text(task: Task[..., Any]) -> str:
    """A task's template as an option, for executors that cannot import the app."""
    return msgspec.json.encode(_template_of(task)).decode()


def _template_of(
    task: Task[..., Any], queue: str | None = None, priority: int | None = None
) -> JobTemplate:
    chosen = task.chosen
    queue = queue or chosen.queue
    priority = chosen.priority if priority is None else priority
    return JobTemplate(
        Lane(queue, task.name, task.version, priority, task.runs_on, task.app_name),
        msgspec.json.encode(chosen.body),
        dict(chosen.tags),
        task.search,
        task.at_most_once,
        None if task.app.keys is None else task.app.keys.names[0],
    )


def recipe_of(options: SinkOptions) -> JobTemplate | None:
    """The template that `apply` passes as an option."""
    if options.recipe is None:
        return None
    return msgspec.json.decode(options.recipe, type=JobTemplate)


class JobMaker:
    """Makes the jobs of one part of a write."""

    def __init__(self, options: SinkOptions, layout: Layout, app: App | None, ids: Ids) -> None:
        self._options = options
        self._layout = layout
        self._app = app
        self._ids = ids
        self._templates: dict[tuple[Any, ...], JobTemplate | str] = {}
        names = [f"c{index}" for index in range(len(layout.arguments))]
        renamed = dict(zip(names, layout.arguments, strict=True))
        self._row = msgspec.defstruct("Row", names, rename=renamed, gc=False)
        self._call: Any = msgspec.defstruct("Call", ["args"], gc=False)
        self._single_jobs = bool(NOT_IN_PARCELS & layout.roles.keys())
        self._mixed = bool({"task", "queue", "priority"} & layout.roles.keys())
        self._pending: list[bytes] = []  # rows that do not fill a job of rows_per_job yet

    def make(self, batch: Any) -> MadeJobs:
        """The jobs of these rows, and the rows that cannot become one."""
        faults: Faults = {}
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        rows = self._rows(columns, batch.num_rows, faults)
        if self._layout.rows_argument is not None:
            return self._make_grouped(rows, faults)
        bodies = _encode_lines(map(self._call, rows)).split(b"\n")[:-1]
        about = self._about(columns, faults)
        templates = self._templates_of(about, len(bodies), faults)
        self._check(bodies, templates, faults)
        jobs = self._jobs(bodies, templates, about, faults)
        return MadeJobs(jobs, len(bodies) - len(faults), faults)

    def make_rest(self) -> MadeJobs:
        """A job of the last rows, if rows_per_job left some."""
        rows, self._pending = self._pending, []
        groups = [rows] if rows else []
        return MadeJobs(self._grouped_jobs(groups), len(groups), {})

    def shown(self, batch: Any, row: int) -> str:
        """A row for an error message, without arguments that its task declares secret."""
        columns = dict(zip(batch.schema.names, batch.slice(row, 1).columns, strict=True))
        [body] = _encode_lines(map(self._call, self._rows(columns, 1, {}))).split(b"\n")[:-1]
        templates = self._templates_of(self._about(columns, {}), 1, {})
        body = redact(add_options(body, templates[0].options)) if templates else body
        shown = msgspec.json.encode(msgspec.json.decode(body)["args"]).decode()
        return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"

    def _rows(self, columns: dict[str, Any], rows: int, faults: Faults) -> list[Any]:
        """The arguments of each row."""
        layout = self._layout
        if (struct := layout.roles.get("args")) is not None:
            for row in _nulls(columns[struct]):
                faults[row] = f"column {struct} is null, but holds the arguments"
            columns = dict(zip(layout.arguments, columns[struct].flatten(), strict=True))
        values = [values_of(name, columns[name], faults) for name in layout.arguments]
        for name in layout.never_null:
            for row in _nulls(columns[name]):
                faults.setdefault(row, f"column {name} is null, but the task does not accept None")
        return list(map(self._row, *values)) if values else [self._row() for _ in range(rows)]

    def _about(self, columns: dict[str, Any], faults: Faults) -> dict[str, list[Any]]:
        """The options of each job, by role: key, tags, run time and so on."""
        about: dict[str, list[Any]] = {}
        for role, column in self._layout.roles.items():
            if role == "at":
                about[role] = seconds_of(column, columns[column], faults)
            elif role != "args":
                about[role] = columns[column].to_pylist()
            if role in {"id", "task"}:
                for row in _nulls(columns[column]):
                    faults.setdefault(row, f"column {column} is null, but must name the {role}")
        return about

    def _templates_of(
        self, about: dict[str, list[Any]], rows: int, faults: Faults
    ) -> Sequence[JobTemplate]:
        """A template per row, or only one if it is the same for all rows."""
        if not self._mixed:
            template = self._template(None, None, None)
            if isinstance(template, str):
                raise Refused(template)
            return [template]
        none = [None] * rows
        keys = zip(*(about.get(role, none) for role in ("task", "queue", "priority")), strict=True)
        templates: list[JobTemplate] = []
        for row, key in enumerate(keys):
            template = self._template(*key)
            if isinstance(template, str):
                faults.setdefault(row, template)
                template = JobTemplate(Lane("default", "none"))  # unused: the row has a fault
            templates.append(template)
        return templates

    def _template(
        self, task: str | None, queue: str | None, priority: int | None
    ) -> JobTemplate | str:
        key = (task, queue, priority)
        if key not in self._templates:
            try:
                self._templates[key] = self._new_template(*key)
            except Refused as error:
                self._templates[key] = str(error)
        return self._templates[key]

    def _new_template(
        self, task: str | None, queue: str | None, priority: int | None
    ) -> JobTemplate:
        options = self._options
        if (recipe := recipe_of(options)) is not None:
            return recipe
        name = check_task("task", task or options.task)
        queue = queue or options.queue
        priority = options.priority if priority is None else priority
        if queue is not None:
            check_identifier("queue", queue)
        if priority is not None:
            check_priority(priority)
        if self._app is None:
            lane = Lane(queue or "default", name, options.version or 1, priority or 0)
            app_name = named_app() if options.app_name is None else options.app_name
            return JobTemplate(msgspec.structs.replace(lane, app=app_name))
        return _template_of(task_of(self._app, name), queue, priority)

    def _codec(self, template: JobTemplate) -> ArgumentCodec | None:
        """The codec of the task, if its app is given."""
        return None if self._app is None else self._app.tasks[template.lane.task].codec

    def _check(self, bodies: list[bytes], templates: Sequence[JobTemplate], faults: Faults) -> None:
        """Check the size of each row, and decode those that may not fit their task."""
        if bodies and max(map(len, bodies)) > MOST_BODY_BYTES:
            for row, body in enumerate(bodies):
                if len(body) > MOST_BODY_BYTES:
                    fault = (
                        f"the arguments have {len(body):,} bytes, the limit is {MOST_BODY_BYTES:,}"
                    )
                    faults.setdefault(row, fault)
        if not self._layout.check_rows:
            return
        for row, body in enumerate(bodies):
            if row in faults:
                continue
            codec = self._codec(templates[row if self._mixed else 0])
            if codec is None:
                continue
            try:
                codec.read(body)
            except Refused as error:
                faults[row] = str(error)

    def _jobs(
        self,
        bodies: list[bytes],
        templates: Sequence[JobTemplate],
        about: dict[str, list[Any]],
        faults: Faults,
    ) -> list[Job[Any] | Parcel]:
        if not self._mixed and not self._single_jobs and templates[0].plain:
            if faults:
                bodies = [body for row, body in enumerate(bodies) if row not in faults]
            return self._packed(templates[0], bodies)
        jobs: list[Job[Any] | Parcel] = []
        packed: dict[Lane, tuple[JobTemplate, list[bytes]]] = {}
        for row, body in enumerate(bodies):
            template = templates[row if self._mixed else 0]
            if row in faults:
                continue
            if not self._single_jobs and template.plain:
                packed.setdefault(template.lane, (template, []))[1].append(body)
                continue
            try:
                options = {role: values[row] for role, values in about.items()}
                jobs.append(self._job(template, body, options))
            except Refused as error:
                faults[row] = str(error)
        for template, lane_bodies in packed.values():
            jobs += self._packed(template, lane_bodies)
        return jobs

    def _packed(self, template: JobTemplate, bodies: list[bytes]) -> list[Job[Any] | Parcel]:
        if template.options != b"{}":
            bodies = [add_options(body, template.options) for body in bodies]
        return [*cut(template.lane, bodies, self._ids.first)]

    def _job(self, template: JobTemplate, body: bytes, about: dict[str, Any]) -> Job[Any]:
        lane = template.lane
        key = check_short_text("key", about.get("key"))
        unique = check_short_text("unique", about.get("unique"))
        tags, searched = template.tags, dict[str, str | None]()
        if own := about.get("tags"):
            tags = {**tags, **check_tags(dict(own))}
        if template.search:
            arguments: Any = msgspec.json.decode(body)["args"]
            searched = {path: argument_text(arguments, path) for path in template.search}
        body = add_options(body, template.options)
        if "id" in about:
            name = self._options.write or ""
            id = row_id(lane.task, about["id"], name=name, key=key, unique=unique, app=lane.app)
            body = _with_hash(body, about.get("hash") or hash_of(body))
        else:
            id = self._ids.first(bucket_by(unique, key))
        return Job(
            task=lane.task,
            body=body,
            id=id,
            queue=lane.queue,
            version=lane.version,
            priority=lane.priority,
            runs_on=lane.runs_on,
            app=lane.app,
            run_at=about.get("at"),
            key=key,
            unique=None if unique is None else self._options.unique(unique),
            tags=tags,
            search={path: text for path, text in searched.items() if text is not None},
            at_most_once=template.at_most_once,
        )

    def _make_grouped(self, rows: list[Any], faults: Faults) -> MadeJobs:
        """Jobs of `rows_per_job` rows each, or fewer where a job would become too large."""
        lines = _encode_lines(rows).split(b"\n")[:-1]
        [template] = self._templates_of({}, len(lines), faults)
        for row, line in enumerate(lines):
            if row not in faults and (fault := self._fault_alone(template, line)):
                faults[row] = fault
        most = self._options.rows_per_job or 1
        groups: list[list[bytes]] = []
        size = sum(map(len, self._pending))
        for row, line in enumerate(lines):
            if row in faults:
                continue
            if len(self._pending) == most or size + len(line) + len(self._pending) > _ROWS_BYTES:
                groups.append(self._pending)
                self._pending, size = [], 0
            self._pending.append(line)
            size += len(line)
        jobs = self._grouped_jobs(groups)
        return MadeJobs(jobs, len(groups), faults)

    def _fault_alone(self, template: JobTemplate, line: bytes) -> str | None:
        """Why a row cannot be in any job, not even as the only row."""
        if len(line) > _ROWS_BYTES:
            return f"the row has {len(line):,} bytes, the limit of a job is {MOST_BODY_BYTES:,}"
        if (codec := self._codec(template)) is not None:
            try:
                codec.read(self._body([line]))
            except Refused as error:
                return str(error)
        return None

    def _grouped_jobs(self, groups: list[list[bytes]]) -> list[Job[Any] | Parcel]:
        if not groups:
            return []
        [template] = self._templates_of({}, 0, {})
        bodies = [self._body(lines) for lines in groups]
        if template.plain:
            return self._packed(template, bodies)
        return [self._job(template, body, {}) for body in bodies]

    def _body(self, lines: list[bytes]) -> bytes:
        name = msgspec.json.encode(self._layout.rows_argument)
        return b'{"args":{%b:[%b]}}' % (name, b",".join(lines))


def _with_hash(body: bytes, digest: str) -> bytes:
    fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    headers = msgspec.json.decode(fields.get("headers", b"{}"), type=dict[str, str])
    return msgspec.json.encode({**fields, "headers": {**headers, HASH: digest}})


def _nulls(column: Any) -> list[int]:
    """The rows where the column is null."""
    if not column.null_count:
        return []
    return [row for row, null in enumerate(column.is_null().to_pylist()) if null]
