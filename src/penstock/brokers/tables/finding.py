"""Find: jobs out of all places where jobs are, merged, newest first.

Each table is read from its newest end, in pages, and no further than the caller reads. Jobs with
derived ids are read by statements of their own: those ids hold no time to sort by.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from penstock.broker.filter import Filter
from penstock.broker.newest_first import Below, MadeAt, made
from penstock.brokers.tables.db import Db, Row, TableStore
from penstock.brokers.tables.locate_job import get_job
from penstock.brokers.tables.rows import (
    contents,
    indexed,
    job_of,
    leased_jobs,
    ready_jobs,
    succeeded_job,
)
from penstock.enqueue.ids import from_bytes, to_bytes
from penstock.job import Job, State

MOST_LOOKED_UP = 10_000  # jobs with a tag and a derived id; of more, the newest are looked through
_ROW_STATES = frozenset({State.READY, State.WAITING, State.RUNNING})
_ENDED_STATES = frozenset({State.FAILED, State.CANCELLED})
_BYTES = 16
_LARGEST_FIRST, _LARGEST = 128, 1024  # rows of a page
_JOBS_IN_PARCEL = 32  # at a guess
_ARGUMENT = "arg."  # before its name, in the index of tags


class _Entry(NamedTuple):
    """An item of a source to merge; without a job, a bound: nothing that follows is newer."""

    made: MadeAt
    job: Job[Any] | None = None


class NewestFirst:
    """The jobs of one read transaction."""

    def __init__(self, store: TableStore, db: Db) -> None:
        self._store, self._db = store, db
        self._first = 0  # rows of a first page

    def jobs(self, filter: Filter, older: Below, limit: int) -> Iterator[Job[Any]]:
        """Jobs that may match, newest first; the caller checks `filter.matches`.

        It will read so many, and one more, if all match.
        """
        self._first = min(limit + 1, _LARGEST_FIRST)
        sources = list(self._sources(filter, older))
        for place in heapq.merge(*sources, key=lambda place: place.made, reverse=True):
            if place.job is not None:
                yield place.job

    def _sources(self, filter: Filter, older: Below) -> Iterator[Iterator[_Entry]]:
        lanes: list[Row] = []
        by_lane = bool(filter.task or filter.queue or filter.app)
        if by_lane or filter.args:
            rows = self._db.execute(self._store.sql.lanes)
            lanes = [row for row in rows if _could_hold(filter, row)]
        numbers = [row["hash"] for row in lanes] if by_lane else None
        waits = bool(filter.due) and "now" not in filter.due
        if waits:
            later = self._with_later(filter.read_at)
            numbers = list(later if numbers is None else later.intersection(numbers))
            if not numbers:
                return
        parameters = {
            "below": older.id,
            "at": older.at,
            "derived": older.derived,
            "lanes": None if numbers is None else msgspec.json.encode(numbers).decode(),
        }
        wanted = filter.states
        searched = bool(filter.args) and all(_has_indexed(filter, row) for row in lanes)
        if tag := _leading(filter, searched=searched):
            if not filter.derived:
                yield _placed(self._tagged({**parameters, **tag}))
            if self._few_derived(tag):
                yield _placed(self._tagged_derived({**parameters, **tag}))
                return
        elif not filter.derived:
            # Whatever has a time to wait for has a row of its own.
            packed = State.READY in wanted and not waits
            yield from self._with_time(wanted, parameters, packed=packed)
        yield from self._derived(wanted, parameters)

    def _with_later(self, at: float) -> set[int]:
        """The lanes that have ready jobs of a later time, as far as their tallies tell."""
        return {
            row["lane"]
            for row in self._db.execute(self._store.sql.count)
            if row["state"] == State.READY and row["minute"] * 60 + 60 > at
        }

    def _with_time(
        self, wanted: frozenset[State], parameters: Mapping[str, Any], *, packed: bool
    ) -> Iterator[Iterator[_Entry]]:
        sql = self._store.sql
        if packed:
            yield _placed(self._from_parcels(parameters))
        if wanted & _ROW_STATES:
            yield _placed(self._from_rows(sql.find, parameters, _by_id))
        elif wanted & _ENDED_STATES:
            yield _placed(self._from_rows(sql.find_ended, parameters, _by_id))
        if State.RUNNING in wanted:
            yield from self._from_leases(parameters["below"])
        if State.SUCCEEDED in wanted:
            yield _placed(self._from_history(sql.find_succeeded, parameters, _by_job))

    def _derived(
        self, wanted: frozenset[State], parameters: Mapping[str, Any]
    ) -> Iterator[Iterator[_Entry]]:
        sql = self._store.sql
        if wanted & _ROW_STATES:
            yield _placed(self._from_rows(sql.find_derived, parameters, _by_time_and_id))
        elif wanted & _ENDED_STATES:
            yield _placed(self._from_rows(sql.find_derived_ended, parameters, _by_time_and_id))
        if State.SUCCEEDED in wanted:
            statement = sql.find_derived_succeeded
            yield _placed(self._from_history(statement, parameters, _by_time_and_job))

    def _tagged(self, parameters: Mapping[str, Any]) -> Iterator[Job[Any]]:
        for row in self._pages(self._store.sql.find_tagged, parameters, _by_job):
            if (job := get_job(self._store, self._db, row["job"])) is not None:
                yield job

    def _few_derived(self, tag: Mapping[str, Any]) -> bool:
        most = {**tag, "most": MOST_LOOKED_UP + 1}
        row = self._db.execute(self._store.sql.tagged_derived, most).fetchone()
        return row["jobs"] <= MOST_LOOKED_UP

    def _tagged_derived(self, parameters: Mapping[str, Any]) -> Iterator[Job[Any]]:
        statement = self._store.sql.find_tagged_derived
        for row in self._pages(statement, parameters, _by_time_and_job):
            if (job := get_job(self._store, self._db, row["job"])) is not None:
                yield job

    def _from_parcels(self, parameters: Mapping[str, Any]) -> Iterator[Job[Any]]:
        below = parameters["below"]
        sizes = max(1, self._first // _JOBS_IN_PARCEL), _LARGEST // _JOBS_IN_PARCEL
        for row in self._pages(self._store.sql.find_parcels, parameters, _by_id, sizes):
            ids, bodies = contents(row["id"], row["jobs"], row["lengths"], row["bodies"])
            pairs = [(raw, body) for raw, body in zip(ids, bodies, strict=True) if raw < below]
            yield from ready_jobs(
                self._store.lane(self._db, row["lane"]),
                row,
                [raw for raw, _ in reversed(pairs)],
                [body for _, body in reversed(pairs)],
            )

    def _from_rows(
        self, statement: str, parameters: Mapping[str, Any], key: _Key
    ) -> Iterator[Job[Any]]:
        for row in self._pages(statement, parameters, key):
            yield job_of(self._store.lane(self._db, row["lane"]), row)

    def _from_history(
        self, statement: str, parameters: Mapping[str, Any], key: _Key
    ) -> Iterator[Job[Any]]:
        for row in self._pages(statement, parameters, key):
            yield succeeded_job(self._store.lane(self._db, row["lane"]), row)

    def _from_leases(self, below: bytes) -> Iterator[Iterator[_Entry]]:
        for row in self._db.execute(self._store.sql.find_leases).fetchall():
            ids = row["ids"]
            starts = (ids[at : at + _BYTES] for at in range(0, len(ids), _BYTES))
            # A parcel never reaches beyond its run, whose ids differ in their last 12 bits.
            ends = [_end_of_run(start) for start in starts]
            yield self._from_lease(row["id"], max(ends, default=b""), below)

    def _from_lease(self, lease: int, newest: bytes, below: bytes) -> Iterator[_Entry]:
        """Leases are large and mostly too old: each is decoded only when the merge reaches it."""
        yield _Entry(MadeAt(from_bytes(newest)))
        row = self._db.execute(self._store.sql.lease, (lease,)).fetchone()
        jobs = [job for _, job in leased_jobs(self._store.lane(self._db, row["lane"]), row)]
        older = [job for job in jobs if to_bytes(job.id) < below]
        yield from _placed(sorted(older, key=lambda job: job.id, reverse=True))

    def _pages(
        self,
        statement: str,
        parameters: Mapping[str, Any],
        key: _Key,
        sizes: tuple[int, int] | None = None,
    ) -> Iterator[Row]:
        """The rows of a statement that goes from the newest down, a page at a time.

        Small pages first: most of those who look stop early. A store may hand over only whole
        results.
        """
        most, largest = sizes or (self._first, _LARGEST)
        while True:
            page = self._db.execute(statement, {**parameters, "most": most}).fetchall()
            yield from page
            if len(page) < most:
                return
            last = page[-1]
            parameters = {**parameters, **{name: last[column] for name, column in key.items()}}
            most = min(most * 2, largest)


# What a page goes on from: the parameter, and the column it is taken from.
_Key = Mapping[str, str]
_by_id: _Key = {"below": "id"}
_by_job: _Key = {"below": "job"}
_by_time_and_id: _Key = {"at": "enqueued_at", "derived": "id"}
_by_time_and_job: _Key = {"at": "enqueued_at", "derived": "job"}


def _placed(jobs: Iterable[Job[Any]]) -> Iterator[_Entry]:
    return (_Entry(made(job), job) for job in jobs)


def _end_of_run(raw: bytes) -> bytes:
    return raw[:14] + (int.from_bytes(raw[14:], "big") | 0x0FFF).to_bytes(2, "big")


def _leading(filter: Filter, *, searched: bool) -> dict[str, Any]:
    """The tag, or argument declared for search, that leads; `matches` checks the others."""
    # A tag that is named as an argument is compared and not looked up: the index would tell
    # whoever may not see arguments how many jobs have this one.
    named = [(name, each) for name, each in filter.tags.items() if not name.startswith(_ARGUMENT)]
    if searched:
        named += [(f"{_ARGUMENT}{name}", values) for name, values in filter.args.items()]
    if not named:
        return {}
    name, values = named[0]
    wanted = msgspec.json.encode([indexed(value) for value in values]).decode()
    return {"name": name, "values": wanted}


def _could_hold(filter: Filter, lane: Row) -> bool:
    return (
        (not filter.task or lane["task"] in filter.task)
        and (not filter.queue or lane["queue"] in filter.queue)
        and (not filter.app or lane["app"] in filter.app)
    )


def _has_indexed(filter: Filter, lane: Row) -> bool:
    return filter.args.keys() <= set(lane["search"].split(","))
