"""Live numbers by server-sent events: one read of the store a second for all browsers together.

Nobody watches: nothing is read. Every stream has a queue of its own. A reader that does not keep up
is dropped, and a stream ends after ten minutes; the browser then connects again, and its session is
checked again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING

import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from penstock.broker.position import BEGINNING, Position
from penstock.broker.views import PLACES, Count, Event, by_queue
from penstock.errors import PenstockError, Refused
from penstock.operate.access_list import AccessList
from penstock.operate.counts import fullest_first, totals
from penstock.operate.roles import Person, Role
from penstock.web.checked_store import CheckedStore
from penstock.web.guard import Refusal
from penstock.web.request import WebRequest

if TYPE_CHECKING:
    from penstock.web.site import Dashboard

EVERY_SECONDS = 1.0
LONGEST_SECONDS = 600.0
MOST_STREAMS = 200
MOST_OF_A_LOGIN = 8
MOST_BEHIND = 5
MOST_ROWS = 2000
MOST_QUEUES = 50
MOST_RULES = 100
MOST_SECONDS_BEHIND = 5.0  # since the last read; then it is a gap
_REMEMBERED = 300
_SHORTEST = 0.05  # seconds
_END = b""


class QueueTick(msgspec.Struct, array_like=True):
    """Where the jobs of a queue stand, in the order of `PLACES`."""

    queue: str
    places: list[int]


class Tick(msgspec.Struct):
    """One second: the counts of jobs, and what ended since the tick before."""

    at: float
    places: dict[str, int] = {}
    queues: list[QueueTick] = []
    alive: int = 0
    succeeded: int = 0
    failed: int = 0
    seconds: float | None = None  # in which those ended; None: nothing is known of that time
    wait: float | None = None  # seconds from due to started, on average
    took: float | None = None
    more: bool = False  # more ended than were read: `seconds` is what the rows cover
    error: str | None = None
    rules: list[str] = []  # that are in force: "pause queue mail"


EventQueue = asyncio.Queue[bytes]


class Live:
    """The ticks of one dashboard, for all who see the same, and the streams that get them."""

    def __init__(self, site: Dashboard, only: AccessList | None = None) -> None:
        self._site = site
        self._only = only
        self._streams: dict[EventQueue, str] = {}  # with the name of who watches
        self._past: deque[Tick] = deque(maxlen=_REMEMBERED)
        self._position: Position | None = None
        self._read_at: float | None = None  # what ended before is told, or is no news any more
        self._ticking: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = False

    async def stream(self, request: WebRequest) -> Response:
        """The event stream for one browser."""
        if len(self._streams) >= MOST_STREAMS or self._ended:
            sentence = f"{MOST_STREAMS} browsers watch already: try again later."
            return request.site.refuse(request.http, Refusal(503, sentence))
        name = request.person.name
        if sum(watcher == name for watcher in self._streams.values()) >= MOST_OF_A_LOGIN:
            sentence = f"{name} watches in {MOST_OF_A_LOGIN} pages already: close one of them."
            return request.site.refuse(request.http, Refusal(429, sentence))
        return _EventStream(self, name)

    def end(self) -> None:
        """End all streams, from whatever thread or signal handler."""
        self._ended = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end_all)

    def _end_all(self) -> None:
        for stream in list(self._streams):
            self._drop(stream)

    def open(self, name: str) -> EventQueue:
        """A stream for this person; `close` ends it."""
        stream: EventQueue = asyncio.Queue(MOST_BEHIND)
        self._streams[stream] = name
        return stream

    def close(self, stream: EventQueue) -> None:
        self._streams.pop(stream, None)

    async def messages(self, stream: EventQueue) -> AsyncGenerator[bytes]:
        """What the stream sends, until it is dropped or has lasted long enough."""
        self._loop = asyncio.get_running_loop()
        if self._ticking is None or self._ticking.done():
            self._ticking = asyncio.create_task(self._tick_on())
        over_at = self._loop.time() + LONGEST_SECONDS
        yield _message(list(self._past))
        while self._loop.time() < over_at and stream in self._streams:
            message = await stream.get()
            if message == _END:
                return
            yield message

    async def _tick_on(self) -> None:
        """Read and send, for as long as anybody watches."""
        while self._streams:
            try:
                tick = await self._site.run(self.read)
            except PenstockError as error:
                tick = Tick(self._site.now(), error=str(error))
            except Exception:
                # Too many requests, or a store that broke: the next second is another try.
                tick = None
            if tick is not None:
                self._past.append(tick)
                message = _message([tick])
                for stream in list(self._streams):
                    try:
                        stream.put_nowait(message)
                    except asyncio.QueueFull:
                        self._drop(stream)
            await asyncio.sleep(EVERY_SECONDS)

    def _drop(self, stream: EventQueue) -> None:
        self.close(stream)
        while not stream.empty():
            stream.get_nowait()
        stream.put_nowait(_END)

    def read(self) -> Tick:
        """One read of the store, on the pool."""
        watcher = Person("dashboard", Role.VIEW, self._only)
        store = self._site.store_for(watcher, may_change=False)
        now, queues = store.now, by_queue(store.count())
        since = self._read_at
        if since is None or not 0 <= now - since <= MOST_SECONDS_BEHIND:
            # Nobody watched: what ended meanwhile did not end in this second.
            self._position, since = None, None
        if self._position is None:
            self._position = newest_position(store)
        self._read_at = now
        try:
            rows = store.history(self._position, MOST_ROWS)
        except Refused:
            # The store was replaced, perhaps by an older copy: its history is shorter.
            rows, since = [], None
            self._position = newest_position(store)
        full = len(rows) == MOST_ROWS
        if rows:
            # Live means now: what was too much for one second is skipped.
            self._position = newest_position(store) if full else rows[-1].position
        alive = sum(row.alive for row in store.workers() if row.queues != ())
        until = rows[-1].at if full else now
        seconds = None if since is None else max(until - since, _SHORTEST)
        tick = tick_of(now, queues, rows, alive=alive, more=full, seconds=seconds)
        tick.rules = [f"{rule.kind} {rule.target}" for rule in store.rules()[:MOST_RULES]]
        return tick


class _EventStream(StreamingResponse):
    """The answer to one browser; it counts as a stream from the request to its end."""

    def __init__(self, live: Live, name: str) -> None:
        self._live = live
        self._queue = live.open(name)
        super().__init__(live.messages(self._queue), media_type="text/event-stream")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._live.close(self._queue)


def newest_position(store: CheckedStore) -> Position:
    """The end of the history: reads from here on see only what is new."""
    last = store.history(None, 1)
    return last[-1].position if last else BEGINNING


def tick_of(
    now: float,
    queues: Sequence[Count],
    rows: Sequence[Event],
    *,
    alive: int,
    more: bool,
    seconds: float | None,
) -> Tick:
    """The tick of one second."""
    ended = [row for row in rows if row.kind == "attempt" and row.started_at is not None]
    waits = [
        max(0.0, row.started_at - (row.run_at or row.enqueued_at or row.started_at))
        for row in ended
        if row.started_at is not None
    ]
    runs = [max(0.0, row.at - row.started_at) for row in ended if row.started_at is not None]
    return Tick(
        at=now,
        places=totals(queues),
        queues=[
            QueueTick(each.queue, [getattr(each, place) for place in PLACES])
            for each in fullest_first(queues)[:MOST_QUEUES]
        ],
        alive=alive,
        seconds=seconds,
        succeeded=sum(row.state == "succeeded" for row in ended),
        failed=sum(row.state != "succeeded" for row in ended),
        wait=sum(waits) / len(waits) if waits else None,
        took=sum(runs) / len(runs) if runs else None,
        more=more,
    )


def _message(ticks: list[Tick]) -> bytes:
    return b"data: " + msgspec.json.encode(ticks) + b"\n\n"


async def watch(request: WebRequest) -> Response:
    return await request.site.live_for(request.person.only).stream(request)
