"""run and enqueue: which task is meant, what its arguments are, and what is refused."""

from __future__ import annotations

import json
import signal

import pytest

from penstock.testing.conformance.factories import a_worker


def test_run_prints_the_result_on_a_fresh_machine(shop):
    result = shop("run", "shop:add", "2", "3")

    assert result.stdout == "5\n"
    assert "no live worker knows shop:add: this process serves" in result.stderr
    assert f"store: sqlite:///{shop.folder}/penstock.db (the default" in result.stderr
    again = shop("run", "shop:add", "-2", "-3")
    assert again.stdout == "-5\n"


def test_run_shows_the_traceback_of_a_failed_job(shop):
    result = shop("run", "shop:charge", "4242", code=1)

    assert 'raise RuntimeError("no money")' in result.stderr
    assert "failed (error): RuntimeError: no money" in result.stderr


def test_run_shows_the_traceback_once_however_often_the_job_was_tried(cli, caplog):
    (cli.folder / "bank.py").write_text(
        "from penstock import App, Retry\n"
        "app = App()\n"
        "@app.task(retry=Retry(limit=1, delay=0.01))\n"
        "def charge() -> None:\n"
        "    raise RuntimeError('still no money')\n"
    )

    printed = cli("run", "bank:charge", code=1).stderr

    assert printed.count("Traceback") == 1
    assert printed.startswith("Traceback", printed.index("serves the queue default\n") + 25)
    assert "bank:charge failed: RuntimeError: still no money" in caplog.text
    assert "tried again in" in caplog.text
    assert "Traceback" not in caplog.text


def test_run_says_that_a_live_worker_has_another_function_of_this_name(shop):
    shop.store().renew(
        [a_worker("crm-1", tasks={"mail.sweep": 1}, places={"mail.sweep": "crm:sweep"})]
    )

    said = shop(
        "run", "mail.sweep", "2026-11-15T08:00:00Z", "--app", "shop", "--timeout", "0.2s", code=2
    )

    warned = "warning: the task mail.sweep is crm:sweep (worker crm-1) and shop:sweep"
    assert said.stderr.count(warned) == 1
    quiet = shop("run", "shop:add", "2", "3").stderr
    assert "warning" not in quiet


def test_run_as_json_gives_the_job_with_its_secrets_hidden(shop):
    done = shop.json("run", "shop:add", "a=2", "b=3")
    failed = shop.json("run", "shop:charge", "4242", code=1)

    assert (done["state"], done["result"], done["args"]) == ("succeeded", 5, {"a": 2, "b": 3})
    assert done["ended_at"].endswith("Z")
    assert (failed["state"], failed["args"]) == ("failed", {"card": "***"})


