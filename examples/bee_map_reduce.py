"""haskell-bee's map and reduce: StarMap sends a SquareMap for each number, one job adds them up.

    python examples/bee_map_reduce.py

There the results wait in a table, a periodic task looks whether they are complete, and somebody has
to remove the table. Here the squares are arguments of the last job: the end of the last square
makes it ready, in the same transaction, whatever the store is. Nobody looks again and again, no
worker is held meanwhile, and one hand is enough. It runs on all three stores, with a real worker.
"""

import time
from tempfile import TemporaryDirectory

from penstock import App, current_job
from penstock.broker.filter import Filter
from penstock.brokers import open_broker
from penstock.testing.postgres import Server
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
    """Called once, with all that there is."""
    runs.append("reduce")
    return sum(squares)


@app.task(name="bee:star_map")
def star_map(numbers: list[int]) -> int:
    """How many there are is known only here."""
    squares = square_map.map(numbers)
    current_job().spawn(squares, then=reduce.job(squares.output))
    return len(numbers)


def from_outside() -> int:
    """The map and the reduce are enqueued as one flow: all of it is stored, or nothing."""
    handle = reduce.job(square_map.map(range(1, 26)).output).enqueue()
    Worker(app, threads=1, drain=True).work()
    return handle.result(timeout=0)


def from_inside() -> int:
    """A task spawns them; the one that adds up is found by its name."""
    star_map.enqueue(list(range(1, 26)))
    Worker(app, threads=1, drain=True).work()
    found = app.broker.find(Filter(task=(reduce.name,))).jobs
    return app.handle(found[0].id).result(timeout=0)


def left_behind() -> int:
    """What is stored once the retention is over, as a worker prunes it every hour."""
    before = time.time() + 1
    app.broker.prune(before)
    kept = len(app.broker.find(Filter()).jobs) + len(app.broker.history())
    return kept + sum(count.total for count in app.broker.count())


def show(url: str) -> None:
    """Both ways, on one store."""
    name = url.partition(":")[0]
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
    """In memory, in a file, and on a server."""
    with TemporaryDirectory() as folder, Server() as server:
        for url in ("memory:", f"sqlite:///{folder}/bee.db", server.url()):
            show(url)


if __name__ == "__main__":
    main()
