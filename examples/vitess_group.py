"""Event groups (Vitess' story): a job that runs once all jobs of a group have ended; limits.

    python examples/vitess_group.py

Vitess' queues also have a maximum rate and a maximum concurrency; here these are limits, which hold
over all workers of a store together. Two workers on one SQLite file run a group of twenty.
"""

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from penstock import App
from penstock.broker.views import Event
from penstock.brokers import open_broker
from penstock.worker import Worker

app = App("memory:")


@app.task(name="vitess:notify", queue="events")
def notify(order: int) -> int:
    """One event of the group."""
    time.sleep(0.02)
    return order


@app.task(name="vitess:close", queue="events")
def close(orders: list[int]) -> str:
    """Runs once, after the last job of the group."""
    return f"closed {len(orders)} orders"


def work() -> None:
    """Two workers with ten hands each, until nothing is left."""
    workers = [threading.Thread(target=Worker(app, drain=True).work) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def most_at_once(attempts: Sequence[Event]) -> int:
    """The most that ran at one instant, by the history."""
    steps = [(event.started_at or 0.0, 1) for event in attempts]
    steps += [(event.at, -1) for event in attempts]
    running = most = 0
    for _, step in sorted(steps):
        running += step
        most = max(most, running)
    return most


def most_in(seconds: float, attempts: Sequence[Event]) -> int:
    """The most that started in any window of this length."""
    starts = sorted(event.started_at or 0.0 for event in attempts)
    return max(sum(at <= start < at + seconds for start in starts) for at in starts)


def attempts_after(position: str) -> list[Event]:
    return [event for event in app.broker.history(position) if event.kind == "attempt"]


def main(folder: str) -> None:
    """A group as it comes, then with a maximum concurrency, then with a maximum rate."""
    broker = open_broker(f"sqlite:///{Path(folder) / 'events.db'}")
    with app.replace_broker(broker):
        follow_up = close.job(notify.map(range(20)).output).enqueue()
        work()
        [*group, last] = attempts_after("0")
        print(f"{follow_up.result(timeout=0)}, after all {len(group)}: {last.job == follow_up.id}")

        app.limit("events", running=5)
        position = last.position
        close.job(notify.map(range(20)).output).enqueue()
        work()
        attempts = attempts_after(position)
        print(
            f"{len(attempts)} events, never more than five at once: {most_at_once(attempts) <= 5}"
        )

        app.limit("events", running=5, rate="10/s")
        position = attempts[-1].position
        close.job(notify.map(range(20)).output).enqueue()
        work()
        attempts = attempts_after(position)
        print(f"{len(attempts)} events, never more than ten a second: {most_in(1, attempts) <= 10}")
    broker.close()


if __name__ == "__main__":
    with TemporaryDirectory() as temporary:
        main(temporary)
