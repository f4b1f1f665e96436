"""The history: a stream whose entries are rows, each under its position, and what finds them.

    h           stream   position-0 -> e: the row
    hj          zset     "job position", in the order of these texts
    hk:<kind>   zset     positions by themselves, of every kind but attempts
    hg          set      positions of rows whose bodies and results are not shown any more
    pos         the last position that was given

Rows never change: what is to be forgotten of one that stays is left out when it is read.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import Any

import msgspec

from penstock.broker.views import MEASURED, Event
from penstock.brokers.positions import number_of
from penstock.brokers.redis.change import RedisChange
from penstock.brokers.redis.rows import event_of
from penstock.brokers.redis.wire import Word

_PAGE = 1000
PRUNED_AT_ONCE = 2000  # rows of each kind, by one change
_YOUNG_IN_A_ROW = 5000  # so many rows behind one another stay: a prune looks no further
_TELLS = frozenset({"attempt"})  # kinds without an index of their own


class RedisHistory:
    """The rows that there are, oldest first; what a change adds is not among them."""

    def __init__(self, change: RedisChange) -> None:
        self._change = change
        self._deleted: set[int] = set()
        self.unfinished = False  # whether there is more to forget than one change does

    def __iter__(self) -> Iterator[Event]:
        return self.between(0, None)

    @property
    def deleted(self) -> int:
        """How many rows this change deletes."""
        return len(self._deleted)

    def between(self, low: int, high: int | None, page: int = _PAGE) -> Iterator[Event]:
        """The rows behind one position, up to and with another."""
        end = "+" if high is None else f"{high}-0"
        while True:
            start = f"({low}-0" if low else "-"
            entries = self._change.look("XRANGE", "h", start, end, "COUNT", page)
            rows = [_event(entry) for entry in entries]
            yield from self._shown(rows)
            if len(rows) < page:
                return
            low = number_of(rows[-1].position)

    def some(self, low: int, most: int) -> list[Event]:
        """The first rows behind a position."""
        return list(islice(self.between(low, None, min(max(most, 1), _PAGE)), most))

    def backwards(self, high: int | None, page: int) -> Iterator[Event]:
        """The rows before a position, newest first."""
        end = "+" if high is None else f"({high}-0"
        while True:
            entries = self._change.look("XREVRANGE", "h", end, "-", "COUNT", page)
            rows = [_event(entry) for entry in entries]
            yield from self._shown(rows)
            if len(rows) < page:
                return
            end = f"({number_of(rows[-1].position)}-0"

    def of_job(self, job: str, after: int, limit: int) -> list[Event]:
        """The rows of a job behind a position."""
        low, high = f"({job} {after:020d}", f"[{job} {'9' * 20}"
        found = self._change.look("ZRANGEBYLEX", "hj", low, high, "LIMIT", 0, limit)
        return self.at([int(member[-20:]) for member in found])

    def last_of_job(self, job: str, before: int | None, limit: int) -> Iterator[Event]:
        """The rows of a job before a position, newest first."""
        high = f"[{job} {'9' * 20}" if before is None else f"({job} {before:020d}"
        found = self._change.look("ZREVRANGEBYLEX", "hj", high, f"[{job} ", "LIMIT", 0, limit)
        return iter(self.at([int(member[-20:]) for member in found]))

    def last_of_kind(self, kind: str, before: int | None, limit: int) -> list[Event]:
        """The last rows of a kind that has an index, newest first."""
        high = "+inf" if before is None else f"({before}"
        key = f"hk:{kind}"
        found = self._change.look("ZREVRANGEBYSCORE", key, high, "-inf", "LIMIT", 0, limit)
        return self.at([int(member) for member in found])

    def at(self, positions: Iterable[int]) -> list[Event]:
        """The rows at these positions."""
        commands: list[tuple[Word, ...]] = [
            ("XRANGE", "h", f"{position}-0", f"{position}-0") for position in positions
        ]
        replies = self._change.look_many(commands)
        return self._shown([_event(entry) for reply in replies for entry in reply])

    def last(
        self,
        limit: int,
        kinds: Collection[str],
        before: int | None,
        job: str | None,
    ) -> list[Event]:
        """The last rows, oldest first: of these kinds, or all but gauges."""
        if kinds and not _TELLS.intersection(kinds) and job is None:
            found = [self.last_of_kind(kind, before, limit) for kind in kinds]
            rows = heapq.merge(*found, key=lambda row: row.position, reverse=True)
        elif job is not None:
            rows = self.last_of_job(job, before, _PAGE if kinds else limit)
        else:
            rows = self.backwards(before, min(max(limit, 1), _PAGE))
        wanted = (row for row in rows if (row.kind in kinds if kinds else row.kind not in MEASURED))
        return list(islice(wanted, limit))[::-1]

    @property
    def first(self) -> Event | None:
        """The oldest row."""
        return next(self.between(0, None, 1), None)

    def ends(self) -> tuple[int, int]:
        """The positions of the oldest and of the newest row; zeros without any."""
        replies = self._change.look_many(
            [
                ("XRANGE", "h", "-", "+", "COUNT", 1),
                ("XREVRANGE", "h", "+", "-", "COUNT", 1),
            ]
        )
        numbers = [_number(reply[0]) for reply in replies if reply]
        return (numbers[0], numbers[1]) if numbers else (0, 0)

    def last_up_to(self, low: int, high: int) -> int:
        """The position of the last row behind one and up to another; `low` if there is none."""
        found = self._change.look("XREVRANGE", "h", f"{high}-0", f"{low + 1}-0", "COUNT", 1)
        return _number(found[0]) if high > low and found else low

    def positions_of(self, job: str) -> list[int]:
        """Where the rows of a job are, but those that this change deletes."""
        found = self._change.look("ZRANGEBYLEX", "hj", f"[{job} ", f"[{job} {'9' * 20}")
        return [at for member in found if (at := int(member[-20:])) not in self._deleted]

    def wipe(self, gone: Collection[str]) -> None:
        """Show no bodies and results of these jobs any more."""
        for job in gone:
            for position in self.positions_of(job):
                self._change.write("SADD", "hg", position)

    def forget(self, before: float, stays: Callable[[Event], bool]) -> None:
        """Delete rows from before this time, but those that stay; `PRUNED_AT_ONCE` of them."""
        for row in self.before(before):
            if len(self._deleted) >= PRUNED_AT_ONCE:
                self.unfinished = True
                return
            if not stays(row):
                self._delete(row)

    def before(self, time: float) -> Iterator[Event]:
        """The rows from before this time: looked for until many in a row are younger."""
        young = 0
        for row in self:
            if row.at < time:
                young = 0
                yield row
                continue
            young += 1
            if young > _YOUNG_IN_A_ROW:
                return

    def _delete(self, row: Event) -> None:
        number = number_of(row.position)
        self._change.write("XDEL", "h", f"{number}-0")
        self._change.write("SREM", "hg", number)
        if row.job is not None:
            self._change.write("ZREM", "hj", f"{row.job} {number:020d}")
        if row.kind not in _TELLS:
            self._change.write("ZREM", f"hk:{row.kind}", number)
        self._deleted.add(number)

    def _shown(self, rows: list[Event]) -> list[Event]:
        """The rows as they may be seen."""
        asked = [
            row for row in rows if row.job and (row.body is not None or row.result is not None)
        ]
        if not asked:
            return rows
        gone: set[str] = set()
        for start in range(0, len(asked), _PAGE):
            part = asked[start : start + _PAGE]
            members = [number_of(row.position) for row in part]
            found = self._change.look("SMISMEMBER", "hg", *members)
            gone.update(row.position for row, is_in in zip(part, found, strict=True) if is_in)
        if not gone:
            return rows
        return [
            msgspec.structs.replace(row, body=None, result=None) if row.position in gone else row
            for row in rows
        ]


def _number(entry: Any) -> int:
    return int(entry[0].partition(b"-")[0])


def _event(entry: Any) -> Event:
    return event_of(_number(entry), entry[1][1])
