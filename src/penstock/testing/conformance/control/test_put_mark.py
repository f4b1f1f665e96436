"""Set a mark: how far a lake has the history, below which alone it is pruned."""

from __future__ import annotations

import json
import threading
from typing import Any

import msgspec
import pytest

from penstock.broker.lake_mark import Gap, Mark
from penstock.broker.position import BEGINNING, Position
from penstock.broker.protocol import Broker
from penstock.errors import Refused
from penstock.job import State, failed, succeeded
from penstock.testing.conformance.factories import (
    a_job,
    begun,
    claim,
    enqueue_and_claim,
    history_of,
    settle,
    some_jobs,
)

pytestmark = pytest.mark.needs("bulk", "one place")

DAY = 86400
LAKE = "8d5a4a1e-0000-4000-8000-000000000001"


def a_mark(position: Position = BEGINNING, lake: str = LAKE, **fields: Any) -> Mark:
    return Mark(lake=lake, position=position, **{"hold": 30.0 * DAY, **fields})


def ended(broker: Broker, clock: Any, count: int = 3) -> list[Position]:
    """So many jobs end; the positions of their rows."""
    broker.enqueue(some_jobs(clock, count))
    last = max(positions(broker), default=BEGINNING)
    broker.settle([(job, begun(succeeded(b"1"), clock.now())) for job in claim(broker, count)])
    return [position for position in positions(broker) if position > last]


def positions(broker: Broker) -> list[Position]:
    """Of all that is kept, but for what is told of lakes."""
    return [row.position for row in broker.history() if row.kind != "lake"]


def told(broker: Broker) -> list[dict[str, Any]]:
    rows = [json.loads(row.data or b"") for row in broker.history() if row.kind == "lake"]
    return [{name: row[name] for name in row if name != "place"} for row in rows]


def test_a_mark_is_kept_as_it_was_set(broker, clock):
    [*_, last] = ended(broker, clock)

    kept = broker.put(a_mark(last, place="/srv/lake", hold=5.0))

    assert kept == a_mark(last, place="/srv/lake", hold=5.0, told_at=clock.now())
    assert broker.records(Mark) == [kept]
    assert told(broker) == [{"says": "begun", "lake": LAKE, "position": last}]


def test_the_same_mark_twice_is_once(broker, clock):
    """The answer was lost, or somebody was killed before it came."""
    [*_, last] = ended(broker, clock)
    broker.put(a_mark(last))
    clock.advance(seconds=5)

    broker.put(a_mark(last))

    assert broker.records(Mark) == [a_mark(last, told_at=clock.now())]
    assert len(told(broker)) == 1


def test_an_older_mark_after_a_newer_one_changes_nothing_unless_it_was_restored(broker, clock):
    first, second, third = ended(broker, clock)
    broker.put(a_mark(third))

    assert broker.put(a_mark(first)).position == third
    assert broker.put(a_mark(second, restored=True)).position == second
    assert broker.records(Mark)[0].gap is None  # all of it is still there
    assert [row["says"] for row in told(broker)] == ["begun", "set back"]


def test_history_is_pruned_only_below_the_mark(broker, clock):
    """SPARK 2, lake: what it has goes as ever, the rest stays, and its jobs can be looked at."""
    early = ended(broker, clock)
    broker.put(a_mark(early[-1]))
    [job] = some_jobs(clock, 1)
    broker.enqueue([job])
    settle(broker, claim(broker)[0], begun(succeeded(b"7"), clock.now()))
    late = [position for position in positions(broker) if position > early[-1]]
    clock.advance(days=2)

    broker.prune(clock.now() - DAY)

    assert positions(broker) == late
    assert broker.get(job.id).result == b"7"
    assert len(history_of(broker, job.id)) == 1
    assert broker.records(Mark)[0].gap is None

    broker.put(a_mark(late[-1]))
    broker.prune(clock.now() - DAY)

    assert positions(broker) == []
    assert broker.get(job.id) is None


