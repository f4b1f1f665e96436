"""migrate and doctor."""

from __future__ import annotations

import sqlite3

import psycopg

from penstock.broker.views import WorkerRow
from penstock.job import Job


def finding(cli, name, *words, code=0):
    """What the doctor says under this name."""
    answer = cli.json("doctor", *words, code=code)
    return [each for each in answer["findings"] if each["name"] == name]


def test_migrate_makes_the_store_and_says_where_it_stands(cli):
    made = cli("migrate")
    status = cli.json("migrate", "status")

    assert "is new, with schema" in made.stdout
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
    assert "1 job of mail:sent waits in queue default" in tasks["says"]
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


def test_migrate_prints_what_it_would_run(cli):
    script = cli("migrate", "sql").stdout
    database = sqlite3.connect(cli.folder / "penstock.db")
    database.executescript(script.replace(".bail on", ""))
    database.close()

    status = cli.json("migrate", "status")
    again = cli("migrate", "sql").stdout

    assert status["current"]
    assert status["pending"] == []
    assert again.startswith("-- Nothing to do")


def test_migrate_on_postgres_makes_the_store_and_says_where_it_stands(cli, postgres_url):
    cli("migrate", "status", "--url", postgres_url, code=2)
    printed = cli("migrate", "sql", "--url", postgres_url).stdout

    made = cli("migrate", "up", "--post", "--url", postgres_url)
    status = cli.json("migrate", "status", "--url", postgres_url)

    assert "create schema penstock;" in printed
    assert "is new, with schema" in made.stdout
    assert (status["current"], status["pending"], status["pending_post"]) == (True, [], [])
    assert cli("migrate", "sql", "--url", postgres_url).stdout.startswith("-- Nothing to do")


def test_roles_are_printed_for_the_owner_to_run(cli, postgres_url):
    printed = cli(
        *("migrate", "roles", "--viewer", "boss", "--producer", "web", "--worker", "shop"),
        *("--worker", "mail", "--admin", "ops", "--url", postgres_url),
    ).stdout

    assert 'grant "penstock_viewer" to "boss";' in printed
    assert 'grant "penstock_producer" to "web";' in printed
    assert 'grant "penstock_worker" to "shop";' in printed
    assert 'grant "penstock_worker" to "mail";' in printed
    assert 'grant "penstock_admin" to "ops";' in printed


def test_a_file_has_no_roles(cli):
    refused = cli("migrate", "roles", "--worker", "shop", code=2)

    assert "knows no roles" in refused.output


def test_the_doctor_looks_at_postgres(cli, postgres_url):
    cli("migrate", "--url", postgres_url)
    name = postgres_url.rpartition("/")[2].partition("?")[0]
    with psycopg.connect(postgres_url) as connection:
        connection.execute(f"alter database {name} set synchronous_commit = off".encode())

    answer = cli.json("doctor", "--url", postgres_url, code=1)

    names = {each["name"] for each in answer["findings"]}
    assert names >= {"horizon", "vacuum", "wal", "functions", "partitions", "notifications"}
    reds = [each["says"] for each in answer["findings"] if each["colour"] == "red"]
    assert answer["red"]
    assert any(each.startswith("synchronous_commit is off") for each in reds)


def test_a_server_that_is_down_is_no_missing_store(cli):
    url = "postgresql://nobody@127.0.0.1:1/shop"

    status = cli("migrate", "status", "--url", url, code=2)
    [store] = finding(cli, "store", "--url", url, code=1)

    assert "does not answer" in status.output
    assert "no store" not in status.output
    assert "does not answer" in store["says"]
    assert "start it" in store["remedy"]


def test_sql_is_not_json(cli, postgres_url):
    for step in ("sql", "roles"):
        refused = cli("migrate", step, "--json", "--url", postgres_url, code=2)

        assert "prints SQL: leave out --json" in refused.output
