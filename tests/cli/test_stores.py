"""migrate and doctor."""

from __future__ import annotations

from penstock.broker import WorkerRow
from penstock.job import Job


def finding(cli, name, *words, code=0):
    """What the doctor says under this name."""
    answer = cli.json("doctor", *words, code=code)
    return [each for each in answer["findings"] if each["name"] == name]


def test_migrate_makes_the_store_and_says_where_it_stands(cli):
    made = cli("migrate")
    status = cli.json("migrate", "status")

    assert "has schema" in made.stdout
    assert "from nothing" in made.stdout
    assert status["current"]
    assert status["store"] == str(cli.folder / "penstock.db")


def test_a_healthy_store_is_green(cli):
    cli("migrate")

    result = cli("doctor")

    assert "an accepted job survives kill -9 of any process and a power cut" in result.stdout
    assert "synchronous full" in result.stdout
    assert "RED" not in result.stdout


def test_ready_jobs_and_no_worker_are_red(shop):
    shop("enqueue", "shop:send", "ada")

    [workers] = finding(shop, "workers", code=1)

    assert workers["colour"] == "red"
    assert "ready to run: 1" in workers["says"]
    assert "penstock worker" in workers["remedy"]


def test_a_queued_task_that_no_worker_knows_is_named_with_the_nearest(cli):
    store = cli.store()
    store.enqueue([Job(task="mail:sent")])
    store.renew([WorkerRow(id="w", tasks={"mail:send": 1}, host="h", pid=1)])
    store.close()

    [tasks] = finding(cli, "tasks", code=1)

    assert tasks["colour"] == "red"
    assert "1 jobs of mail:sent wait in queue default" in tasks["says"]
    assert "mail:send" in tasks["says"]


def test_rules_and_failed_jobs_are_worth_knowing(shop):
    shop("run", "shop:charge", "4242", code=1)
    shop("pause", "mail", "--reason", "quiet please")

    [rule] = finding(shop, "rules")
    [jobs] = finding(shop, "jobs")

    assert "quiet please" in rule["says"]
    assert rule["remedy"] == "penstock resume mail"
    assert "1 failed" in jobs["says"]
    assert "penstock find state:failed" in jobs["remedy"]
