"""show: everything about one job, on one screen."""

from __future__ import annotations

import pytest
import rich.cells

from penstock.broker.views import Note
from penstock.cli.job_screen import MOST_ATTEMPTS, MOST_LINES, job_screen
from penstock.job import failed, succeeded, try_again
from penstock.operate.job_view import view_job
from penstock.testing.conformance.factories import a_job, begun, claim

TASKS = """
import json

from penstock import App, Retry, current_job

app = App()


@app.task(queue="payments", retry=Retry(limit=1, delay=0), secret=("card",), keep_messages=True)
def charge(order: int, card: str) -> None:
    current_job().log.warning("the gateway is slow")
    check(order)


def check(order: int) -> None:
    json.loads("{" * order)


@app.task
def add(a: int, b: int) -> int:
    return a + b


@app.task
def split(n: int) -> None:
    jobs = [add.job(i, 1) for i in range(n)]
    current_job().spawn(jobs, then=add.job(jobs[0].output, 10))
"""


@pytest.fixture
def payments(cli):
    (cli.folder / "payments.py").write_text(TASKS)
    return cli


def drain(cli) -> None:
    process = cli.start("worker", "payments:app", "--drain", "--processes", "1")
    process.communicate(timeout=60)


def test_a_failed_job_says_why_with_what_and_where_in_ones_own_code(payments):
    id = payments("enqueue", "payments:charge", "7", "visa-of-ada").stdout.strip()
    drain(payments)

    text = payments("show", id).stdout

    assert text.startswith("payments:charge  failed\n")
    assert f"`penstock retry {id} --secret card` asks for them" in text
    assert 'arguments  order=7, card="***"' in text
    assert "json.decoder.JSONDecodeError" in text
    own = [line for line in text.splitlines() if "payments.py:" in line]
    assert [line.split(" in ")[1].split()[0] for line in own] == ["check", "charge"]
    assert "json/decoder.py" not in text
    assert "warning the gateway is slow" in text
    assert "visa-of-ada" not in text + payments("show", id, "--json").stdout


def test_full_has_the_whole_traceback(payments):
    id = payments("enqueue", "payments:charge", "7", "visa-of-ada").stdout.strip()
    drain(payments)

    text = payments("show", id, "--full").stdout

    assert text.count("Traceback (most recent call last):") == 2
    assert "json/decoder.py" in text


def test_a_job_and_what_it_spawned_name_each_other(payments):
    id = payments("enqueue", "payments:split", "3").stdout.strip()
    drain(payments)

    whole = payments.json("show", id)
    text = payments("show", id).stdout

    assert whole["spawned"]["jobs"] == 4
    last = whole["spawned"]["flow"]
    assert {child["state"] for child in whole["children"]} == {"succeeded"}
    assert f"4 jobs, flow {last}" in text
    then = payments.json("show", last)
    assert then["parent"] == id
    assert then["flow"]["id"] == last
    assert then["job"]["result"] == 11
    assert f"spawned by {id}" in payments("show", last).stdout


def test_what_is_not_known_is_a_sentence(payments):
    payments("enqueue", "payments:add", "1", "2")

    assert "it was never enqueued here" in payments("show", "0" * 32, code=1).stdout
    assert payments.json("show", "0" * 32, code=1)["known"] is False


def test_a_job_that_is_not_kept_shows_its_history(sqlite_broker, clock):
    job = a_job(clock)
    sqlite_broker.enqueue([job])
    [claimed] = claim(sqlite_broker)
    sqlite_broker.settle([(claimed, failed("ValueError: no such order"))])
    sqlite_broker.act("delete", [job.id], "ada", "cleaning up")

    text = shown(sqlite_broker, job.id, 80)

    assert "a job that is no longer kept" in text
    assert "ValueError: no such order" in text
    assert "deleted by ada: cleaning up" in text


def test_what_is_many_is_cut_to_one_screen_and_says_so(sqlite_broker, clock):
    job = a_job(clock, body=b'{"args":{"text":"%s","name":"%s"}}' % (b"x" * 500, b"y" * 500))
    sqlite_broker.enqueue([job])
    for number in range(9):
        [claimed] = claim(sqlite_broker)
        lines = b"[%s]" % b",".join(
            b'{"at":1.0,"level":"info","text":"line %d of %d"}' % (line, number)
            for line in range(20)
        )
        sqlite_broker.note(claimed, Note("log", f"{number:06d}", lines))
        clock.advance(seconds=1)
        outcome = try_again(f"ValueError: {number}\n\n{'x' * 300}", clock.now())
        sqlite_broker.settle([(claimed, begun(outcome, clock.now() - 1))])

    text, whole = shown(sqlite_broker, job.id, 80), shown(sqlite_broker, job.id, None)

    assert len(text.splitlines()) <= 40
    assert max(rich.cells.cell_len(line) for line in text.splitlines()) <= 80
    assert f"{9 - MOST_ATTEMPTS} before these: --full" in text
    assert f"{180 - MOST_LINES} lines before these: --full" in text
    assert "line 19 of 8" in text
    assert whole.count("line 0 of") == 9
    assert "x" * 500 in whole


def test_control_characters_of_a_job_do_not_reach_the_terminal(sqlite_broker, clock):
    job = a_job(clock, key="\x1b[31mred", tags={"a": "\x1b]0;title\x07"})
    sqlite_broker.enqueue([job])
    [claimed] = claim(sqlite_broker)
    sqlite_broker.settle([(claimed, succeeded(b'"\\u001b[2J"'))])

    for width in (80, None):
        text = shown(sqlite_broker, job.id, width)
        assert "\x1b" not in text
        assert "\x07" not in text


def shown(broker, id: str, width: int | None) -> str:
    lines = job_screen(view_job(broker, id), broker.clock.now(), width)
    return "\n".join(line.plain for line in lines)


def test_why_answers_for_what_is_not_a_job(payments):
    payments("enqueue", "payments:add", "1", "2")
    payments("pause", "default", "--reason", "provider is down")

    result = payments("why", "default")
    assert "queue:default" in result.stderr
    assert "-> penstock resume default" in result.stdout
    answer = payments.json("why", "queue:default")
    assert {each["name"] for each in answer["findings"]} == {"jobs", "rules", "workers"}
    assert "nothing here is called 'nobody'" in payments("why", "nobody", code=1).stdout
    assert payments.json("why", "nobody", code=1)["findings"] is None
