"""The verbs that only look, where the memory broker looks at everything: these look at an index."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from penstock.broker.filter import Filter
from penstock.broker.position import BEGINNING, Position, ahead
from penstock.broker.slice import HISTORY, Reach, Selection, Slice, check_last
from penstock.broker.views import Count, Event, Page
from penstock.brokers.arrow import event_batches, job_batches, selected_job
from penstock.brokers.memory.broker import MOST_FOUND, MemoryBroker
from penstock.brokers.memory.reading import kind_is, selected
from penstock.brokers.positions import (
    FARTHEST_ID,
    FARTHEST_POSITION,
    even_bounds,
    id_number,
    number_of,
    own,
    position_text,
    slices_between,
)
from penstock.brokers.redis.counting import count, oldest
from penstock.brokers.redis.finding import find
from penstock.brokers.redis.index import NEW, job_at
from penstock.brokers.redis.rows import id_bytes, job_of
from penstock.brokers.redis.store import RedisStore
from penstock.flows.flow import JobOutput
from penstock.job import Job

_PAGE = 500


class RedisReads(MemoryBroker):
    """Find, history, and the verbs of Spark."""

    stored: RedisStore

    def peek(self, ids: Sequence[str]) -> list[Job[Any]]:
        """These jobs, as far as there are any, as they are at this moment."""
        fields = [id_bytes(job_id) for job_id in ids]
        found: list[Job[Any]] = []
        for start in range(0, len(fields), _PAGE):
            rows = self.stored.change.look("HMGET", "j", *fields[start : start + _PAGE])
            part = zip(ids[start : start + _PAGE], rows, strict=True)
            found += [job_of(job_id, row) for job_id, row in part if row is not None]
        return found

    def find(self, filter: Filter, after: str | None = None, limit: int = 100) -> Page:
        limit = min(max(limit, 1), MOST_FOUND)
        return find(self.stored.change, self.peek, filter, after, limit)

    def count(self) -> list[Count]:
        return count(self.stored, self._rules.all())

    def oldest_due(self) -> dict[str, float]:
        return oldest(self.stored, self._rules.all())

    def get(self, job_id: str) -> Job[Any] | None:
        return next(iter(self.peek([job_id])), None)

    def get_many(self, ids: Sequence[str]) -> dict[str, Job[Any]]:
        return {job.id: job for job in self.peek(ids)}

    def outputs(self, node: str) -> list[JobOutput]:
        known = self.stored.flows.node(node)
        if known is None:
            return []
        ids = known.ids()
        self.stored.job_rows.load(ids)
        return [self.stored.output(job_id) for job_id in ids]

    def history(
        self,
        after: Position | None = BEGINNING,
        limit: int = 1000,
        job: str | None = None,
        *,
        kind: str | Collection[str] | None = None,
        before: Position | None = None,
    ) -> list[Event]:
        kinds = check_last(after, job, kind, before)
        past, limit = self.stored.past, max(limit, 0)
        if after is None:
            end = None if before is None else number_of(before)
            return past.last(limit, kinds, end, job)
        low = number_of(after)
        self._check_reached(after)
        if job is not None:
            return past.of_job(job, low, limit)
        return past.some(low, limit)

    def reach(
        self,
        selection: Selection,
        after: Position = BEGINNING,
        at_most: int | None = None,
        patience: float = 0.5,  # noqa: ARG002  rows are there when their positions are
        *,
        until: Position | None = None,
    ) -> Reach:
        low = number_of(after)
        newest = self._check_reached(after)
        last = number_of(newest) if until is None else number_of(until)
        store, past = self.stored.id, self.stored.past
        if at_most is None:
            return Reach(store, position_text(past.last_up_to(low, last)))
        left, reached = max(at_most, 1), after
        for row in past.between(low, last):
            reached = row.position
            left -= kind_is(selection, row)
            if not left:
                return Reach(store, reached, full=True)
        return Reach(store, reached)

    def slices(
        self,
        selection: Selection,
        after: Position = BEGINNING,
        until: Position | None = None,
        at_most: int = 1,
    ) -> list[Slice]:
        if selection.table in HISTORY:
            low, high = number_of(after), FARTHEST_POSITION if until is None else number_of(until)
            oldest, newest = self.stored.past.ends()
            bounds = even_bounds(max(low, oldest), min(high, newest), at_most)
            return slices_between(selection, low, high, bounds)
        bounds = self._job_bounds(at_most)
        return slices_between(selection, 0, FARTHEST_ID, bounds)

    def scan(self, part: Slice) -> Iterator[Any]:
        selection = part.selection
        if selection.table in HISTORY:
            low, high = own(part.after), own(part.until)
            rows = self.stored.past.between(number_of(low), number_of(high))
            return event_batches(selection.table, (row for row in rows if selected(selection, row)))
        jobs = self._jobs_between(id_number(part.after), id_number(part.until))
        return job_batches(selection.table, (job for job in jobs if selected_job(selection, job)))

    def _check_reached(self, after: Position) -> Position:
        newest = self.stored.newest
        if own(after) > newest:
            raise ahead(after, newest)
        return newest

    def _job_bounds(self, at_most: int) -> list[int]:
        """Ids that cut all jobs into about equal parts."""
        change = self.stored.change
        jobs = change.look("ZCARD", NEW)
        places = [place for place in even_bounds(0, jobs, at_most) if place < jobs]
        found = change.look_many([("ZRANGE", NEW, place, place) for place in places])
        return [int.from_bytes(reply[0][-16:], "big") for reply in found if reply]

    def _jobs_between(self, low: int, high: int) -> Iterator[Job[Any]]:
        """The jobs whose ids are behind one and up to another: by time, and then derived ones."""
        change = self.stored.change
        start = b"-"
        while True:
            places = change.look("ZRANGEBYLEX", NEW, start, b"+", "LIMIT", 0, _PAGE)
            ids = [job_at(place) for place in places]
            raw = [int.from_bytes(place[-16:], "big") for place in places]
            wanted = [id for id, number in zip(ids, raw, strict=True) if low < number <= high]
            yield from self.peek(wanted)
            if len(places) < _PAGE:
                return
            start = b"(" + places[-1]
