"""A task with options for its next jobs: what `task.options(...)` returns, and what a Task is, too.

Options come here checked (`option_checks`), so that making a job only puts values together. Outputs
of other jobs among the arguments make it part of a flow.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar

import msgspec

from penstock.app.clock import GUESSED_CLOCK
from penstock.broker.filter import argument_text
from penstock.broker.protocol import Broker
from penstock.broker.queue_options import OF_JOBS, Options
from penstock.broker.values import Batch
from penstock.enqueue.codec import JobOptions, add_options
from penstock.enqueue.handle import Handle
from penstock.enqueue.ids import Ids, bucket_by, bucket_for, bucket_of
from penstock.enqueue.provisional import Provisional
from penstock.errors import Refused
from penstock.flows.compose import Given, Jobs, outputs_among
from penstock.flows.flow import Fill, OnFailure
from penstock.flows.outputs import Output, OutputInside, taken_out
from penstock.job import CRASH_BUDGET, EMPTY_BODY, Job, Lane, Unique, cut
from penstock.rules.key_order import ORDERED
from penstock.run.inherited_tags import inherited_tags
from penstock.task.option_checks import check_short_text, check_texts

if TYPE_CHECKING:
    from penstock.task.task import Task

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
T = TypeVar("T")

ROWS_PER_COMMIT = 10_000
_MEMBER_BYTES = 70  # what a flow adds to a body, without what is to be filled in


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """Options of jobs, checked."""

    queue: str
    priority: int = 0
    delay: float | None = None
    at: float | None = None
    late: bool = False
    key: str | None = None
    unique: Unique | None = None
    tags: Mapping[str, str] = {}
    expires: float | None = None
    body: JobOptions = msgspec.field(default_factory=JobOptions)
    connection: Any = None
    on_failure: OnFailure | None = None  # None: as the flow says


class Prepared(Generic[P, R]):
    """Makes and stores jobs of one task, each with the same options."""

    def __init__(self, task: Task[P, R], chosen: Chosen) -> None:
        self._task = task
        self._chosen = chosen
        self._plain = (
            chosen.delay is None
            and chosen.at is None
            and chosen.key is None
            and chosen.unique is None
            and chosen.expires is None
            and not chosen.tags
            and not task.search
            and not task.at_most_once
        )
        self._bucket = bucket_by(chosen.unique and chosen.unique.key, chosen.key)
        self._queue_options: Options | None = None  # not before: a queue may be registered later
        self._body_options = chosen.body
        self._options = b"{}"

    def _follow_queue(self, options: Options) -> None:
        """What goes into the bodies of its jobs, as the queue's options are now."""
        body, app = self._chosen.body, self._task.app
        said = {name for name in OF_JOBS if getattr(body, name, None) is not None}
        app.queues.check_said(self._chosen.queue, self._task.name, said | self._task.said)
        budget = body.crash_budget or options.crash_budget or app.crash_budget
        self._body_options = msgspec.structs.replace(
            body, crash_budget=None if budget == CRASH_BUDGET else budget or None
        )
        self._options = msgspec.json.encode(self._body_options)
        self._queue_options = options

    @cached_property
    def _lane(self) -> Lane:
        # Not before it is needed: the app's name may be read from penstock.toml.
        task, chosen = self._task, self._chosen
        own = (chosen.queue, task.name, task.version, chosen.priority, task.runs_on)
        return Lane(*own, task.app_name)

    @cached_property
    def _run_of_ids(self) -> str | None:
        # Jobs that cannot travel in a parcel must not leave gaps in the ids of those that can.
        return repr(self._lane) if self._plain else None

    @property
    def chosen(self) -> Chosen:
        """The options of its jobs."""
        return self._chosen

    @property
    def task(self) -> Task[P, R]:
        """The task, whatever its options."""
        return self._task

    def template(self) -> Job[R]:
        """What jobs are made of, without arguments, id and times."""
        self._follow_queue(self._task.app.queues.of(self._chosen.queue))
        made = self._make(EMPTY_BODY, self._options)
        blank: dict[str, Any] = {"id": "", "owner": None, "provisional": None, "final": None}
        return msgspec.structs.replace(made, **blank, run_at=None, expires_at=None, search={})

    def subscribe(
        self,
        pattern: str,
        *,
        where: str | Sequence[str] = (),
        name: str | None = None,
        app: str | None = None,
    ) -> Self:
        """Receive what is published under topics that fit, each as a job: `order.*`, `order.#`.

        What was published is the first argument; a parameter `topic` receives the topic. `where` is
        a filter on arguments and tags, as `arg.order.country:FR -tag.test:yes`. `name` is what the
        subscription is removed by; the task's name. `app`: the program whose publications are
        meant; that of this one. It is stored when a worker of this program starts, or when this
        program publishes for the first time.
        """
        self._task.app.topics.add(self, pattern, where=where, name=name, app=app)
        return self

    @property
    def parameters(self) -> list[str]:
        """The names that its function calls its arguments, in order."""
        return list(inspect.signature(self._task.function).parameters)

    def job(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """A job, as a value: not stored yet. `job.enqueue()` or `app.enqueue([...])` stores it."""
        if self._chosen.connection is not None:
            raise Refused(
                "options(connection=...).job(...): a job carries no connection;"
                " use enqueue(...), or app.enqueue(jobs, connection=...)"
            )
        body, given = self._encode(args, kwargs)
        return self._make(body, self._encoded_options(), given=given)

    def map(
        self: Prepared[Concatenate[T, Q], R],
        items: Iterable[T],
        /,
        *args: Q.args,
        **kwargs: Q.kwargs,
    ) -> Jobs[R]:
        """A job per item, which is its first argument; the others are the same for all of them.

        Not stored yet: `.output` goes into another job, or `.enqueue()` stores them. Who needs the
        output waits for all of them and gets a list, in the order of the items.
        """
        if self._chosen.connection is not None or self._chosen.unique is not None:
            raise Refused(
                "map(...): options(connection=...) and options(unique=...) are for one job; hand"
                " the connection to app.enqueue(jobs, connection=...)"
            )
        if isinstance(items, Output):
            raise Refused(
                f"map({items!r}): how many there are is not known before it has run; let a task"
                " take the list, and current_job().spawn(...) a job per item"
            )
        needs: dict[str, Any] = {}
        fills: list[tuple[Fill, ...]] = []
        bodies: list[bytes] = []
        for body, given in self._encode_each(
            _iterator_of(items, "map", "as map([1, 2])"), args, kwargs
        ):
            bodies.append(body)
            fills.append(() if given is None else given.fills[0])
            needs |= {} if given is None else {need.id: need for need in given.needs}
        if not bodies:  # nobody runs; whom they would have needed is needed all the same
            _, outputs = taken_out([args, kwargs], repr)
            needs = {need.id: need for need in outputs_among(outputs)[0]}
        options = self._encoded_options()
        whole = [add_options(body, options) for body in bodies]
        parts: list[Any]
        ids = self._task.app.ids
        if self._plain:
            extra_bytes = _MEMBER_BYTES + (len(msgspec.json.encode(fills[0])) if fills else 0)
            parts = [*cut(self._lane, whole, ids.first, extra_bytes)]
        else:
            parts = [self._make(body, b"{}", ids=ids) for body in whole]
        shared = fills[:1] if all(each == fills[0] for each in fills) else fills
        task = self._task
        given = Given(tuple(needs.values()), tuple(shared), self._chosen.on_failure)
        id = ids.first()
        made = Provisional(id) if ids.clock is GUESSED_CLOCK else None
        return Jobs(task.app, task.name, id, parts, given if needs else None, provisional=made)

    def _encode_each(
        self, items: Iterable[Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Iterator[tuple[bytes, Given | None]]:
        """A body per item. Outputs among the other arguments are looked for once, not each time."""
        encode_first, shared = None, None
        for item in items:
            if encode_first is not None:
                try:
                    yield encode_first(item), shared
                    continue
                except OutputInside:  # in this item, as well
                    pass
            body, given = self._encode((item, *args), kwargs)
            yield body, given
            if given is not None and encode_first is None and not _holds_output(item):
                encode_first, shared = self._task.codec.first_argument_encoder(body), given

    def _encode(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[bytes, Given | None]:
        """The arguments, and what of them other jobs give."""
        codec = self._task.codec
        try:
            return codec.encode(args, kwargs), None
        except OutputInside:
            body, outputs = codec.encode_around_outputs(args, kwargs)
        needs, fills = outputs_among(outputs)
        return body, Given(tuple(needs), (fills,), self._chosen.on_failure) if needs else None

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Store a job; once this returned it will run, whatever happens to this process."""
        app = self._task.app
        if self._chosen.late:
            return _enqueue_late(self, args, kwargs)
        connection = app.connection_for(self._chosen.connection)
        body, given = self._encode(args, kwargs)
        app.know_time()
        joined, final = connection is not None, given is None
        job = self._make(body, self._encoded_options(), joined=joined, given=given, final=final)
        if not final:  # it needs other jobs, which are stored with it
            return app.enqueue([job], connection=connection)[0]
        standing = app.store([job], connection).standing
        return Handle(app, standing.get(job.id, job.id), stored=job.id not in standing)

    async def enqueue_async(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """As `enqueue`, without holding up the event loop."""
        if self._chosen.late:
            import asyncio  # 12 ms of every start, for the few that need it

            return await asyncio.to_thread(_enqueue_late, self, args, kwargs)
        app, connection = self._task.app, self._chosen.connection
        body, given = self._encode(args, kwargs)
        await app.know_time_async()
        joined, final = connection is not None, given is None
        job = self._make(body, self._encoded_options(), joined=joined, given=given, final=final)
        if not final:  # it needs other jobs, which are stored with it
            return (await app.enqueue_async([job], connection=connection))[0]
        standing = (await app.store_async([job], connection)).standing
        return Handle(app, standing.get(job.id, job.id), stored=job.id not in standing)

    def enqueue_many(
        self, rows: Iterable[tuple[Any, ...] | Mapping[str, Any]], id: str | None = None
    ) -> Batch:
        """Store a job per row of arguments (tuples or dicts), with one commit per 10,000.

        With an `id` the call may be made again, with the same rows: it goes on where it stopped.
        Without one each call stores its rows anew. Returns how many rows are stored under the id.
        """
        if self._chosen.unique is not None:
            raise Refused("enqueue_many: options(unique=...) would let only the first row through")
        check_short_text("id", id)
        tracing = self._task.app.tracing
        if tracing is None:
            return self._enqueue_many(rows, id)
        with tracing.sending_many(self._lane) as sending:
            batch = self._enqueue_many(rows, id, sending.body_with_header)
            sending.jobs = batch.count
            return batch

    def _enqueue_many(
        self,
        rows: Iterable[tuple[Any, ...] | Mapping[str, Any]],
        id: str | None,
        add_header: Callable[[bytes], bytes] | None = None,
    ) -> Batch:
        broker, connection = self._task.app.broker_for(self._chosen.connection)
        options = self._encoded_options()
        count = self._rows_before(broker, id, connection)
        example = "rows of arguments, as enqueue_many([(1, 2), (3, 4)])"
        remaining = _iterator_of(rows, "enqueue_many", example)
        skipped = sum(1 for _ in islice(remaining, count))
        if skipped < count:
            raise Refused(
                f"batch {id!r}: {count} rows are stored, but only {skipped} were given now"
            )
        while chunk := list(islice(remaining, ROWS_PER_COMMIT)):
            bodies = self._task.codec.encode_many(chunk, count)
            if options != b"{}":
                bodies = [add_options(body, options) for body in bodies]
            if add_header is not None:
                bodies = [add_header(body) for body in bodies]
            bucket = self._bucket_of_rows(id)
            jobs = (
                cut(self._lane, bodies, partial(self._task.app.ids.first, bucket))
                if self._plain
                else [self._make(body, b"{}", bucket=bucket) for body in bodies]
            )
            carried = list(inherited_tags(jobs))
            self._send_rows(broker, carried, Batch(id, count) if id else None, connection)
            count += len(bodies)
        return Batch(id or "", count)

    def _bucket_of_rows(self, id: str | None) -> int:
        """Of all rows of one commit: one shard stores them, and counts those of a batch."""
        if self._bucket is not None:
            return self._bucket
        return bucket_of(self._task.app.ids.first()) if id is None else bucket_for(id)

    def _rows_before(self, broker: Broker, id: str | None, connection: Any) -> int:
        """How many rows an earlier call stored under this id."""
        if id is None:
            return 0
        empty = Batch(id)
        if connection is not None:
            with self._task.app.patience.mark_errors():
                return broker.enqueue([], batch=empty, connection=connection).batch
        return self._task.app.ask(lambda: broker.enqueue([], batch=empty).batch)

    def _send_rows(
        self, broker: Broker, jobs: list[Any], batch: Batch | None, connection: Any
    ) -> None:
        app, sent = self._task.app, False
        if connection is not None:
            with app.patience.mark_errors():
                broker.enqueue(jobs, batch=batch, connection=connection)
            return

        def send() -> None:
            nonlocal sent
            # A batch is not sent again whose answer alone was lost: it would be refused.
            before = broker.enqueue([], batch=Batch(batch.id)).batch if sent and batch else None
            if batch is not None and before not in {None, batch.count}:
                return
            sent = True
            broker.enqueue(jobs, batch=batch)

        app.ask(send)

    def _encoded_options(self) -> bytes:
        """What goes into the body beside the arguments; hooks may add headers, once per call."""
        app, chosen = self._task.app, self._chosen
        if chosen.late:
            raise Refused("late=True is for enqueue(...): a job that is made is there at once")
        queue = app.queues.of(chosen.queue)
        if queue is not self._queue_options:
            self._follow_queue(queue)
        if chosen.key is None and queue.order in ORDERED:
            raise Refused(
                f"queue {chosen.queue} is ordered by key, and this job has none: "
                'enqueue it with options(key="..."), or into another queue'
            )
        hooks = app.enqueue_hooks
        if not hooks:
            return self._options
        headers = dict(chosen.body.headers)
        for hook in hooks:
            hook(headers, self._task)
        headers = check_texts("headers", headers)
        return msgspec.json.encode(msgspec.structs.replace(self._body_options, headers=headers))

    def _make(
        self,
        body: bytes,
        options: bytes,
        *,
        joined: bool = False,
        given: Given | None = None,
        ids: Ids | None = None,
        final: bool = False,
        bucket: int | None = None,
    ) -> Job[R]:
        task, chosen, lane = self._task, self._chosen, self._lane
        app = task.app
        ids = ids or app.ids  # whose clock is that of all its times, also if the store opens now
        run_at, expires_at = chosen.at, None
        if chosen.delay is not None:
            run_at = ids.clock.now() + chosen.delay
        if chosen.expires is not None:
            expires_at = ids.clock.now() + chosen.expires
        # In the caller's transaction it is not committed for a while: jobs whose ids followed on
        # from its own would have to wait for that.
        bucket = self._bucket if bucket is None else bucket
        id = ids.first(bucket) if joined else ids.next(self._run_of_ids, bucket)
        guessed = ids.clock is GUESSED_CLOCK
        return Job(
            task=lane.task,
            body=add_options(body, options),
            id=id,
            queue=lane.queue,
            version=lane.version,
            priority=lane.priority,
            run_at=run_at,
            key=chosen.key,
            unique=chosen.unique,
            runs_on=lane.runs_on,
            app=lane.app,
            tags=chosen.tags,
            search=_search_texts(task.search, body) if task.search else {},
            expires_at=expires_at,
            at_most_once=task.at_most_once,
            owner=app,
            given=given,
            provisional=Provisional(id, chosen.delay is not None) if guessed else None,
            final=id if final else None,
        )


def _iterator_of(rows: Iterable[Any], what: str, example: str) -> Iterator[Any]:
    try:
        return iter(rows)
    except TypeError:
        raise Refused(f"{what}({rows!r}): {example}") from None


def _holds_output(item: Any) -> bool:
    _, outputs = taken_out([item], repr)
    return bool(outputs)


def _search_texts(paths: tuple[str, ...], body: bytes) -> dict[str, str]:
    arguments = msgspec.json.decode(body)["args"]
    outputs = {path: argument_text(arguments, path) for path in paths}
    return {path: text for path, text in outputs.items() if text is not None}


def _enqueue_late(task: Prepared[..., Any], args: Any, kwargs: Any) -> Handle[Any]:
    from penstock.schedules.late import enqueue_late  # it makes schedules of what is here

    return enqueue_late(task, args, kwargs)
