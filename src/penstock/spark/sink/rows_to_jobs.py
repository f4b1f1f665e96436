"""Rows into jobs, a batch of Arrow at a time.

The way of a plain row is short on purpose: a value, an object, a line of JSON, a place in a parcel,
and all four in loops that run in C. Whatever says something about each single job takes a turn in
Python.
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
from penstock.enqueue.secrets import redact
from penstock.errors import Refused
from penstock.job import Job, Lane, Parcel, cut
from penstock.spark.row_ids import row_id
from penstock.spark.session_store import named_app
from penstock.spark.sink.column_roles import Layout, task_of
from penstock.spark.sink.json_values import Faults, seconds_of, values_of
from penstock.spark.sink.options import ALONE, SinkOptions
from penstock.task.option_checks import (
    check_identifier,
    check_priority,
    check_short_text,
    check_tags,
    check_task,
)
from penstock.task.task import Task

_SHOWN = 300  # characters of a row that a refusal shows
_encode_lines = msgspec.json.Encoder().encode_lines


class MadeJobs(NamedTuple):
    """What became of the rows of a batch."""

    jobs: list[Job[Any] | Parcel]
    number: int  # of jobs
    faults: Faults


class Recipe(NamedTuple):
    """What the jobs of one task, queue and priority have in common."""

    lane: Lane
    options: bytes = b"{}"
    codec: ArgumentCodec | None = None
    tags: dict[str, str] = {}  # noqa: RUF012  never changed
    search: tuple[str, ...] = ()
    at_most_once: bool = False

    @property
    def plain(self) -> bool:
        return not (self.tags or self.search or self.at_most_once)


class RecipeText(msgspec.Struct, frozen=True):
    """A recipe as text, for executors that cannot import the app."""

    lane: Lane
    options: bytes
    tags: dict[str, str]
    search: tuple[str, ...]
    at_most_once: bool


def recipe_text(task: Task[..., Any]) -> str:
    """What the jobs of a task have in common, as an option."""
    recipe = _recipe_of(task)
    fields = (recipe.lane, recipe.options, recipe.tags, recipe.search, recipe.at_most_once)
    return msgspec.json.encode(RecipeText(*fields)).decode()


def _recipe_of(
    task: Task[..., Any], queue: str | None = None, priority: int | None = None
) -> Recipe:
    chosen = task.chosen
    queue = queue or chosen.queue
    priority = chosen.priority if priority is None else priority
    return Recipe(
        Lane(queue, task.name, task.version, priority, task.runs_on, task.app_name),
        msgspec.json.encode(chosen.body),
        task.codec,
        dict(chosen.tags),
        task.search,
        task.at_most_once,
    )


class Maker:
    """Makes the jobs of one part of a write."""

    def __init__(self, options: SinkOptions, layout: Layout, app: App | None, ids: Ids) -> None:
        self._options = options
        self._layout = layout
        self._app = app
        self._ids = ids
        self._recipes: dict[tuple[Any, ...], Recipe | str] = {}
        names = [f"c{place}" for place in range(len(layout.arguments))]
        renamed = dict(zip(names, layout.arguments, strict=True))
        self._row = msgspec.defstruct("Row", names, rename=renamed, gc=False)
        self._call: Any = msgspec.defstruct("Call", ["args"], gc=False)
        self._alone = bool(ALONE & layout.roles.keys())
        self._mixed = bool({"task", "queue", "priority"} & layout.roles.keys())
        self._left: list[bytes] = []  # rows that wait for others to fill a job

    def make(self, batch: Any) -> MadeJobs:
        """The jobs of these rows, and the rows that cannot become one."""
        faults: Faults = {}
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        rows = self._rows(columns, batch.num_rows, faults)
        if self._layout.rows_argument is not None:
            return self._make_grouped(rows, faults)
        bodies = _encode_lines(map(self._call, rows)).split(b"\n")[:-1]
        about = self._about(columns, faults)
        recipes = self._recipes_of(about, len(bodies), faults)
        self._check(bodies, recipes, faults)
        jobs = self._jobs(bodies, recipes, about, faults)
        return MadeJobs(jobs, len(bodies) - len(faults), faults)

    def make_rest(self) -> MadeJobs:
        """The last rows, which fill no job."""
        rows, self._left = self._left, []
        groups = [rows] if rows else []
        return MadeJobs(self._filled(groups), len(groups), {})

    def shown(self, batch: Any, row: int) -> str:
        """A row as a refusal shows it, without what its task declares secret."""
        columns = dict(zip(batch.schema.names, batch.slice(row, 1).columns, strict=True))
        [body] = _encode_lines(map(self._call, self._rows(columns, 1, {}))).split(b"\n")[:-1]
        recipes = self._recipes_of(self._about(columns, {}), 1, {})
        body = redact(add_options(body, recipes[0].options)) if recipes else body
        shown = msgspec.json.encode(msgspec.json.decode(body)["args"]).decode()
        return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"

    def _rows(self, columns: dict[str, Any], rows: int, faults: Faults) -> list[Any]:
        """The arguments of each row."""
        layout = self._layout
        if (struct := layout.roles.get("args")) is not None:
            for row in _nulls(columns[struct]):
                faults[row] = f"column {struct} is null, and holds the arguments"
            columns = dict(zip(layout.arguments, columns[struct].flatten(), strict=True))
        values = [values_of(name, columns[name], faults) for name in layout.arguments]
        for name in layout.never_null:
            for row in _nulls(columns[name]):
                faults.setdefault(row, f"column {name} is null, and the task takes no None")
        return list(map(self._row, *values)) if values else [self._row() for _ in range(rows)]

    def _about(self, columns: dict[str, Any], faults: Faults) -> dict[str, list[Any]]:
        """What the columns say about each job beside its arguments."""
        about: dict[str, list[Any]] = {}
        for role, column in self._layout.roles.items():
            if role == "at":
                about[role] = seconds_of(column, columns[column], faults)
            elif role != "args":
                about[role] = columns[column].to_pylist()
            if role in {"id", "task"}:
                for row in _nulls(columns[column]):
                    faults.setdefault(row, f"column {column} is null, and names the {role}")
        return about

    def _recipes_of(
        self, about: dict[str, list[Any]], rows: int, faults: Faults
    ) -> Sequence[Recipe]:
        """A recipe per row; only one, if it is the same for all."""
        if not self._mixed:
            recipe = self._recipe(None, None, None)
            if isinstance(recipe, str):
                raise Refused(recipe)
            return [recipe]
        none = [None] * rows
        keys = zip(*(about.get(role, none) for role in ("task", "queue", "priority")), strict=True)
        recipes: list[Recipe] = []
        for row, key in enumerate(keys):
            recipe = self._recipe(*key)
            if isinstance(recipe, str):
                faults.setdefault(row, recipe)
                recipe = Recipe(Lane("default", "none"))
            recipes.append(recipe)
        return recipes

    def _recipe(self, task: str | None, queue: str | None, priority: int | None) -> Recipe | str:
        key = (task, queue, priority)
        if key not in self._recipes:
            try:
                self._recipes[key] = self._new_recipe(*key)
            except Refused as error:
                self._recipes[key] = str(error)
        return self._recipes[key]

    def _new_recipe(self, task: str | None, queue: str | None, priority: int | None) -> Recipe:
        options = self._options
        if options.recipe is not None:
            told = msgspec.json.decode(options.recipe, type=RecipeText)
            return Recipe(told.lane, told.options, None, told.tags, told.search, told.at_most_once)
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
            return Recipe(msgspec.structs.replace(lane, app=app_name))
        return _recipe_of(task_of(self._app, name), queue, priority)

    def _check(self, bodies: list[bytes], recipes: Sequence[Recipe], faults: Faults) -> None:
        """Look at each row that may not be a call of its task, as the worker will."""
        if bodies and max(map(len, bodies)) > MOST_BODY_BYTES:
            for row, body in enumerate(bodies):
                if len(body) > MOST_BODY_BYTES:
                    fault = (
                        f"the arguments take {len(body):,} bytes, the limit is {MOST_BODY_BYTES:,}"
                    )
                    faults.setdefault(row, fault)
        if not self._layout.unchecked:
            return
        for row, body in enumerate(bodies):
            codec = recipes[row if self._mixed else 0].codec
            if codec is None or row in faults:
                continue
            try:
                codec.read(body)
            except Refused as error:
                faults[row] = str(error)

    def _jobs(
        self,
        bodies: list[bytes],
        recipes: Sequence[Recipe],
        about: dict[str, list[Any]],
        faults: Faults,
    ) -> list[Job[Any] | Parcel]:
        if not self._mixed and not self._alone and recipes[0].plain:
            if faults:
                bodies = [body for row, body in enumerate(bodies) if row not in faults]
            return self._packed(recipes[0], bodies)
        jobs: list[Job[Any] | Parcel] = []
        packed: dict[Lane, tuple[Recipe, list[bytes]]] = {}
        for row, body in enumerate(bodies):
            recipe = recipes[row if self._mixed else 0]
            if row in faults:
                continue
            if not self._alone and recipe.plain:
                packed.setdefault(recipe.lane, (recipe, []))[1].append(body)
                continue
            try:
                said = {role: values[row] for role, values in about.items()}
                jobs.append(self._job(recipe, body, said))
            except Refused as error:
                faults[row] = str(error)
        for recipe, some in packed.values():
            jobs += self._packed(recipe, some)
        return jobs

    def _packed(self, recipe: Recipe, bodies: list[bytes]) -> list[Job[Any] | Parcel]:
        if recipe.options != b"{}":
            bodies = [add_options(body, recipe.options) for body in bodies]
        return [*cut(recipe.lane, bodies, self._ids.first)]

    def _job(self, recipe: Recipe, body: bytes, about: dict[str, Any]) -> Job[Any]:
        lane = recipe.lane
        key, unique = (
            check_short_text("key", about.get("key")),
            check_short_text("unique", about.get("unique")),
        )
        tags = {**recipe.tags, **check_tags(dict(about.get("tags") or ()))}
        found: Any = msgspec.json.decode(body)["args"] if recipe.search else None
        searched = {path: argument_text(found, path) for path in recipe.search}
        if "id" in about:
            id = row_id(lane.task, about["id"], key=key, unique=unique, app=lane.app)
        else:
            id = self._ids.first(bucket_by(unique, key))
        return Job(
            task=lane.task,
            body=add_options(body, recipe.options),
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
            at_most_once=recipe.at_most_once,
        )

    def _make_grouped(self, rows: list[Any], faults: Faults) -> MadeJobs:
        """As many rows in a job as `rows_per_job` says, or as fit into one."""
        lines = _encode_lines(rows).split(b"\n")[:-1]
        [recipe] = self._recipes_of({}, len(lines), faults)
        for row, line in enumerate(lines):
            if row not in faults and (fault := self._fault_alone(recipe, line)):
                faults[row] = fault
        most = self._options.rows_per_job or 1
        groups: list[list[bytes]] = []
        size = sum(map(len, self._left))
        for row, line in enumerate(lines):
            if row in faults:
                continue
            if len(self._left) == most or size + len(line) + len(self._left) > _ROWS_BYTES:
                groups.append(self._left)
                self._left, size = [], 0
            self._left.append(line)
            size += len(line)
        jobs = self._filled(groups)
        return MadeJobs(jobs, len(groups), faults)

    def _fault_alone(self, recipe: Recipe, line: bytes) -> str | None:
        """What is wrong with a row, as the only one of a job."""
        if len(line) > _ROWS_BYTES:
            return f"the row takes {len(line):,} bytes, the limit of a job is {MOST_BODY_BYTES:,}"
        if recipe.codec is not None:
            try:
                recipe.codec.read(self._body([line]))
            except Refused as error:
                return str(error)
        return None

    def _filled(self, groups: list[list[bytes]]) -> list[Job[Any] | Parcel]:
        if not groups:
            return []
        [recipe] = self._recipes_of({}, 0, {})
        bodies = [self._body(lines) for lines in groups]
        if recipe.plain:
            return self._packed(recipe, bodies)
        return [self._job(recipe, body, {}) for body in bodies]

    def _body(self, lines: list[bytes]) -> bytes:
        name = msgspec.json.encode(self._layout.rows_argument)
        return b'{"args":{%b:[%b]}}' % (name, b",".join(lines))


_ROWS_BYTES = MOST_BODY_BYTES - 1024  # for the argument's name, and options


def _nulls(column: Any) -> list[int]:
    """The rows where the column is null."""
    if not column.null_count:
        return []
    return [row for row, null in enumerate(column.is_null().to_pylist()) if null]
