"""The service Receivers: messages of the contract in, calls of `Dispatch` and of the broker out."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Any

import msgspec

from penstock.app.version import RELEASE
from penstock.broker.checks import MOST_BODY_BYTES, check_name, legible
from penstock.broker.protocol import Broker
from penstock.broker.values import Settlement
from penstock.broker.views import LEASE_SECONDS, RECEIVER, WorkerRow
from penstock.enqueue.codec import read_body
from penstock.enqueue.ids import Ids, derived_id
from penstock.errors import PenstockError, Refused, StoreFull, StoreUnreachable
from penstock.job import Job, Outcome, Unique, failed, put_back, succeeded, try_again
from penstock.manager.access import Client, ManagerAccess
from penstock.manager.contract import receivers_pb2 as messages
from penstock.manager.dispatch import HOST, MOST_CREDITS, Dispatch, outcome_at
from penstock.manager.receiver import Receiver
from penstock.manager.unread import UnreadAnswers

MOST_JOBS = 1000  # in one Enqueue, and settlements in one Settle
_NANO = 1_000_000_000
_BEAT_SECONDS = 5.0
_SETTLE_SECONDS = 45.0
AnyJob = Job[Any]
Run = Callable[..., Any]


class ReceiversService:
    """A broker, as the service Receivers of the contract."""

    def __init__(self, broker: Broker, dispatch: Dispatch, access: ManagerAccess, run: Run) -> None:
        self._broker = broker
        self._dispatch = dispatch
        self._access = access
        self._run = run  # on one of the threads that speak to the store
        self._ids = Ids(broker.clock)
        self._streams: set[UnreadAnswers] = set()
        self._beating: asyncio.Task[None] | None = None
        self._stopping = False

    async def enqueue(self, request: Any, context: Any) -> Any:
        client = await self._access.client(context)
        async with _as_status(context):
            client.check("enqueue")
            return await self._run(self._enqueue, request, client)
        return None

    def _enqueue(self, request: Any, client: Client) -> Any:
        if len(request.jobs) > MOST_JOBS:
            raise Refused(f"{len(request.jobs):,} jobs: at most {MOST_JOBS:,} in one call")
        jobs = [self._new_job(each, client) for each in request.jobs]
        stored = self._broker.enqueue(jobs)
        return messages.EnqueueAnswer(ids=[stored.standing.get(job.id, job.id) for job in jobs])

    def _new_job(self, new: Any, client: Client) -> AnyJob:
        queue = new.queue or "default"
        _check_queue(client, queue)
        arguments = _json(new.arguments or b"{}", f"the arguments of {new.task}")
        if not isinstance(msgspec.json.decode(arguments), dict):
            raise Refused(f"the arguments of {new.task} are a JSON object: name to value")
        once = derived_id("receivers", client.name, new.once) if new.once else ""
        return Job(
            task=new.task,
            body=b'{"args":%s}' % bytes(arguments),
            id=once or self._ids.first(),
            queue=queue,
            run_at=new.due_at / _NANO if new.due_at else None,
            priority=new.priority,
            unique=Unique(new.unique_key) if new.unique_key else None,
            tags=dict(new.tags),
            app=new.app,
            version=new.version or 1,
        )

    async def receive(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        client = await self._access.client(context)
        async with _as_status(context):
            client.check("claim")
            first = await anext(aiter(requests))
            unread = UnreadAnswers()
            timeout = first.job_timeout / _NANO if first.job_timeout else None
            row = _row(first, client)
            receiver = Receiver(row, unread.add_jobs, unread.behind, timeout)
            await self._run(self._take_over, receiver, list(first.holding))
            self._dispatch.join(receiver)
            self._begin_beats(unread)
            reading = asyncio.create_task(self._read(receiver, unread, first, requests))
            reading.add_done_callback(lambda _: unread.stir())
            try:
                yield self._answer([], [])
                while not context.done() and not _failed(reading):
                    if self._stopping:
                        raise StoreUnreachable("this manager is stopping")
                    jobs, settled = await unread.take()
                    yield self._answer(jobs, settled)
                await reading  # raises what it ended with
            finally:
                reading.cancel()
                self._streams.discard(unread)
                self._dispatch.leave(receiver, unread.left())

    def stop(self) -> None:
        """End all streams, so that receivers turn to another manager. On the event loop."""
        self._stopping = True
        for unread in self._streams:
            unread.stir()
        if self._beating is not None:
            self._beating.cancel()

    def _begin_beats(self, unread: UnreadAnswers) -> None:
        self._streams.add(unread)
        if self._beating is None or self._beating.done():
            self._beating = asyncio.create_task(self._beat())

    async def _beat(self) -> None:
        """A sign of life for all streams, while there are any."""
        while self._streams:
            await asyncio.sleep(_BEAT_SECONDS)
            for unread in self._streams:
                unread.stir()

    def _take_over(self, receiver: Receiver, holding: list[str]) -> None:
        """What this name was sent before, and does not know of, was lost on the way."""
        self._broker.renew([receiver.row], holding)
        jobs = self._broker.get_many(holding).values()
        receiver.hold(job for job in jobs if job.worker == receiver.row.id)

    async def _read(
        self, receiver: Receiver, unread: UnreadAnswers, first: Any, requests: AsyncIterator[Any]
    ) -> None:
        """Grants credits and settles, as the messages of the stream say."""
        await self._obey(receiver, unread, first)
        async for request in requests:
            await self._obey(receiver, unread, request)

    async def _obey(self, receiver: Receiver, unread: UnreadAnswers, request: Any) -> None:
        if request.credits > MOST_CREDITS:
            raise Refused(
                f"{request.credits:,} credits: at most {MOST_CREDITS:,} are open at a time"
            )
        if request.settlements:
            sent = list(request.settlements)

            def answer(states: list[Any]) -> None:
                unread.add_settled(
                    messages.Settled(id=each.id, attempt=each.attempt, state=state)
                    for each, state in zip(sent, states, strict=True)
                )

            await self._settle(sent, receiver.row.id, answer)
        self._dispatch.heard(receiver, request.credits)

    def _answer(self, jobs: Sequence[AnyJob], settled: Sequence[Any]) -> Any:
        return messages.ReceiveAnswer(
            jobs=[_received(job) for job in jobs],
            now=int(self._broker.clock.now() * _NANO),
            lease=int(LEASE_SECONDS * _NANO),
            settled=settled,
        )

    async def settle(self, request: Any, context: Any) -> Any:
        client = await self._access.client(context)
        async with _as_status(context):
            client.check("settle")
            answered: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()

            def answer(states: list[Any]) -> None:
                if not answered.done():  # else: the caller is gone
                    answered.set_result(states)

            row_id = _row_id(client, request.receiver)
            await self._settle(request.settlements, row_id, answer)
            states = await asyncio.wait_for(answered, _SETTLE_SECONDS)
            return messages.SettleAnswer(states=states)
        return None

    async def _settle(
        self, settlements: Sequence[Any], row_id: str, answer: Callable[[list[Any]], None]
    ) -> None:
        """`answer` is called with what became of each, once the store has said so."""
        if len(settlements) > MOST_JOBS:
            raise Refused(f"{len(settlements):,} settlements: at most {MOST_JOBS:,} at once")
        states = [messages.STALE] * len(settlements)
        places: list[int] = []
        pairs: list[Settlement] = []
        outcomes = [self._outcome(each) for each in settlements]  # wrong ones refuse all
        jobs = await self._jobs(settlements, row_id)
        for place, (outcome, job) in enumerate(zip(outcomes, jobs, strict=True)):
            if job is None:
                continue
            if outcome is None:
                hold = settlements[place].extend.hold
                if self._dispatch.extend(row_id, job, hold / _NANO if hold > 0 else None):
                    states[place] = messages.SETTLED
                continue
            places.append(place)
            pairs.append((job, outcome_at(outcome, job.claimed_at, self._broker.clock.now())))

        def applied(each: list[bool]) -> None:
            for place, settled in zip(places, each, strict=True):
                states[place] = messages.SETTLED if settled else messages.STALE
            answer(states)

        if pairs:
            self._dispatch.settle(pairs, applied)
        else:
            answer(states)

    async def _jobs(self, settlements: Sequence[Any], row_id: str) -> list[AnyJob | None]:
        """The jobs as this receiver holds them; of another manager's, as the store says."""
        jobs = [self._dispatch.held_by(row_id, each.id, each.attempt) for each in settlements]
        unknown = [each.id for each, job in zip(settlements, jobs, strict=True) if job is None]
        if not unknown:
            return jobs
        stored: dict[str, AnyJob] = await self._run(self._broker.get_many, unknown)
        return [
            job or _held(stored.get(each.id), each.attempt, row_id)
            for each, job in zip(settlements, jobs, strict=True)
        ]

    def _outcome(self, settlement: Any) -> Outcome | None:
        """How an attempt ended; None: it goes on."""
        now = self._broker.clock.now()
        match settlement.WhichOneof("outcome"):
            case "succeed":
                result = settlement.succeed.result
                return succeeded(bytes(_json(result, "the result")) if result else None)
            case "fail":
                return failed(legible(settlement.fail.error) or "the receiver gave no reason")
            case "retry_later":
                later = settlement.retry_later
                error = legible(later.error) or "the receiver gave no reason"
                return try_again(error, now + max(0, later.after) / _NANO)
            case "put_back":
                after = max(0, settlement.put_back.after) / _NANO
                return put_back("receiver", now + after if after else None)
            case "extend":
                return None
            case _:
                raise Refused(f"the settlement of {settlement.id} has no outcome")


