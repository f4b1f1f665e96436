"""export and import: the jobs of a store as lines that anybody can read, and back."""

from __future__ import annotations

import json
import time
from typing import cast

import pytest

from penstock import App
from penstock.app.encrypted_broker import EncryptedBroker
from penstock.app.key_ring import KeyRing
from penstock.broker.filter import Filter
from penstock.broker.protocol import Broker
from penstock.broker.values import Wanted
from penstock.broker.views import WorkerRow
from penstock.brokers import open_broker
from penstock.brokers.memory import MemoryBroker
from penstock.enqueue.ids import Ids
from penstock.job import Job, Unique, succeeded
from penstock.operate.export_jobs import exported
from penstock.operate.import_jobs import check_file, import_file
from penstock.operate.job_file import FileEnd, encode_line, head_line
from penstock.testing.clock import Clock
from penstock.worker import Worker

OTHER = ("--url", "sqlite:///other.db")


@pytest.fixture
def other(cli):
    broker = open_broker(f"sqlite:///{cli.folder / 'other.db'}")
    yield broker
    broker.close()


def lines_of(path):
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def export(cli, *words, code=0):
    cli("export", "--jobs", "--output", "jobs.jsonl", *words, code=code)
    return lines_of(cli.folder / "jobs.jsonl")


def jobs_in(broker):
    jobs = broker.find(Filter()).jobs
    return {job.id: job for job in jobs}


def test_a_store_goes_into_a_file_and_into_another_store_once(shop, other):
    shop("enqueue", "shop:add", "1", "2")
    shop("enqueue", "shop:send", "ada", "--delay", "1h", "--key", "k", "--tag", "tenant=a")
    shop("enqueue", "shop:add", "3", "4", "--unique", "u", "--unique-until", "started")
    before = shop.store()

    head, *jobs, end = export(shop)
    first = shop.json("import", "jobs.jsonl", *OTHER)
    again = shop.json("import", "jobs.jsonl", *OTHER)

    assert (head["penstock"], head["version"]) == ("jobs", 1)
    assert end == {"end": 3, "left_out": 0}
    assert jobs[-1]["args"] == {"a": 1, "b": 2}
    assert set(jobs[-1]) == {"job", "task", "queue", "state", "args", "enqueued_at"}
    assert (first["stored"], first["known"]) == (3, 0)
    assert (again["stored"], again["known"]) == (0, 3)
    kept, moved = jobs_in(before), jobs_in(other)
    assert kept.keys() == moved.keys()
    for id, job in kept.items():
        assert moved[id].body == job.body
        for field in ("task", "queue", "key", "unique", "tags", "state"):
            assert getattr(moved[id], field) == getattr(job, field)
        assert moved[id].run_at == pytest.approx(job.run_at, abs=1e-5)
    before.close()


def test_the_lines_go_to_standard_output_and_come_from_standard_input(shop, other):
    shop("enqueue", "shop:add", "1", "2")

    text = shop("export", "--jobs").stdout
    shop("import", "-", *OTHER, answer=text)

    assert len(jobs_in(other)) == 1


def test_a_dry_run_stores_nothing_and_a_task_may_get_another_name(shop, other):
    shop("enqueue", "shop:add", "1", "2")
    export(shop)

    dry = shop.json("import", "jobs.jsonl", "--dry-run", *OTHER)
    assert (dry["stored"], dry["dry_run"]) == (1, True)
    assert jobs_in(other) == {}
    shop("import", "jobs.jsonl", "--task", "shop:add=sums:plus", *OTHER)
    [job] = jobs_in(other).values()
    assert job.task == "sums:plus"


def test_secrets_stay_where_they_are_and_are_named(shop):
    shop("enqueue", "shop:charge", "4242-4242")

    _, left_out, end = export(shop, code=1)

    assert left_out["task"] == "shop:charge"
    assert left_out["why"] == "secret arguments are not written into files: card"
    assert end == {"end": 0, "left_out": 1}
    assert "4242" not in (shop.folder / "jobs.jsonl").read_text()
    assert "card" in shop("import", "jobs.jsonl", *OTHER, code=1).stderr


