"""penstock debug: a stored job runs here, under a debugger, and the store hears nothing of it."""

from __future__ import annotations

import os
import pty
import select
import sqlite3
import subprocess
import sys

import psycopg
import pytest

from penstock.broker.views import Note, WorkerRow
from penstock.brokers import open_broker
from penstock.job import State, failed, succeeded
from penstock.rules.rule import Rule, RuleKind, rule_id
from penstock.testing.conformance.factories import claim_for

TASKS = """
import asyncio
import os

from penstock import App, Retry, current_job, current_jobs, use

app = App()
app.queue("slow", fair=True)


def a_client():
    print("client opened")
    yield "client"
    print("client closed")


async def a_session():
    yield "session"


@app.task
def child(n: int) -> None: ...


@app.hook("failed")
def alarm(job, outcome) -> None:
    print("the alarm went off")


@app.middleware
def around(call_next, job):
    print("around", job.id)
    return call_next()


@app.task(retry=Retry(limit=3, delay=60))
def everything(raises: bool, client: str = use(a_client)) -> list[object]:
    job = current_job()
    before = job.last_snapshot()
    again = job.step("load", load)
    job.step("more", len, "four")
    job.snapshot({"page": 8})
    job.progress(0.5, "half")
    job.event("paged", page=8)
    job.log.info("a line")
    child.enqueue(1)
    child.options(queue="slow", key="ada").enqueue(2)
    child.enqueue_many([(n,) for n in range(300)], id="import")
    app.signal("go", 1)
    app.limit("mail", running=1)
    app.handle(job.id).cancel()
    job.spawn(child.map(range(3)), then=child.job(9))
    with job.transaction() as connection:
        connection.execute("insert into effect values (1)")
        child.options(connection=connection).enqueue(3)
    found = [before, again, job.last_snapshot(), client, job.attempt]
    if raises:
        raise ValueError("page 8")
    return found


def load() -> int:
    raise AssertionError("it is done already")


@app.task(detached=True)
def travel(stops: int) -> int:
    left = stops - 1
    return 100 // left


@app.task
async def fetch(n: int, session: str = use(a_session)) -> str:
    await asyncio.sleep(0)
    await child.enqueue_async(n)
    return f"{session} {n}"


@app.batch_task(size=10)
def send(items: list[int]) -> list[int]:
    total = sum(items)
    [job] = current_jobs()
    job.progress(1)
    return [total for _ in items]


@app.task
def ends_it() -> None:
    with current_job().transaction() as connection:
        connection.execute("insert into effect values (1)")
        connection.commit()


@app.task(secret=("card",))
def charge(card: str) -> str:
    return card


@app.task(on_success="delete")
def forgets() -> None: ...


@app.declare("media:resize")
def resize(n: int) -> None: ...
"""


@pytest.fixture
def desk(cli):
    """A project with a job for each kind of task."""
    (cli.folder / "desk.py").write_text(TASKS)
    return cli


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, cli):
    """A store that has a table of the program's own."""
    if request.param == "sqlite":
        url = f"sqlite:///{cli.folder / 'penstock.db'}"
        open_broker(url).close()
        with sqlite3.connect(cli.folder / "penstock.db") as connection:
            connection.execute("create table effect (n integer)")
        connection.close()
        return url
    url = request.getfixturevalue("postgres_url")
    open_broker(url).close()
    with psycopg.connect(url) as connection:
        connection.execute("create table effect (n integer)")
    return url


def rows_of(url):
    """All rows of all tables, the program's own among them."""
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            found = list(connection.iterdump())
        connection.close()
        return found
    with psycopg.connect(url) as connection:
        tables = connection.execute(
            "select format('%I.%I', schemaname, tablename) from pg_tables"
            " where schemaname in ('penstock', 'public') order by 1"
        ).fetchall()
        return {
            table: connection.execute(f"select t::text from {table} t order by 1").fetchall()
            for (table,) in tables
        }