def _failed(task: asyncio.Task[None]) -> bool:
    """Whether the receiver sent what is refused. That it sends nothing more is no failure."""
    return task.done() and task.exception() is not None


def _held(job: AnyJob | None, attempt: int, row_id: str) -> AnyJob | None:
    fits = job is not None and job.attempt == attempt and job.worker == row_id
    return job if fits else None


def _row_id(client: Client, receiver: str) -> str:
    """Of one client no other can be named."""
    check_name("receiver", receiver)
    return f"{RECEIVER}{client.name}/{receiver}"


def _row(first: Any, client: Client) -> WorkerRow:
    if not first.tasks:
        raise Refused("the first message names the tasks that the receiver runs")
    for queue in first.queues:
        _check_queue(client, queue)
    queues = tuple(first.queues) or (
        None if client.queues is None else tuple(sorted(client.queues))
    )
    return WorkerRow(
        id=_row_id(client, first.receiver),
        app=first.app,
        tasks=dict.fromkeys(first.tasks, first.version or 1),
        queues=queues,
        host=HOST,  # of its manager
        pid=os.getpid(),
        penstock=RELEASE,
    )


def _check_queue(client: Client, queue: str) -> None:
    if client.queues is not None and queue not in client.queues:
        raise Refused(f"the token of {client.name} is not of the queue {queue!r}")