@pytest.mark.parametrize(
    ("words", "result"),
    [
        (["shop:send", "ada"], "ada None False"),
        (["shop:send", "5"], "5 None False"),
        (["shop:send", "null", "urgent=true"], "null None True"),
        (["shop:send", "ada", '{"number": 7}'], "ada Order(number=7, price=0.0) False"),
        (["shop:sweep", "2026-11-15T08:00:00Z"], "2026-11-15T08:00:00+00:00"),
        (["mail.sweep", "2026-11-15T08:00:00Z", "--app", "shop"], "2026-11-15T08:00:00+00:00"),
        (["shop:send", "to=a=b", "--app", "shop.py"], "a=b None False"),
    ],
)
def test_an_argument_is_read_as_its_annotation_asks(shop, words, result):
    assert shop("run", *words).stdout == f"{result}\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["shop:ad", "2", "3"], "there is no task 'shop:ad'; did you mean shop:add?"),
        (["shopp:add", "2"], "there is no module shopp"),
        (["add", "2"], "write module:function"),
        (["shop.py:add", "2", "3"], "'shop.py:add' is a path"),
        (["./shop.py:add", "2", "3"], "give its file with --app"),
        (["./shop.py:add", "2", "3", "--app", "shop"], "give its file with --app"),
        (["shop:add", "2"], "add(a: int, b: int) -> int: missing a required argument: 'b'"),
        (["shop:add", "2", "x"], "add(a: int, b: int) -> int: b: Expected `int`, got `str`"),
        (["shop:add", "2", "3", "c=3"], "unexpected keyword argument 'c'"),
        (["shop:add", "a=2", "3"], "put keywords last"),
        (["shop:add", "a=2", "a=3"], "a is given twice"),
        (["shop:add", "2", "3", "--dealy", "5"], "no such option: --dealy"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(shop, words, sentence):
    for command in ("run", "enqueue"):
        assert sentence in shop(command, *words, code=2).stderr
    assert not (shop.folder / "penstock.db").exists()


def test_enqueue_stores_a_job_with_its_options(shop):
    shop("enqueue", "shop:send", "ada", "--delay", "1h", "--priority", "5", "--key", "ada", "--tag",
         "tenant=a", "--queue", "slow")  # fmt: skip

    [job] = shop.lines("find", "tag.tenant:a")
    assert (job["queue"], job["priority"], job["key"]) == ("slow", 5, "ada")
    assert job["run_at"] > job["enqueued_at"]
    assert "due in " in shop("find").stdout


def test_enqueue_at_a_moment(shop):
    shop("enqueue", "shop:send", "ada", "--at", "2099-01-01T08:00+01:00")

    [job] = shop.lines("find")
    assert job["run_at"] == "2099-01-01T07:00:00.000000Z"
    assert "is a duration" in shop("enqueue", "shop:send", "a", "--at", "5m", code=2).stderr


def test_times_are_whole_nanoseconds_in_and_out(shop):
    """V10: kept to the microsecond."""
    shop("enqueue", "shop:send", "ada", "--at", "4070908800123456789")

    [job] = shop.lines("find")
    assert job["run_at"] == "2099-01-01T00:00:00.123456Z"
    assert job["run_at_ns"] == 4070908800123456000
    [row] = shop.lines("enqueue", "shop:add", "1", "2")
    added = next(job for job in shop.lines("find") if job["id"] == row["id"])
    assert added["enqueued_at_ns"] % 1000 == 0
    shop("cancel", job["id"])
    [row] = shop.lines("history", job["id"])
    assert row["at_ns"] >= added["enqueued_at_ns"]


def test_a_unique_job_that_stands_is_named(shop):
    first = shop.json("enqueue", "shop:send", "ada", "--unique", "welcome")
    second = shop.json("enqueue", "shop:send", "ada", "--unique", "welcome")

    assert first["stored"]
    assert (second["stored"], second["id"]) == (False, first["id"])
    said = shop("enqueue", "shop:send", "ada", "--unique", "welcome")
    assert "not stored: this job already holds the unique key" in said.stderr


def test_how_long_a_unique_job_stands_can_be_said(shop):
    options = ("--unique", "digest", "--unique-until", "time", "--unique-for", "1h")
    first = shop.json("enqueue", "shop:send", "ada", *options)
    shop("cancel", first["id"])

    second = shop.json("enqueue", "shop:send", "ada", *options)

    assert (second["stored"], second["id"]) == (False, first["id"])
    wrong = shop("enqueue", "shop:send", "a", "--unique", "k", "--unique-until", "noon", code=2)
    assert '"started", "ended" or "time"' in wrong.stderr


def test_whoever_gives_a_reason_is_in_the_audit_and_a_script_is_not(shop):
    shop("enqueue", "shop:send", "ada")
    job = shop.json("enqueue", "shop:send", "ada", "--reason", "asked for it again")

    [entry] = shop.lines("history", "--audit")

    assert (entry["kind"], entry["reason"]) == ("enqueue", "asked for it again")
    assert job["id"] in str(entry)


def test_a_job_sent_again_under_its_id_is_stored_once(shop):
    job_id = shop.json("enqueue", "shop:send", "ada")["id"]

    again = shop("enqueue", "shop:send", "ada", "--id", job_id)

    assert "already stored, nothing was changed" in again.stderr
    assert [count["ready"] for count in shop.lines("count")] == [1]


def test_many_jobs_come_from_a_file_and_go_on_where_they_stopped(shop):
    file = shop.folder / "rows.jsonl"
    rows = [["ada"], {"to": "bob", "urgent": True}, ["eve", {"number": 1}]]
    file.write_text("\n".join(json.dumps(row) for row in rows))

    first = shop.json("enqueue", "shop:send", "--many", str(file), "--id", "import-7")
    file.write_text("\n".join(json.dumps(row) for row in [*rows, ["zoe"]]))
    second = shop("enqueue", "shop:send", "--many", str(file), "--id", "import-7")

    assert first == {"batch": "import-7", "count": 3, "task": "shop:send"}
    assert second.stdout == "4 jobs of shop:send are stored under import-7\n"
    assert [count["ready"] for count in shop.lines("count")] == [4]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{", "line 1"),
        ("5", "write a list of arguments or an object"),
        ('{"whom": "ada"}', "row 0: send(to: str"),
    ],
)
def test_a_bad_row_is_named(shop, line, sentence):
    file = shop.folder / "rows.jsonl"
    file.write_text(line)

    assert sentence in shop("enqueue", "shop:send", "--many", str(file), code=2).stderr


def test_url_and_profile_say_which_store(shop):
    (shop.folder / "penstock.toml").write_text(
        '[profiles.default]\nurl = "sqlite:///a.db"\n[profiles.spare]\nurl = "sqlite:///b.db"\n'
    )

    shop("enqueue", "shop:send", "ada")
    shop("enqueue", "shop:send", "bob", "--profile", "spare")
    said = shop("enqueue", "shop:send", "eve", "--url", "sqlite:///c.db")

    assert said.stderr == ""
    assert {path.name for path in shop.folder.glob("*.db")} == {"a.db", "b.db", "c.db"}
    [job] = shop.lines("find", "--profile", "spare")
    assert job["args"] == {"to": "bob"}
    assert "give one of them" in shop("find", "--profile", "a", "--url", "b", code=2).stderr


def test_an_app_with_a_url_of_its_own_is_not_sent_elsewhere(cli):
    (cli.folder / "fixed.py").write_text(
        "from penstock import App\napp = App('sqlite:///own.db')\n@app.task\ndef go(): ...\n"
    )

    said = cli("enqueue", "fixed:go", "--url", "sqlite:///other.db", code=2).stderr

    assert "own.db" in said
    assert not list(cli.folder.glob("*.db"))


def test_ctrl_c_leaves_the_job_in_the_store(cli):
    (cli.folder / "long.py").write_text(
        "import sys, threading\nfrom penstock import App\napp = App()\n@app.task\n"
        "def wait() -> None:\n    print('began', flush=True)\n    threading.Event().wait(60)\n"
    )
    process = cli.start("run", "long:wait")

    assert process.stdout.readline() == "began\n"
    process.send_signal(signal.SIGINT)

    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the job stays stored" in said
    [job] = cli.lines("find")
    assert (job["state"], job["failures"], job["lapses"]) == ("ready", 0, 0)
