"""Resources (a client, a pool, a model): opened once per process, closed when the worker stops.

    python examples/resources.py

A parameter whose default is `use(factory)` is filled in where the job runs, and never stored. Here
a real worker runs a hundred jobs on a store in a temporary folder, and stops when nothing is left.
"""

import tempfile
from collections.abc import AsyncGenerator, Generator

from penstock import App, use
from penstock.worker import Worker

opened: list[str] = []
closed: list[str] = []


class Mailer:
    """Stands for a connection that is expensive to open."""

    def __init__(self) -> None:
        self.sent = 0

    def send(self, to: str) -> str:
        """Pretend."""
        self.sent += 1
        return f"mail {self.sent} to {to}"


def mailer() -> Generator[Mailer, None, None]:
    """A factory that yields is resumed when the worker stops."""
    opened.append("mailer")
    yield Mailer()
    closed.append("mailer")


async def pool() -> AsyncGenerator[list[str], None]:
    """An asynchronous factory serves `async def` tasks, on the worker's event loop."""
    opened.append("pool")
    yield []
    closed.append("pool")


def greet(to: str, client: Mailer = use(mailer)) -> str:
    """A plain task with a resource."""
    return client.send(to)


async def fetch(url: str, connections: list[str] = use(pool)) -> int:
    """An asynchronous one."""
    connections.append(url)
    return len(connections)


def main() -> None:
    """Fifty jobs of each, one worker, each resource opened once."""
    with tempfile.TemporaryDirectory() as folder:
        app = App(f"sqlite:///{folder}/jobs.db")
        greet_task, fetch_task = app.task(greet), app.task(fetch)
        greet_task.enqueue_many([(f"user-{n}",) for n in range(50)])
        fetch_task.enqueue_many([(f"https://example.org/{n}",) for n in range(50)])
        last = greet_task.enqueue("the last one")

        Worker(app, threads=1, drain=True).work()

        print(last.result())
        app.close()
    print(f"opened {sorted(opened)}, closed {sorted(closed)}")
    assert sorted(opened) == sorted(closed) == ["mailer", "pool"]

    # In a plain call, and in tests, a resource is an argument like any other.
    assert greet("ada", client=Mailer()) == "mail 1 to ada"


if __name__ == "__main__":
    main()
