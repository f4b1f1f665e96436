"""Live numbers: one look at the store a second, however many browsers watch, and none if none does.

Every stream gets the same ticks out of a queue of its own. A reader that does not keep up is
dropped; its browser comes back by itself. So does one whose stream is over, and is asked again who
it is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING

import msgspec
from starlette.responses import Response, StreamingResponse

from penstock.broker.position import BEGINNING, Position
from penstock.broker.views import PLACES, Count, Event, by_queue
from penstock.errors import PenstockError, Refused
from penstock.operate.roles import Person, Role
from penstock.web.guard import Refusal
from penstock.web.request import Asked
from penstock.web.verbs import Verbs

if TYPE_CHECKING:
    from penstock.web.site import Dashboard

EVERY_SECONDS = 1.0
LONGEST_SECONDS = 600.0
MOST_STREAMS = 50
MOST_BEHIND = 5
MOST_ROWS = 2000
MOST_QUEUES = 50
_REMEMBERED = 300
_OVER = b""


class QueueTick(msgspec.Struct, array_like=True):
    """Where the jobs of a queue stand, in the order of `PLACES`."""

    queue: str
    places: list[int]


class Tick(msgspec.Struct):
    """One second: where jobs stand, and what ended since the last one."""

    at: float
    places: dict[str, int] = {}
    queues: list[QueueTick] = []
    alive: int = 0
    succeeded: int = 0
    failed: int = 0
    wait: float | None = None  # seconds from due to started, on average
    took: float | None = None
    more: bool = False  # more ended than were looked at
    error: str | None = None


class Live:
    """The ticks of one dashboard, and who gets them."""

    def __init__(self, site: Dashboard) -> None:
        self._site = site
        self._streams: set[asyncio.Queue[bytes]] = set()
        self._past: deque[Tick] = deque(maxlen=_REMEMBERED)
        self._position: Position | None = None
        self._ticking: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = False

    async def stream(self, asked: Asked) -> Response:
        """The answer to a browser that watches."""
        if len(self._streams) >= MOST_STREAMS or self._ended:
            sentence = f"{MOST_STREAMS} browsers watch already: look again later."
            return asked.site.refuse(asked.request, Refusal(503, sentence))
        return StreamingResponse(self._told(), media_type="text/event-stream")

    def end(self) -> None:
        """End all streams, from whatever thread or signal handler."""
        self._ended = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end_all)

    def _end_all(self) -> None:
        for stream in list(self._streams):
            self._drop(stream)

    async def _told(self) -> AsyncGenerator[bytes]:
        stream: asyncio.Queue[bytes] = asyncio.Queue(MOST_BEHIND)
        self._loop = asyncio.get_running_loop()
        self._streams.add(stream)
        if self._ticking is None or self._ticking.done():
            self._ticking = asyncio.create_task(self._tick_on())
        over_at = self._loop.time() + LONGEST_SECONDS
        try:
            yield _message(list(self._past))
            while self._loop.time() < over_at and stream in self._streams:
                told = await stream.get()
                if told == _OVER:
                    return
                yield told
        finally:
            self._streams.discard(stream)

    async def _tick_on(self) -> None:
        """Look and tell, for as long as anybody watches."""
        while self._streams:
            try:
                tick = await self._site.run(self.look)
            except PenstockError as error:
                tick = Tick(self._site.broker.clock.now(), error=str(error))
            except Exception:
                # Too many requests, or a store that broke: the next second is another try.
                tick = None
            if tick is not None:
                self._past.append(tick)
                told = _message([tick])
                for stream in list(self._streams):
                    try:
                        stream.put_nowait(told)
                    except asyncio.QueueFull:
                        self._drop(stream)
            await asyncio.sleep(EVERY_SECONDS)

    def _drop(self, stream: asyncio.Queue[bytes]) -> None:
        self._streams.discard(stream)
        while not stream.empty():
            stream.get_nowait()
        stream.put_nowait(_OVER)

    def look(self) -> Tick:
        """One look at the store, on the pool."""
        verbs = Verbs(
            self._site.broker,
            Person("dashboard", Role.VIEW),
            may_change=False,
            counting=self._site.counting,
        )
        now, queues = verbs.now, by_queue(verbs.count())
        if self._position is None:
            self._position = newest_position(verbs)
        try:
            rows = verbs.history(self._position, MOST_ROWS)
        except Refused:
            # Another store took the place of this one, or an older copy: its history is shorter.
            rows = []
            self._position = newest_position(verbs)
        full = len(rows) == MOST_ROWS
        if rows:
            # What is too much for a second is skipped: live is what happens now.
            self._position = newest_position(verbs) if full else rows[-1].position
        alive = sum(row.alive for row in verbs.workers() if row.queues != ())
        return tick_of(now, queues, rows, alive=alive, more=full)


def newest_position(verbs: Verbs) -> Position:
    """Where somebody begins who wants to see what happens from now on."""
    last = verbs.history(None, 1)
    return last[-1].position if last else BEGINNING


def tick_of(
    now: float, queues: Sequence[Count], rows: Sequence[Event], *, alive: int, more: bool
) -> Tick:
    """What is told of one second."""
    ended = [row for row in rows if row.kind == "attempt" and row.started_at is not None]
    waits = [
        max(0.0, row.started_at - (row.run_at or row.enqueued_at or row.started_at))
        for row in ended
        if row.started_at is not None
    ]
    runs = [max(0.0, row.at - row.started_at) for row in ended if row.started_at is not None]
    fullest = sorted(queues, key=lambda each: (-each.total - each.failed, each.queue))
    return Tick(
        at=now,
        places={place: sum(getattr(each, place) for each in queues) for place in PLACES},
        queues=[
            QueueTick(each.queue, [getattr(each, place) for place in PLACES])
            for each in fullest[:MOST_QUEUES]
        ],
        alive=alive,
        succeeded=sum(row.state == "succeeded" for row in ended),
        failed=sum(row.state != "succeeded" for row in ended),
        wait=sum(waits) / len(waits) if waits else None,
        took=sum(runs) / len(runs) if runs else None,
        more=more,
    )


def _message(ticks: list[Tick]) -> bytes:
    return b"data: " + msgspec.json.encode(ticks) + b"\n\n"


async def watch(asked: Asked) -> Response:
    return await asked.site.live.stream(asked)