def test_only_jobs_that_match_and_have_not_ended_are_exported(shop):
    shop("enqueue", "shop:add", "1", "2")
    shop("enqueue", "shop:send", "ada")

    assert [line["task"] for line in export(shop, "queue:mail")[1:-1]] == ["shop:send"]
    assert (
        "only jobs that have not ended" in shop("export", "--jobs", "state:failed", code=2).stderr
    )
    assert "Write --jobs" in shop("export", code=2).stderr


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda lines: [*lines[:1], "{", *lines[2:]], "line 2: Input data was truncated"),
        (lambda lines: [*lines[:1], '{"x": 1}', *lines[2:]], "line 2: it has none of the fields"),
        (lambda lines: lines[:-1], "ends at line 3 without its last line"),
        (lambda lines: lines[1:], "line 1: a file of jobs begins"),
        (lambda lines: [*lines[:1], *lines[2:]], "line 3: it counts 2 jobs, and 1 are in the file"),
        (lambda lines: [*lines, lines[1]], "line 5: there is a line behind the last one"),
        (
            lambda lines: [lines[0].replace("1", "2", 1), *lines[1:]],
            "this Penstock reads version 1",
        ),
        (lambda lines: [lines[0], lines[1].replace('"a":', '"b":'), *lines[2:]], None),
        (
            lambda lines: [*lines[:2], lines[2].replace("shop:add", "/etc/x.py:f"), *lines[3:]],
            "line 3: task '/etc/x.py:f' is a path",
        ),
    ],
)
def test_a_bad_line_is_refused_with_its_number_and_nothing_is_stored(shop, other, spoil, says):
    shop("enqueue", "shop:add", "1", "2")
    shop("enqueue", "shop:add", "3", "4")
    export(shop)
    path = shop.folder / "jobs.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(spoil(lines)) + "\n")

    if says is None:  # what the arguments mean is known to the task alone
        shop("import", "jobs.jsonl", *OTHER)
        return
    assert says in shop("import", "jobs.jsonl", *OTHER, code=2).stderr
    assert jobs_in(other) == {}


def test_a_job_older_than_the_target_remembers_gets_an_id_derived_from_its_own(shop, other):
    broker = shop.store()
    id = Ids(Clock(time.time() - 13.99999 * 86400)).first()
    broker.enqueue([Job(task="shop:add", id=id, body=b'{"args":{"a":1,"b":2}}')])
    broker.close()
    export(shop)

    first = shop.json("import", "jobs.jsonl", *OTHER)
    again = shop.json("import", "jobs.jsonl", *OTHER)

    assert (first["stored"], first["derived"]) == (1, 1)
    assert (again["stored"], again["known"]) == (0, 1)
    assert [job.startswith("ff") for job in jobs_in(other)] == [True]


def test_a_job_that_runs_is_stored_ready_unless_it_may_run_at_most_once(shop, other):
    broker = shop.store()
    broker.enqueue(
        [Job(task="t"), Job(task="t", at_most_once=True), Job(task="t", unique=Unique("u"))]
    )
    worker = WorkerRow(id="w", tasks={"t": 1})
    while broker.claim([Wanted(worker, 10)]).jobs[0]:
        pass
    broker.close()
    states = [line["state"] for line in export(shop)[1:-1]]
    other.enqueue([Job(task="t", unique=Unique("u"))])

    done = shop.json("import", "jobs.jsonl", *OTHER, code=1)

    assert states == ["running"] * 3
    assert (done["stored"], done["standing"]) == (1, 1)
    assert [each["why"] for each in done["left_out"]] == [
        "it ran when the file was written, and may run at most once"
    ]
    assert {str(job.state) for job in jobs_in(other).values()} == {"ready"}


def flow_of(url):
    app = App(url)

    @app.task(name="part")
    def part(n: int) -> int:
        return n

    @app.task(name="whole")
    def whole(ns: list[int]) -> int:
        return sum(ns)

    parts = part.map([1, 2, 3])
    whole.job(parts.output).enqueue()
    app.close()


