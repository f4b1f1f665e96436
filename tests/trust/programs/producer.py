"""A producer that is killed: says what was accepted on a pipe, after the store has said so.

`many`: enqueue_many under one id, resumed by the next process. `single`: one by one, their ids on
the pipe. `detached`: the same of a detached task. `list`: all-or-none lists of five. `joined`: with
a row of its own in one transaction.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from contextlib import contextmanager

import psycopg

from penstock import App
from penstock.task import options

how, url, pipe, rows = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
app = App(url)


@app.task(name="load")
def load(n: int) -> None: ...


@app.task(name="load_tagged", tags={"a": "b"})
def load_tagged(n: int) -> None: ...


@app.task(name="load_detached", detached=True)
def load_detached(n: int) -> None: ...


def say(text: str) -> None:
    os.write(pipe, f"{text}\n".encode())


app.broker.count()
say("begun")
if how == "many":
    options.ROWS_PER_COMMIT = 50
    for task in (load, load_tagged):
        task.enqueue_many([(n,) for n in range(rows)], id=f"import-{task.name}")
elif how == "single":
    for n in range(rows):
        say(load.enqueue(n).id)
        say(load_tagged.enqueue(n).id)
elif how == "detached":
    for n in range(rows):
        say(load_detached.enqueue(n).id)
elif how == "list":
    for n in range(rows):
        jobs = [load.job(n), load_tagged.job(n), load.job(n), load_tagged.job(n), load.job(n)]
        say(" ".join(handle.id for handle in app.enqueue(jobs)))
elif how == "joined":
    on_file = url.startswith("sqlite")
    if on_file:
        path = url.removeprefix("sqlite:///")
        connection = sqlite3.connect(path, timeout=30, isolation_level=None)
    else:
        connection = psycopg.connect(url, autocommit=True)
    connection.execute("create table if not exists orders (id text)")

    @contextmanager
    def transaction():
        connection.execute("begin immediate" if on_file else "begin")
        yield
        connection.execute("commit")

    insert = f"insert into orders values ({'?' if on_file else '%s'})"
    for n in range(rows):
        with transaction():
            handle = load.options(connection=connection).enqueue(n)
            connection.execute(insert, (handle.id,))
        say(handle.id)
say("done")
