"""Schedules with real workers: any number of them, one job a slot; over kills and outages too."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from datetime import datetime

from penstock.schedules.schedule import Schedule, slot_id, slots_after
from tests.stories.conftest import Story, eventually, whatever_the_store

APP = """
import os
from datetime import datetime

from penstock import App

app = App()


@app.schedule(every=1, at_once=True)
@app.task(name="tick")
def tick(slot: datetime) -> None:
    descriptor = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"tick {slot.isoformat()}\\n".encode())
    os.close(descriptor)
"""


def slots_decided(story: Story) -> list[tuple[str, float, int]]:
    """Every decision about slots, in order: what, the last slot, how many."""
    rows = [row for row in story.broker.history(limit=10_000) if row.kind == "schedule"]
    said = [json.loads(row.data) for row in rows]
    return [
        (row["says"], datetime.fromisoformat(row["slot"]).timestamp(), row.get("slots", 1))
        for row in said
        if "slot" in row
    ]


def assert_each_slot_once(story: Story) -> None:
    [schedule] = story.broker.records(Schedule)
    following = slots_after(schedule, schedule.starts_at - 1)
    expected: list[float] = []
    while not expected or expected[-1] < schedule.decided_until:
        expected.append(next(following))
    decisions = slots_decided(story)
    assert sum(count for _, _, count in decisions) == len(expected)
    assert [slot for _, slot, _ in decisions] == sorted({slot for _, slot, _ in decisions})
    for says, slot, _ in decisions:
        job = slot_id(schedule.name, round(slot, 6))
        starts = Counter(story.successes())[job]
        assert starts <= (says == "enqueued"), (says, slot)


def test_two_schedulers_make_one_job_a_slot_also_when_one_is_killed(story: Story):
    """D60, and the acceptance of schedules."""
    story.app.schedules.put("tick", story.task("nap"), every=1, args=(7,))
    fleets = [story.start(processes=2) for _ in range(2)]
    eventually(lambda: len(story.ledger("nap")) >= 4, timeout=60)

    victims = fleets[0].children()
    os.kill(victims[0], signal.SIGKILL)
    ran = len(story.ledger("nap"))
    eventually(lambda: len(story.ledger("nap")) >= ran + 4, timeout=60)
    story.app.schedules.pause("tick")
    time.sleep(1.5)
    for fleet in fleets:
        fleet.signal(signal.SIGTERM)
    assert [fleet.wait() for fleet in fleets] == [0, 0]

    assert_each_slot_once(story)
    made = sum(says == "enqueued" for says, _, _ in slots_decided(story))
    assert made == len(story.successes())
    assert slots_decided(story)[-1][0] == "skipped: paused"
    late = [row.started_at - row.run_at for row in story.attempts() if row.started_at]
    print(f"{made} slots, late by at most {max(late):.2f} s, mostly {sorted(late)[made // 2]:.3f}")


def test_after_an_outage_of_all_workers_the_slots_are_decided_once(story: Story):
    story.app.schedules.put("tick", story.task("nap"), every=1, args=(7,), missed="all")
    first = story.start()
    eventually(lambda: story.ledger("nap"), timeout=60)
    for pid in (*first.children(), first.pid):
        os.kill(pid, signal.SIGKILL)
    first.process.wait()
    time.sleep(3)

    story.start()
    [before] = story.broker.records(Schedule)
    eventually(lambda: story.broker.records(Schedule)[0].decided_until > before.decided_until + 2)
    story.app.schedules.pause("tick")

    assert_each_slot_once(story)


@whatever_the_store
def test_a_worker_runs_the_schedules_of_its_code_until_it_is_gone(story: Story):
    """D2, D10, D61: nobody but a worker is needed, and a deploy leaves no gap."""
    file = story.folder / "ticking.py"
    file.write_text(APP)
    first = story.start(target=f"{file}:app")
    eventually(lambda: len(story.ledger("tick")) >= 3, timeout=60)
    second = story.start(target=f"{file}:app")
    eventually(lambda: len(second.children()) == 1)
    first.signal(signal.SIGTERM)
    assert first.wait() == 0
    ran = len(story.ledger("tick"))
    eventually(lambda: len(story.ledger("tick")) >= ran + 3, timeout=60)
    second.signal(signal.SIGTERM)
    assert second.wait() == 0

    other = story.start()  # which has other code
    ran = len(story.ledger("tick"))
    time.sleep(3)

    assert other.process.poll() is None
    assert len(story.ledger("tick")) == ran
    slots = [line[1] for line in story.ledger("tick")]
    assert len(set(slots)) == len(slots)
    assert_each_slot_once(story)
