"""Schedules (Dark's crons): intervals and cron expressions, without a leader.

    python examples/dark_cron.py

It takes a second, because it uses a test clock. Under `penstock worker` the same tasks go by the
real time, on any number of machines, and each slot still makes one job.
"""

from datetime import UTC, datetime, timedelta

from penstock import App
from penstock.broker.filter import Filter
from penstock.testing.clock import Clock

app = App("memory:")
ran: list[str] = []


@app.schedule(every=timedelta(hours=12), at_once=True)
@app.task(name="clean")
def clean() -> None:
    ran.append("clean")


@app.schedule("30 2 * * *", zone="Europe/Paris", missed="skip")
@app.task(name="report")
def report(slot: datetime) -> None:
    ran.append(f"report of {slot:%A, %H:%M}")


# The day before the clocks go forward: the next 02:30 in Paris is at 03:00.
clock = Clock(datetime(2026, 3, 28, 12, tzinfo=UTC).timestamp())

with app.testing(clock=clock) as t:
    t.drain()
    print("at once:", *ran)

    for _ in range(48):
        t.clock.advance(minutes=30)
        t.drain()
    print("in a day:", ", ".join(ran))

    t.broker.act("delete", [job.id for job in t.broker.find(Filter()).jobs])
    before = app.schedules.next("clean", 1)
    t.drain()
    print(
        "its jobs are deleted, and the next time is the same:",
        before == app.schedules.next("clean", 1),
    )

    ran.clear()
    t.clock.advance(days=3)  # no worker runs
    t.drain()
    print("after three days:", *ran)

    app.schedules.pause("clean", reason="the auditors are here")
    t.clock.advance(days=1)
    ran.clear()
    t.drain()
    print("paused: clean", ran.count("clean"), "times")

    app.schedules.resume("clean")
    app.schedules.run_now("clean")
    t.drain()
    print("on demand: clean", ran.count("clean"), "time")