def _json(text: bytes, what: str) -> msgspec.Raw:
    if len(text) > MOST_BODY_BYTES:
        raise Refused(f"{what}: {len(text):,} bytes, and the limit is {MOST_BODY_BYTES:,}")
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(f"{what}: no JSON: {error}") from None
    return msgspec.Raw(text)


def _received(job: AnyJob) -> Any:
    return messages.ReceivedJob(
        id=job.id,
        attempt=job.attempt,
        task=job.task,
        arguments=_arguments(job),
        queue=job.queue,
        due_at=int(job.run_at * _NANO) if job.run_at else 0,
        enqueued_at=int(job.enqueued_at * _NANO),
        tags=job.tags,
        version=job.version,
        failures=job.failures,
    )


def _arguments(job: AnyJob) -> bytes:
    try:
        return bytes(read_body(job.body).args)
    except Refused:
        return b"{}"


@contextlib.asynccontextmanager
async def _as_status(context: Any) -> AsyncGenerator[None]:
    """Errors of Penstock as statuses of gRPC, with the sentence."""
    import grpc

    codes: Any = grpc.StatusCode
    try:
        yield
    except StopAsyncIteration:
        await context.abort(codes.INVALID_ARGUMENT, "the stream ended before its first message")
    except Refused as error:
        await context.abort(codes.INVALID_ARGUMENT, str(error))
    except StoreFull as error:
        await context.abort(codes.RESOURCE_EXHAUSTED, str(error))
    except (PenstockError, TimeoutError) as error:
        await context.abort(codes.UNAVAILABLE, str(error) or "the store does not answer")
