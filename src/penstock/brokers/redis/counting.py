"""Count and gauge: from the numbers that are kept per lane, whatever the number of jobs.

Only rules that name tags or keys, and limits for each key, have to look at the jobs of a lane.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from penstock.broker.views import Count
from penstock.brokers.redis.change import RedisChange
from penstock.brokers.redis.rows import LETTERS, lane_bytes, lane_from
from penstock.brokers.redis.store import RedisStore
from penstock.brokers.redis.wire import Word
from penstock.job import Lane, State
from penstock.rules.limits import Limits
from penstock.rules.rule import Rule, rule_over, rule_over_job

_SAMPLED = 5  # jobs of a line
_USUAL_ROW = 200.0  # bytes, where no job is ready that could be looked at
_AROUND_ROW = 280  # bytes: its id in the hash, its line, the index of all jobs and the sent ids
_TALLIED = (State.WAITING, State.RUNNING, State.FAILED)


class LaneCount(NamedTuple):
    """How many jobs of a lane are where, without rules."""

    lane: Lane
    due: int
    scheduled: int
    waiting: int
    running: int
    failed: int
    first: float | None  # when the first due job was


def count(store: RedisStore, rules: Sequence[Rule]) -> list[Count]:
    """The counts of every queue, task and app that has jobs which are not done."""
    limits = Limits(rules, store.use_of, store.clock.monotonic())
    numbers: dict[tuple[str, str, str], dict[str, int]] = {}
    lanes = sorted(lane_counts(store.change, store.clock.now()), key=_by_name)
    for each in lanes:
        if not any(each[1:6]):
            continue
        lane = each.lane
        row = numbers.setdefault((lane.queue, lane.task, lane.app), {})
        places = {
            "scheduled": each.scheduled,
            "waiting": each.waiting,
            "running": each.running,
            "failed": each.failed,
            **_due_places(store, rules, limits, each),
        }
        for place, jobs in places.items():
            row[place] = row.get(place, 0) + jobs
    return [Count(*names[:2], app=names[2], **row) for names, row in sorted(numbers.items())]


def oldest(store: RedisStore, rules: Sequence[Rule]) -> dict[str, float]:
    """How long the oldest due job of each queue has been due that may run."""
    now, found = store.clock.now(), dict[str, float]()
    for each in list(lane_counts(store.change, now)):
        lane, first = each.lane, each.first
        if rule_over(rules, lane.queue, lane.task, now, lane.version) is not None:
            continue
        if rules_by_job := _rules_by_job(rules, lane, now):
            may_run = (job for job in store.due(lane) if not rule_over_job(rules_by_job, job, now))
            first = min((job.run_at or job.enqueued_at for job in may_run), default=None)
        if first is not None:
            found[lane.queue] = max(found.get(lane.queue, 0.0), now - first)
    return found


def _rules_by_job(rules: Sequence[Rule], lane: Lane, now: float) -> list[Rule]:
    return [rule for rule in rules if rule.by_job and rule.holds(lane.queue, lane.task, now)]


def queue_bytes(change: RedisChange, now: float) -> dict[str, int]:
    """About how much memory the jobs of each queue take that are not done."""
    lanes = [each for each in lane_counts(change, now) if any(each[1:6])]
    names = [lane_bytes(each.lane).hex() for each in lanes]
    looks: list[tuple[Word, ...]] = []
    for name in names:
        looks += [(("ZRANGE", f"{line}:{name}", 0, _SAMPLED - 1)) for line in "qz"]
    found = change.look_many(looks)
    samples = [[*found[2 * at], *found[2 * at + 1]] for at in range(len(lanes))]
    rows = iter(change.look_many([("HSTRLEN", "j", id) for ids in samples for id in ids]))
    sums: dict[str, int] = {}
    for each, ids in zip(lanes, samples, strict=True):
        sizes = [next(rows) for _ in ids]
        size = sum(sizes) / len(sizes) if sizes else _USUAL_ROW
        queue = each.lane.queue
        sums[queue] = sums.get(queue, 0) + int(sum(each[1:6]) * (size + _AROUND_ROW))
    return sums


def lane_counts(change: RedisChange, now: float) -> Iterator[LaneCount]:
    """Every lane that is known."""
    tallies, rows = change.look_many([("HGETALL", "t"), ("HVALS", "lanes")])
    tally = dict(zip(tallies[::2], map(int, tallies[1::2]), strict=True))
    lanes = [lane_from(row) for row in rows]
    replies = change.look_many([words for lane in lanes for words in _looks(lane, now)])
    for number, lane in enumerate(lanes):
        at_once, due, later, first, first_timed = replies[5 * number : 5 * number + 5]
        firsts = [float(reply[1]) for reply in (first, first_timed) if reply]
        name = lane_bytes(lane)
        waiting, running, failed = (tally.get(name + LETTERS[state], 0) for state in _TALLIED)
        first_due = min(firsts, default=None)
        yield LaneCount(lane, at_once + due, later, waiting, running, failed, first_due)


def _looks(lane: Lane, now: float) -> list[tuple[Word, ...]]:
    name = lane_bytes(lane).hex()
    queue, timed = f"q:{name}", f"z:{name}"
    return [
        ("ZCARD", queue),
        ("ZCOUNT", timed, "-inf", now),
        ("ZCOUNT", timed, f"({now!r}", "+inf"),
        ("ZRANGE", queue, 0, 0, "WITHSCORES"),
        ("ZRANGEBYSCORE", timed, "-inf", now, "WITHSCORES", "LIMIT", 0, 1),
    ]


def _due_places(
    store: RedisStore, rules: Sequence[Rule], limits: Limits, each: LaneCount
) -> dict[str, int]:
    lane, now = each.lane, store.clock.now()
    if not each.due:
        return {"ready": 0}
    if rule_over(rules, lane.queue, lane.task, now, lane.version) is not None:
        return {"paused": each.due}
    by_job = _rules_by_job(rules, lane, now)
    if by_job or limits.over(lane, per_key=True):
        return _job_by_job(store, by_job, limits, lane)
    ready = min(each.due, max(0, limits.room(lane, each.due).jobs))
    limits.took(lane, ready)
    return {"ready": ready, "limited": each.due - ready}


def _job_by_job(
    store: RedisStore, by_job: Sequence[Rule], limits: Limits, lane: Lane
) -> dict[str, int]:
    places = {"ready": 0, "paused": 0, "limited": 0}
    for job in store.due(lane):
        if rule_over_job(by_job, job, store.clock.now()):
            places["paused"] += 1
        else:
            places["ready" if store.leaves_room(limits, job) else "limited"] += 1
    return places


def _by_name(each: LaneCount) -> Any:
    return each.lane.queue, each.lane.task
