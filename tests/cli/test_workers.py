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
