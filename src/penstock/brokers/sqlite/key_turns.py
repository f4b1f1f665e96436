"""What a claim takes from a queue that is handed out by key: whose turn it is, and how many each.

The claims of a process go on after the key that had the last turn. One writer at a time makes it
exact: what stands before a job cannot change before the claim is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from penstock.brokers.sqlite.claimable_lanes import ClaimableLane
from penstock.brokers.sqlite.statements import sql
from penstock.brokers.sqlite.store import SqliteDb, SqliteStore
from penstock.brokers.tables.db import Row
from penstock.brokers.tables.key_order import KeyOrder

Place = tuple[float, bytes]
Room = Callable[[ClaimableLane, int, str], int]
_FIRST: Place = (float("-inf"), b"")
_MOST_HELD = 1000  # keys with nothing to give that one claim looks at; the next one goes on there


class Picked:
    """What a lane is to give: rows in the order of their turns, and so many without a key."""

    def __init__(self) -> None:
        self.rows: list[bytes] = []
        self.loose: list[Place] = []  # rows without a key: they are one line with the parcels
        self.plain = 0  # how many of that line

    @property
    def jobs(self) -> int:
        return len(self.rows) + self.plain


@dataclass
class _Line:
    """One key: how far it was read, and how many more of it may start."""

    key: str
    at: Place
    left: int


class KeyTurns:
    """The turns of one claim."""

    def __init__(
        self, store: SqliteStore, db: SqliteDb, now: float, room: Room, *, ruled: bool
    ) -> None:
        self._db = db
        self._now = now
        self._room = room  # how many jobs of a key may start, rules and limits considered
        self._ruled = ruled  # some rule is about tags
        self._lines = KeyOrder(store, db)

    def pick(
        self, offer: ClaimableLane, policy: str, want: int, packed: int, cursors: dict[int, str]
    ) -> Picked:
        """Rows of a lane, key after key; `packed`: how many jobs its parcels hold, at least."""
        picked = Picked()
        live: list[_Line] = []
        begin = _after(cursors.get(offer.hash)) if policy != "batch" else self._oldest(offer)
        for looked, key in enumerate(self._keys(offer, packed, begin)):
            if looked - picked.jobs >= _MOST_HELD:
                cursors[offer.hash] = key
                break
            if policy != "fair" and key:
                most = want - picked.jobs if policy == "batch" else 1
                if self._take_first(offer, policy, key, most, picked):
                    cursors[offer.hash] = key
            else:
                line = _Line(key, _FIRST, want if not key else self._room(offer, want, key))
                if self._take(offer, line, 1, packed, picked):
                    cursors[offer.hash] = key
                    live.append(line)
            if picked.jobs >= want:
                return picked
        while live and picked.jobs < want:
            share = max(1, (want - picked.jobs) // len(live))
            live = [
                line
                for line in live
                if self._take(offer, line, min(share, want - picked.jobs), packed, picked)
            ]
        return picked

    def _oldest(self, offer: ClaimableLane) -> str:
        """The key of the job that is due for the longest time."""
        parameters = {"lane": offer.hash, "now": self._now}
        row = self._db.execute(sql.oldest_turn, parameters).fetchone()
        return "" if row is None else row["turn"]

    def _keys(self, offer: ClaimableLane, packed: int, start: str) -> Iterator[str]:
        """The keys that have anything ready, once round, beginning with this one."""
        turn = start
        wrapped = not start
        while True:
            if packed and not turn:
                key = ""  # it may have parcels alone
            else:
                row = self._db.execute(sql.next_turn, {"lane": offer.hash, "turn": turn}).fetchone()
                if row is None or (wrapped and start and row["turn"] >= start):
                    if wrapped:
                        return
                    wrapped, turn = True, ""
                    continue
                key = row["turn"]
            yield key
            turn = _after(key)

    def _take(
        self, offer: ClaimableLane, line: _Line, share: int, packed: int, picked: Picked
    ) -> bool:
        """Up to so many jobs of a line; False if it had none left."""
        share = min(share, line.left)
        if share <= 0:
            return False
        parameters = {
            "lane": offer.hash,
            "turn": line.key,
            "now": self._now,
            "run_at": line.at[0],
            "id": line.at[1],
            "ruled": self._ruled,
            "limit": share,
        }
        found = [(row["run_at"], row["id"]) for row in self._db.execute(sql.turn_rows, parameters)]
        if found:
            line.at = found[-1]
        if line.key:
            line.left -= len(found)
            picked.rows += [raw for _, raw in found]
            return bool(found)
        picked.loose += found
        before = picked.plain
        picked.plain = min(before + share, len(picked.loose) + packed)
        return picked.plain > before

    def _take_first(
        self, offer: ClaimableLane, policy: str, key: str, most: int, picked: Picked
    ) -> bool:
        """The first job of an ordered key, or so many of them; False if it may give none."""
        parameters = {"lane": offer.hash, "key": key, "now": self._now, "ruled": self._ruled}
        rows = self._db.execute(sql.turn_first, {**parameters, "limit": most}).fetchall()
        if not rows or self._held(rows[0]):
            return False
        queue, first = offer.lane.queue, rows[0]["id"]
        if self._lines.behind(queue, key, first, policy) is not None:
            return False
        room = min(most, self._room(offer, most, key))
        if room <= 0:
            return False
        picked.rows.append(first)
        elsewhere = self._lines.first_ready(queue, key, offer.hash) if room > 1 else None
        tried = rows[0]["tried"]
        for row in rows[1:room]:
            late = elsewhere is not None and row["id"] > elsewhere
            if tried or row["tried"] or late or self._held(row):
                break
            picked.rows.append(row["id"])
        return True

    def _held(self, row: Row) -> bool:
        return bool(row["ruled"]) or row["run_at"] > self._now


def _after(key: str | None) -> str:
    """The key after this one: NUL is in no key."""
    return "" if key is None else f"{key}\x00"
