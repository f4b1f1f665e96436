"""A worker that is killed, whose tasks write rows in the same transaction as their own end."""

from __future__ import annotations

import sys

from penstock import App, current_job
from penstock.worker import Worker

app = App(sys.argv[1])
VALUES = "(?, ?)" if sys.argv[1].startswith("sqlite") else "(%s, %s)"


@app.task(name="book")
def book(n: int) -> int:
    with current_job().transaction() as connection:
        connection.execute(f"insert into effect values {VALUES}", (current_job().id, n))
        follow.options(connection=connection).enqueue(n)
        if n % 10 == 9 and current_job().attempt == 1:
            raise OSError("after the row was written")
    return n


@app.task(name="follow")
def follow(n: int) -> int:
    with current_job().transaction() as connection:
        connection.execute(f"insert into effect values {VALUES}", (current_job().id, -n))
    return n


if __name__ == "__main__":
    Worker(app, id=sys.argv[2], threads=4, drain=sys.argv[3] == "drain").work()