def failed_yesterday(url, job_id, task):
    """Run once, as far as a snapshot and a step; then it failed for good."""
    broker = open_broker(url)
    [job] = claim_for(broker, WorkerRow(id="yesterday", tasks={task: 1}))
    assert job.id == job_id
    broker.note(job, Note("snapshot", value=b'{"page":7}'))
    broker.note(job, Note("step", "load", b"5"))
    broker.settle([(job, failed("Traceback: page 8"))])
    broker.recover(dead="yesterday", started=())
    broker.clear(
        Rule, rule_id(RuleKind.ORDER, queue="slow")
    )  # what the program would declare is new
    broker.close()


def enqueued(desk, *words):
    return desk.json("enqueue", *words)["id"]


def test_a_failed_job_that_does_everything_leaves_the_store_as_it_was(desk, url):
    job = enqueued(desk, "desk:everything", "false", "--url", url)
    failed_yesterday(url, job, "desk:everything")
    before = rows_of(url)

    found = desk.json("debug", job, "--app", "desk", "--url", url)

    assert found["result"] == [{"page": 7}, 5, {"page": 8}, "client", 1]
    assert (found["returned"], found["state"], found["attempt"]) == (True, "succeeded", 1)
    assert [each["kind"] for each in found["withheld"]] == [
        *("step", "snapshot", "progress", "event", "log"),
        *("enqueue", "enqueue", "enqueue", "signal", "rule", "cancel", "enqueue"),
        *("transaction", "spawn"),
    ]
    assert rows_of(url) == before


def test_one_that_raises_shows_where_and_leaves_the_store_as_it_was(desk, url):
    job = enqueued(desk, "desk:everything", "true", "--url", url)
    failed_yesterday(url, job, "desk:everything")
    before = rows_of(url)

    result = desk("debug", job, "--app", "desk", "--url", url, code=1)

    assert "ValueError: page 8" in result.stderr
    assert 'would have noted snapshot: {"page":8}' in result.stderr
    assert "would have enqueued 300 jobs" in result.stderr
    assert "would have been ready again in 1 min" in result.stderr
    assert "client opened" in result.stdout
    assert "client closed" in result.stdout
    assert f"around {job}" in result.stdout
    assert "the alarm" not in result.stdout
    assert rows_of(url) == before


@pytest.mark.parametrize(
    ("task", "words", "result"),
    [
        ("travel", ["3"], 50),
        ("fetch", ["3"], "session 3"),
        ("send", ["4"], 4),
    ],
)
def test_detached_async_and_batch_tasks_run_as_plain_ones_do(desk, url, task, words, result):
    job = enqueued(desk, f"desk:{task}", *words, "--url", url)
    before = rows_of(url)

    assert desk.json("debug", job, "--app", "desk", "--url", url)["result"] == result

    assert rows_of(url) == before


def test_a_task_that_commits_by_itself_does_not_get_through(desk, url):
    job = enqueued(desk, "desk:ends_it", "--url", url)
    before = rows_of(url)

    code = 1 if url.startswith("sqlite") else 0  # there it is a savepoint's
    desk("debug", job, "--app", "desk", "--url", url, code=code)

    assert rows_of(url) == before


def test_a_job_that_ended_well_runs_from_its_history(desk):
    job = enqueued(desk, "desk:travel", "5")
    broker = desk.store()
    [claimed] = claim_for(broker, WorkerRow(id="yesterday", tasks={"desk:travel": 1}))
    broker.settle([(claimed, succeeded(b"25"))])
    assert broker.get(job).state is State.SUCCEEDED
    broker.close()

    assert desk.json("debug", job, "--app", "desk")["result"] == 25


def test_a_secret_that_was_not_kept_is_named(desk):
    desk("run", "desk:charge", "4711-0815")
    [job] = desk.lines("find", "task:desk:charge")

    result = desk("debug", job["id"], "--app", "desk")

    assert "argument card is a secret" in result.stderr
    assert result.stdout.endswith("***\n")