def test_what_is_no_history_does_not_wait_for_a_lake(broker, clock):
    job = enqueue_and_claim(broker, clock, tags={"tenant": "a"})
    broker.put(a_mark())
    settle(broker, job, begun(failed("x"), clock.now()))
    clock.advance(days=2)

    broker.prune(clock.now() - DAY)

    assert broker.get(job.id) is None
    assert [row.state for row in history_of(broker, job.id)] == [State.FAILED]
    with pytest.raises(Refused):
        broker.enqueue([a_job(clock, id=job.id)])


def test_the_slowest_of_two_lakes_decides(broker, clock):
    one, two, three = ended(broker, clock)
    broker.put(a_mark(three, "quick"))
    broker.put(a_mark(one, "slow"))
    clock.advance(days=2)

    broker.prune(clock.now() - DAY)

    assert positions(broker) == [two, three]
    assert [mark.gap for mark in broker.records(Mark)] == [None, None]


def test_past_the_hold_it_is_pruned_and_the_gap_is_written_down_first(broker, clock):
    """SPARK 2, lake: past the cap the gap is recorded, with its positions and its rows."""
    first = ended(broker, clock)
    broker.put(a_mark(first[-1], hold=3.0 * DAY))
    lost = ended(broker, clock, 2)
    clock.advance(days=3)
    held = ended(broker, clock, 2)
    clock.advance(days=2)

    broker.prune(clock.now() - DAY)

    assert positions(broker) == held
    [mark] = broker.records(Mark)
    assert (mark.gap.after, mark.gap.until) == (first[-1], max(lost))
    # The first row of a lake's own story is among them.
    assert mark.gap.rows == 3
    [said] = told(broker)
    assert said == {
        "says": "gap",
        "lake": LAKE,
        "position": first[-1],
        "after": first[-1],
        "until": max(lost),
        "rows": 3,
    }


def test_a_gap_grows_and_is_told_once_a_day(broker, clock):
    ended(broker, clock)
    broker.put(a_mark(hold=0.0))
    for _ in range(3):
        clock.advance(hours=6)
        last = max(ended(broker, clock, 2))
        clock.advance(hours=6)
        broker.prune(clock.now() - DAY / 8)

    [mark] = broker.records(Mark)
    assert mark.gap.after == BEGINNING
    assert mark.gap.until >= last
    assert mark.gap.rows >= 10
    assert [row["says"] for row in told(broker)].count("gap") <= 2


def test_a_gap_stays_until_it_is_named(broker, clock):
    """A run that never heard of it must not take it away."""
    ended(broker, clock)
    broker.put(a_mark(hold=0.0))
    clock.advance(days=2)
    broker.prune(clock.now() - DAY)
    [*_, last] = ended(broker, clock)

    kept = broker.put(a_mark(last))
    assert kept.gap == broker.records(Mark)[0].gap
    assert kept.gap is not None
    other = Gap(kept.gap.after, last)
    assert broker.put(a_mark(last, gap=other)).gap == kept.gap

    assert broker.put(a_mark(last, gap=kept.gap)).gap is None
    assert broker.put(a_mark(last, gap=kept.gap)).gap is None
    assert broker.records(Mark)[0].gap is None


def test_only_the_lake_that_misses_them_has_a_gap(broker, clock):
    *_, last = ended(broker, clock)
    broker.put(a_mark(last, "quick", hold=0.0))
    broker.put(a_mark(BEGINNING, "slow", hold=0.0))
    newest = broker.history()[-1].position
    broker.put(a_mark(newest, "quick", hold=0.0))
    clock.advance(days=2)

    broker.prune(clock.now() - DAY)

    quick, slow = broker.records(Mark)
    assert quick.gap is None
    assert slow.gap == Gap(BEGINNING, newest, 5)


def test_what_one_lake_holds_is_lost_to_no_other(broker, clock):
    rows = ended(broker, clock)
    broker.put(a_mark(BEGINNING, "long"))
    broker.put(a_mark(BEGINNING, "short", hold=0.0))
    clock.advance(days=2)

    broker.prune(clock.now() - DAY)

    assert positions(broker) == rows
    assert [mark.gap for mark in broker.records(Mark)] == [None, None]


