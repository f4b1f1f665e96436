"""init, worker and dev, as processes."""

from __future__ import annotations

import json
import signal


def test_init_writes_a_task_and_the_two_next_commands_work(cli):
    said = cli("init").stdout

    code = [line for line in (cli.folder / "tasks.py").read_text().splitlines() if line]
    assert len(code) <= 6
    assert "penstock run tasks:add 2 3" in said
    assert "penstock dev tasks" in said
    assert cli("run", "tasks:add", "2", "3").stdout == "5\n"
    assert "exists and is not changed" in cli("init", code=2).stderr
    assert cli.json("init", "more.py")["next"][0] == "penstock run more:add 2 3"


def test_a_draining_worker_ends_when_nothing_is_left(shop):
    for number in range(5):
        shop("enqueue", "shop:add", str(number), "1")
    shop("enqueue", "shop:charge", "4242")

    worker = shop.start("worker", "shop", "--drain", "--processes", "1", "--log-level", "warning")
    said, errors = worker.communicate(timeout=60)

    assert (worker.returncode, said) == (0, "")
    assert "an accepted job survives kill -9" in errors
    assert "tasks: mail.sweep, shop:add, shop:charge, shop:send" in errors
    assert len(shop.lines("find", "state:succeeded")) == 5
    assert len(shop.lines("find", "state:failed")) == 1


def test_a_worker_says_what_is_wrong_with_its_target(cli):
    (cli.folder / "empty.py").write_text("from penstock import App\napp = App()\n")
    (cli.folder / "broken.py").write_text("x = 1 / 0\n")

    broken = cli("worker", "broken", code=2).stderr
    assert broken.splitlines()[1].endswith('broken.py", line 1, in <module>')
    assert "ZeroDivisionError" in broken
    assert "no module nothing" in cli("worker", "nothing", code=2).stderr
    assert "has no tasks" in cli("worker", "empty", code=2).stderr
    assert "is not a size" in cli("worker", "empty", "--max-memory", "lots", code=2).stderr
    assert "--lease 0s must be" in cli("worker", "empty", "--lease", "0s", code=2).stderr


def test_a_port_that_is_none_is_refused(shop):
    said = shop("worker", "shop", "--drain", "--health-port", "99999", code=2).stderr

    assert "--health-port 99999 cannot be served" in said


def told_by_the_worker(process) -> dict:
    """The next line of the worker's; the dashboard beside it says one of its own."""
    while (line := json.loads(process.stdout.readline()))["event"] == "dashboard":
        pass
    return line


def test_dev_reloads_when_a_file_changes(shop):
    process = shop.start("dev", "shop", "--json")
    try:
        first = told_by_the_worker(process)
        assert "shop:added" not in first["tasks"]

        with (shop.folder / "shop.py").open("a") as file:
            file.write("\n\n@app.task\ndef added() -> None: ...\n")
        ended = told_by_the_worker(process)
        second = told_by_the_worker(process)

        assert (first["event"], ended["event"], second["event"]) == ("started", "ended", "started")
        assert "shop:added" in second["tasks"]
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 0


def test_dev_asks_for_a_target_where_there_is_no_tasks_py(cli):
    assert "penstock init" in cli("dev", code=2).stderr


def test_a_queue_that_no_task_has_is_named_when_a_worker_starts(shop):
    worker = shop.start(
        *("worker", "shop", "--queues", "mial,mail", "--drain"),
        *("--processes", "1", "--log-level", "warning"),
    )
    _, errors = worker.communicate(timeout=60)

    assert worker.returncode == 0
    assert "no task of this app has the queue 'mial'; similar: mail" in errors
    assert errors.count("no task of this app") == 1
    assert "names no queue" in shop("worker", "shop", "--queues", "", code=2).stderr
