"""A fork after use: parent and child have connections of their own, and no job is lost."""

from __future__ import annotations

import gc
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import psycopg
import pytest

from penstock import App
from penstock.brokers.postgres import PostgresBroker
from penstock.job import Job, succeeded
from penstock.testing.conformance.factories import a_worker, claim_for

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def in_child(act: Callable[[], object]) -> int:
    """How a fork ends that does this, and then goes through all that an interpreter's end is."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            act()
            code = 0
        finally:
            gc.collect()  # what the collector takes away must not reach the parent's sessions
            os._exit(code)
    return os.waitpid(child, 0)[1]


def sessions(url: str) -> set[int]:
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "select pid from pg_stat_activity "
            "where datname = current_database() and pid <> pg_backend_pid()"
        ).fetchall()
    return {pid for (pid,) in rows}


def test_a_child_that_uses_the_store_does_not_disturb_the_parent(postgres_store_url):
    broker = PostgresBroker(postgres_store_url)
    broker.enqueue([Job(task="mail:send")])
    broker.traits.rules_version()  # and listens
    before = sessions(postgres_store_url)

    def use() -> None:
        broker.enqueue([Job(task="mail:send"), Job(task="mail:sweep")])
        [job] = claim_for(broker, a_worker("child", tasks={"mail:sweep": 1}), limit=5)
        assert broker.settle([(job, succeeded())]) == [True]
        assert broker.traits.rules_version() is not None
        broker.wait(None, 0.05)
        broker.close()

    codes = [in_child(use) for _ in range(3)]

    assert codes == [0, 0, 0]
    assert before <= sessions(postgres_store_url)
    assert broker.store.listener.receiving
    jobs = claim_for(broker, a_worker(), limit=10)
    assert len(jobs) == 4
    assert all(broker.settle([(job, succeeded()) for job in jobs]))
    broker.close()


def test_a_child_that_only_ends_does_not_disturb_the_parent(postgres_store_url):
    broker = PostgresBroker(postgres_store_url)
    broker.enqueue([Job(task="mail:send")])
    before = sessions(postgres_store_url)

    assert in_child(lambda: None) == 0
    assert in_child(broker.close) == 0

    assert sessions(postgres_store_url) == before
    assert len(claim_for(broker, a_worker())) == 1
    broker.close()


def test_a_fork_while_a_thread_of_the_parent_is_in_a_call(postgres_store_url):
    broker = PostgresBroker(postgres_store_url)
    over = threading.Event()
    stored: list[str] = []

    def produce() -> None:
        while not over.is_set():
            job = Job(task="mail:send")
            broker.enqueue([job])
            stored.append(job.id)

    producers = [threading.Thread(target=produce) for _ in range(3)]
    for producer in producers:
        producer.start()
    codes = []
    for _ in range(10):
        time.sleep(0.02)
        codes.append(in_child(lambda: broker.enqueue([Job(task="mail:sweep")])))
    over.set()
    for producer in producers:
        producer.join()

    assert codes == [0] * 10
    jobs = []
    while claimed := claim_for(broker, a_worker(), limit=1000):
        jobs += claimed
    assert sorted(job.id for job in jobs if job.task == "mail:send") == sorted(stored)
    assert sum(job.task == "mail:sweep" for job in jobs) == 10
    broker.close()


_app: App | None = None


def _send(number: int) -> str:
    assert _app is not None
    return _app.tasks["mail:send"].enqueue(number).id


def test_a_pool_of_forked_processes(postgres_store_url):
    global _app  # noqa: PLW0603  inherited by the forks, as a module's app is
    _app = app = App(postgres_store_url)

    @app.task(name="mail:send")
    def send(n: int) -> None: ...

    ids = [send.enqueue(-1).id]
    with multiprocessing.get_context("fork").Pool(3) as pool:
        ids += pool.map(_send, range(100))
        ids += [send.enqueue(n).id for n in range(20)]
        pool.close()
        pool.join()

    assert len(set(ids)) == 121
    jobs = claim_for(app.broker, a_worker(), limit=1000)
    assert {job.id for job in jobs} == set(ids)
    app.close()
    _app = None


def test_a_program_that_ends_without_closing_its_store_is_not_warned(tmp_path, postgres_store_url):
    program = (
        "import sys\n"
        "from penstock import App\n"
        "app = App(sys.argv[1])\n"
        "@app.task(name='mail:send')\n"
        "def send() -> None: ...\n"
        "send.enqueue()\n"
        "app.broker.traits.rules_version()\n"
    )
    (tmp_path / "program.py").write_text(program, encoding="utf-8")

    ended = subprocess.run(
        [sys.executable, "-W", "error", "program.py", postgres_store_url],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert (ended.returncode, ended.stderr) == (0, "")
