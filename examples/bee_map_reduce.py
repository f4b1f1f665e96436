"""Map and reduce (haskell-bee's story): a job squares each number, one job adds the squares up.

    python examples/bee_map_reduce.py

In haskell-bee the results wait in a table, a periodic task polls whether they are complete, and
somebody has to remove the table. Here the squares are arguments of the last job: when the last
square is settled, that job becomes ready in the same transaction. Nothing polls, no worker waits,
and one thread is enough. It runs on all four stores, with a real worker.
"""

import time
from tempfile import TemporaryDirectory

from penstock import App, current_job
from penstock.broker.filter import Filter
from penstock.brokers import open_broker
from penstock.testing.postgres import Server
from penstock.testing.redis import RedisServer
from penstock.worker import Worker

app = App("memory:")
runs: list[str] = []


@app.task(name="bee:square_map")
def square_map(number: int) -> int:
    """The subtask: one number."""
    runs.append("square")
    return number**2


@app.task(name="bee:reduce")
def reduce(squares: list[int]) -> int:
    """Called once, with all squares."""
    runs.append("reduce")
    return sum(squares)


@app.task(name="bee:star_map")
def star_map(numbers: list[int]) -> int:
    """Spawns the map and the reduce: how many numbers there are is known only here."""
    squares = square_map.map(numbers)
    current_job().spawn(squares, then=reduce.job(squares.output))
    return len(numbers)


def from_outside() -> int:
    """Enqueue the map and the reduce as one flow: all of it is stored, or nothing."""
    handle = reduce.job(square_map.map(range(1, 26)).output).enqueue()
    Worker(app, threads=1, drain=True).work()
    return handle.result(timeout=0)


def from_inside() -> int:
    """Enqueue a task that spawns them; the reduce job is found by its task."""
    star_map.enqueue(list(range(1, 26)))
    Worker(app, threads=1, drain=True).work()
    found = app.broker.find(Filter(task=(reduce.name,))).jobs
    return app.handle(found[0].id).result(timeout=0)


def left_behind() -> int:
    """How much is stored after a prune, as a worker does it every hour."""
    before = time.time() + 1
    app.broker.prune(before)
    kept = len(app.broker.find(Filter()).jobs) + len(app.broker.history())
    return kept + sum(count.total for count in app.broker.count())


def show(url: str) -> None:
    """Both ways, on one store."""
    name = url.partition(":")[0].partition("+")[0]
    broker = open_broker(url)
    with app.replace_broker(broker):
        for way in (from_outside, from_inside):
            runs.clear()
            answer = way()
            squares, reductions = runs.count("square"), runs.count("reduce")
            assert runs[-1] == "reduce"
            print(f"{name}, {way.__name__}: {squares} squares, {reductions} reduce, {answer}")
        print(f"{name}: {left_behind()} left behind")
    broker.close()


def main() -> None:
    """In memory, in a file, and on two servers."""
    with TemporaryDirectory() as folder, Server() as postgres, RedisServer() as redis:
        for url in ("memory:", f"sqlite:///{folder}/bee.db", postgres.url(), redis.url()):
            show(url)


if __name__ == "__main__":
    main()
