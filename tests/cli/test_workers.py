"""workers: what each runs now is listed; numbers are set and reset by name."""

from __future__ import annotations

import json

from penstock.broker.worker_settings import WorkerSettings
from penstock.brokers import open_broker
from penstock.testing.conformance.factories import a_worker, claim


def test_workers_and_what_they_run_are_listed(shop):
    shop("enqueue", "shop:send", "ada")
    broker = open_broker(f"sqlite:///{shop.folder / 'penstock.db'}")
    try:
        [job] = claim(broker, worker="w-1", tasks={"shop:send": 1})
        broker.renew([a_worker(id="w-1", group="mail-1", threads=3, running=1)])
    finally:
        broker.close()

    [row] = shop.lines("workers")

    assert (row["worker"], row["id"], row["threads"]) == ("mail-1", "w-1", 3)
    assert [each["id"] for each in row["jobs"]] == [job.id]
    assert job.id in shop("workers").stdout.replace("\n", "")


def test_numbers_are_set_by_name_and_reset(shop):
    shop("enqueue", "shop:send", "ada")
    said = shop("workers", "set", "mail-1", "--threads", "20", "--queue", "mail=2")

    assert "worker mail-1: threads=20, processes of mail=2" in said.stdout
    assert "no worker named mail-1 is alive" in said.stderr
    shop("workers", "quiet", "mail-1", "--reason", "deploy")
    assert json.loads(shop("workers", "resume", "mail-1", "--json").stdout)["quiet"] is False
    nobody = shop("workers", "stop", "mail-1", code=1)
    assert (nobody.stdout, "no worker named mail-1" in nobody.stderr) == ("", True)
    broker = open_broker(f"sqlite:///{shop.folder / 'penstock.db'}")
    try:
        [kept] = broker.records(WorkerSettings)
    finally:
        broker.close()
    assert (kept.threads, kept.queues, kept.quiet) == (20, {"mail": 2}, False)
    assert kept.stop_at > 0
    assert "as it was started" in shop("workers", "reset", "mail-1").stdout
    assert "nothing was set" in shop("workers", "reset", "mail-1").stdout
    audit = shop("history", "--audit").stdout
    assert "mail-1" in audit


CRM = """
from penstock import App

app = App()


@app.task(queue="mail", name="mail.sweep")
def clean() -> None: ...
"""


def test_two_programs_with_a_task_of_one_name_are_told(shop):
    """The worker that starts later logs it; both run."""
    (shop.folder / "crm.py").write_text(CRM)
    first = shop.start("worker", "shop:app", "--processes", "1", "--name", "shop-1")
    try:
        until_alive(shop, 1)
        second = shop.start("worker", "crm:app", "--processes", "1", "--name", "crm-1")
        try:
            rows = until_alive(shop, 2)
            listed = shop("workers")
            found = shop("doctor").stdout
        finally:
            second.terminate()
            said = second.communicate(timeout=60)[1]
    finally:
        first.terminate()
        quiet = first.communicate(timeout=60)[1]

    sentence = "the task mail.sweep is shop:sweep (worker shop-1) and crm:clean (worker crm-1)"
    assert sentence in said
    assert "each of them runs jobs of the other" not in quiet
    assert sentence in " ".join(listed.stderr.split())
    assert sentence in " ".join(found.split())
    assert [[sentence in each for each in row["warnings"]] for row in rows] == [[True], [True]]


def until_alive(shop, count):
    """The processes of these workers, once all have claimed."""
    broker, rows = shop.store(), []
    try:
        for _ in range(600):
            rows = shop.lines("workers")
            if len(rows) == count and all(row["claimed_at"] for row in rows):
                return rows
            broker.wait(None, 0.1)
    finally:
        broker.close()
    raise AssertionError(f"no {count} workers: {rows}")


def test_what_makes_no_sense_is_refused(shop):
    shop("enqueue", "shop:send", "ada")

    assert "which worker?" in shop("workers", "set", code=2).stderr
    assert "set needs a number" in shop("workers", "set", "mail-1", code=2).stderr
    assert "set needs a number" in shop("workers", "stop", "w", "--threads", "1", code=2).stderr
    assert "from 1 to" in shop("workers", "set", "mail-1", "--threads", "0", code=2).stderr
    assert "--queue" in shop("workers", "set", "mail-1", "--queue", "mail", code=2).stderr
    both = ("--queue", "mail=2", "--processes", "2")
    assert "leave out --queues" in shop("worker", "shop:app", *both, code=2).stderr
    assert "at least one" in shop("worker", "shop:app", "--queue", "mail=0", code=2).stderr