def test_a_lake_that_was_restored_is_told_what_went_since(broker, clock):
    """It is an older copy: what it had, and has no more, was pruned meanwhile."""
    early = ended(broker, clock)
    late = ended(broker, clock)
    broker.put(a_mark(late[-1]))
    clock.advance(days=2)
    after = ended(broker, clock)
    broker.put(a_mark(after[-1]))
    broker.prune(clock.now() - DAY)

    kept = broker.put(a_mark(early[0], restored=True))

    assert kept.gap is not None
    assert kept.gap.after == early[0]
    assert late[-1] <= kept.gap.until < after[0]
    assert kept.gap.rows is None
    assert broker.put(a_mark(early[0], restored=True)).gap == kept.gap


def test_a_lake_that_comes_late_is_told_what_went_before(broker, clock):
    """One that was forgotten, or is of an older Penstock; a new one has nothing to miss."""
    early = ended(broker, clock)
    clock.advance(days=2)
    broker.prune(clock.now() - DAY)
    late = ended(broker, clock)

    gap = broker.put(a_mark(early[0])).gap
    assert gap is not None
    assert (gap.after, gap.rows) == (early[0], None)
    assert early[-1] <= gap.until < late[0]
    assert broker.put(a_mark(BEGINNING, "new")).gap is None


def test_a_position_that_is_not_of_this_history_is_refused(broker, clock):
    """The store was restored from an older backup."""
    [*_, last] = ended(broker, clock)

    with pytest.raises(Refused, match=f"is ahead of this history, which has come to .*{last[:4]}"):
        broker.put(a_mark(f"{1 << 60:020d}"))
    for wrong in ("", "-1", "one", f"{last}0"):
        with pytest.raises(Refused, match=f"'{wrong}' is no position of this store"):
            broker.put(a_mark(wrong))
    with pytest.raises(Refused, match="a name has 1 to"):
        broker.put(a_mark(BEGINNING, ""))
    with pytest.raises(Refused, match="0 seconds or more"):
        broker.put(a_mark(BEGINNING, hold=-1.0))
    with pytest.raises(Refused, match="cannot be stored as text"):
        broker.put(a_mark(BEGINNING, place="a\x00b"))
    assert broker.records(Mark) == []


def test_a_store_that_knows_less_than_it_was_told_is_refused(broker, clock):
    """It was restored from an older backup: its positions count other rows now."""
    first, second, third = ended(broker, clock)
    kept = broker.put(a_mark(second, place="/srv/lake"))

    with pytest.raises(Refused, match=r"/srv/lake .*was restored from an older backup"):
        broker.put(a_mark(third, place="/srv/lake", told=third))

    assert broker.records(Mark) == [kept]
    broker.put(a_mark(first, told=second, restored=True))
    assert broker.put(a_mark(third, "new", told=third)).told == BEGINNING


def test_what_is_kept_for_longer_by_its_task_is_no_gap(broker, clock):
    job = enqueue_and_claim(broker, clock)
    broker.put(a_mark(hold=0.0))
    outcome = begun(succeeded(b"1"), clock.now())
    settle(broker, job, msgspec.structs.replace(outcome, keep_for=30.0 * DAY))
    clock.advance(days=2)

    broker.prune(clock.now() - DAY)

    assert broker.get(job.id).result == b"1"
    [mark] = broker.records(Mark)
    assert mark.gap is None or mark.gap.rows == 1  # the row that says that the lake began


def test_whoever_tells_the_most_stands_however_many_tell_at_once(broker, clock):
    """Two runs that know nothing of each other, or one whose answers come late."""
    rows = ended(broker, clock, 8)
    at_once = threading.Barrier(4)
    errors: list[BaseException] = []

    def tell(positions: list[Position]) -> None:
        try:
            at_once.wait()
            for position in positions:
                broker.put(a_mark(position))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=tell, args=(rows[n::4],)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    assert [mark.position for mark in broker.records(Mark)] == [rows[-1]]
    assert len(told(broker)) == 1