def debugged(desk, *words, typed):
    """What a debugger answers to these lines."""
    process = desk.start("debug", "--app", "desk", *words, stdin=subprocess.PIPE)
    output, errors = process.communicate("\n".join(typed) + "\n", timeout=100)
    return process.returncode, output, errors


@pytest.mark.parametrize(
    ("task", "word", "asked"),
    [
        ("travel", "3", "left"),
        ("fetch", "3", "n"),
        ("send", "4", "items"),
    ],
)
def test_break_stops_at_the_first_line_of_the_function(desk, task, word, asked):
    job = enqueued(desk, f"desk:{task}", word)

    code, output, errors = debugged(desk, job, "--break", typed=[f"p {asked}", "c"])

    assert code == 0, errors
    assert "(Pdb)" in output
    assert f"{task}()" in output
    first = {"travel": "left = stops - 1", "fetch": "sleep(0)", "send": "total = sum(items)"}
    assert first[task] in output
    if task == "travel":
        assert "NameError" in output  # it is the first line: nothing has run yet


def test_pdb_opens_where_the_function_raised_with_its_values(desk):
    job = enqueued(desk, "desk:travel", "1")

    code, output, errors = debugged(desk, job, "--pdb", typed=["p left + 40", "q"])

    assert code == 1
    assert "return 100 // left" in output
    assert "(Pdb) 40" in output
    assert "ZeroDivisionError" in errors


def test_a_debugger_that_is_left_ends_the_run(desk):
    job = enqueued(desk, "desk:travel", "3")

    code, _, errors = debugged(desk, job, "--break", typed=["q"])

    assert code == 1
    assert "the debugger was quit; nothing was stored" in errors
    [kept] = desk.lines("find")
    assert (kept["state"], kept["attempt"]) == ("ready", 0)


def test_a_person_at_a_terminal_steps_through_a_job(desk):
    job = enqueued(desk, "desk:travel", "3")
    terminal, theirs = pty.openpty()
    command = [sys.executable, "-m", "penstock", "debug", job, "--app", "desk", "--break"]
    process = subprocess.Popen(
        command, cwd=desk.folder, stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True
    )
    os.close(theirs)

    seen = ""
    for typed in ("n", "p left", "c"):
        seen += read_until(terminal, "(Pdb) ")
        os.write(terminal, f"{typed}\n".encode())
    seen += read_until(terminal, None)

    assert process.wait(100) == 0
    os.close(terminal)
    assert "left = stops - 1" in seen
    assert "\r\n2\r\n" in seen
    assert "\r\n50\r\n" in seen


def read_until(terminal, text):
    """What the other side writes, until this text or its end."""
    seen = b""
    while text is None or not seen.endswith(text.encode()):
        assert select.select([terminal], [], [], 100)[0], seen
        try:
            seen += os.read(terminal, 1024)
        except OSError:  # it has hung up
            break
    return seen.decode()


def test_what_cannot_be_debugged_is_refused_with_the_way_out(desk):
    unknown = "0190a6c4-5e1f-7000-8000-00000a1b2000"
    enqueued(desk, "desk:travel", "1")
    assert "is not known here" in desk("debug", unknown, "--app", "desk", code=2).stderr

    desk("run", "desk:forgets", code=1)  # its result is gone at once
    [gone] = {row["job"] for row in desk.lines("history") if row["task"] == "desk:forgets"}
    assert "are not kept any more" in desk("debug", gone, "--app", "desk", code=2).stderr

    declared = enqueued(desk, "media:resize", "1", "--app", "desk:app")
    told = desk("debug", declared, "--app", "desk:app", code=2).stderr
    assert "only declared in this app" in told

    (desk.folder / "other.py").write_text("from penstock import App\napp = App()\n")
    told = desk("debug", declared, "--app", "other:app", code=2).stderr
    assert "there is no task 'media:resize'" in told

    broker = desk.store()
    [running] = claim_for(broker, WorkerRow(id="here", tasks={"desk:travel": 1}))
    broker.close()
    assert "runs at this moment" in desk("debug", running.id, "--app", "desk", code=2).stderr