def test_a_flow_that_has_not_begun_moves_as_a_whole(shop, other):
    flow_of(f"sqlite:///{shop.folder / 'penstock.db'}")
    lines = export(shop)

    done = shop.json("import", "jobs.jsonl", *OTHER)

    assert [min(line) for line in lines[1:3]] == ["find", "args"]
    assert done["stored"] == 4
    assert shop.json("import", "jobs.jsonl", *OTHER)["known"] == 4
    app = App(f"sqlite:///{shop.folder / 'other.db'}")

    @app.task(name="part")
    def part(n: int) -> int:
        return n

    @app.task(name="whole")
    def whole(ns: list[int]) -> list[int]:
        return ns

    Worker(app, threads=1, drain=True).work()
    results = [job.result for job in jobs_in(other).values() if job.task == "whole"]
    app.close()
    assert results == [b"[1,2,3]"]


def test_a_flow_that_has_begun_is_left_out_with_the_reason(shop, other):
    flow_of(f"sqlite:///{shop.folder / 'penstock.db'}")
    broker = shop.store()
    [[job]] = broker.claim([Wanted(WorkerRow(id="w", tasks={"part": 1}), 1)]).jobs
    broker.settle([(job, succeeded(b"1"))])
    broker.close()
    export(shop)

    done = shop.json("import", "jobs.jsonl", *OTHER, code=1)

    assert done["stored"] == 0
    assert len(done["left_out"]) == 3
    assert "have ended; their results are not in the file" in done["left_out"][0]["why"]
    assert jobs_in(other) == {}


def test_encrypted_secrets_move_encrypted_and_open_with_the_same_key():
    keys = KeyRing(b"k" * 32)
    source, target = (EncryptedBroker(MemoryBroker(), keys) for _ in range(2))
    secret = Job(task="t", body=b'{"args":{"card":"4242","n":1},"secret":["card"]}')
    source.enqueue([secret])

    [line] = exported(cast("Broker", source), Filter())
    head, text = head_line(time.time()), encode_line(line)
    lines = [head, text, encode_line(FileEnd(end=1, left_out=0))]
    done = import_file(cast("Broker", target), lambda: lines, check_file(lambda: lines, {}), {})

    assert b"4242" not in text
    assert done.stored == 1
    moved = target.get(secret.id)
    assert moved is not None
    assert json.loads(moved.body)["args"] == {"card": "4242", "n": 1}


def test_the_history_goes_into_a_file_that_the_next_one_goes_on_from(shop):
    """B50: an archive of what ended, of one queue or of all."""
    broker = shop.store()
    jobs = [Job(task="shop:add", queue=queue, body=b'{"args":{"a":1,"b":2}}') for queue in "xy"]
    broker.enqueue(jobs)
    for queue in "xy":
        wanted = Wanted(WorkerRow(id="w", tasks={"shop:add": 1}), queues=(queue,))
        [[job]] = broker.claim([wanted]).jobs
        broker.settle([(job, succeeded(b"3"))])

    shop("export", "--history", "--output", "all.jsonl")
    only = shop.json("export", "--history", "--queue", "x", "--output", "x.jsonl")
    head, *rows, end = lines_of(shop.folder / "all.jsonl")
    after = shop.json("export", "--history", "--after", end["end"], "--output", "new.jsonl")

    assert head["penstock"] == "history"
    assert [(row["job"], row["args"], row["result"]) for row in rows if row["job"]] == [
        (job.id, {"a": 1, "b": 2}, 3) for job in jobs
    ]
    assert end["rows"] == len(rows)
    assert only["rows"] == 1
    assert [row.get("job") for row in lines_of(shop.folder / "x.jsonl")[1:-1]] == [jobs[0].id]
    # The exports themselves are in it, too: who took a file is on record.
    assert {row["kind"] for row in lines_of(shop.folder / "new.jsonl")[1:-1]} == {"export"}
    assert after["rows"] == 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "--jobs or --history"),
        (("--jobs", "--history"), "and not both"),
        (("--history", "queue:x"), "takes no filter"),
        (("--jobs", "--queue", "x"), "write queue:NAME"),
    ],
)
def test_what_is_exported_is_said(shop, words, says):
    assert says in shop("export", *words, code=2).output
