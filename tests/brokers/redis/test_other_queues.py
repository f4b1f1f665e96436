"""What waits in Celery, RQ and BullMQ, as they write it, becomes jobs here; each once.

The messages are what these systems write: kombu's protocol 2, RQ's hashes, BullMQ's lists.
"""

from __future__ import annotations

import base64
import json
import pickle
import time
import zlib

import pytest

from penstock import App
from penstock.broker.filter import Filter
from penstock.brokers import open_other_queues
from penstock.brokers.redis.address import parse_address
from penstock.brokers.redis.connection import ServerCalls
from penstock.errors import Refused
from penstock.operate.import_queues import StayedBehind, import_queues


@pytest.fixture
def there(redis_server):
    """A database of the other system's own."""
    url = redis_server.url(7)
    server = ServerCalls(parse_address(url))
    server.call("FLUSHDB")
    yield url, server
    server.close()


@pytest.fixture
def app():
    app = App("memory:")

    @app.task(name="shop.tasks:send", queue="mail")
    def send(to: str, count: int = 1) -> None: ...

    @app.task(name="note")
    def note(text: str) -> None: ...

    yield app
    app.close()


def stored(app):
    jobs = sorted(app.broker.find(Filter()).jobs, key=lambda job: job.run_at)
    return [(job.task, json.loads(job.body)["args"]) for job in jobs]


def run(app, there, system, tasks=None, queues=(), **options):
    found = open_other_queues(system, there[0], queues)
    try:
        return import_queues(app, system, found, tasks or {}, **options)
    finally:
        found.close()


def celery_message(task, args, kwargs=None, **headers):
    body = json.dumps([args, kwargs or {}, headers.pop("links", {"chain": None, "chord": None})])
    return json.dumps(
        {
            "body": base64.b64encode(body.encode()).decode(),
            "content-encoding": "utf-8",
            "content-type": headers.pop("content_type", "application/json"),
            "headers": {"lang": "py", "task": task, "id": f"id of {args}", "eta": None, **headers},
            "properties": {"body_encoding": "base64", "delivery_tag": "1", "priority": 0},
        }
    )


def test_what_celery_has_is_read_in_its_order_and_stays_there(app, there):
    server = there[1]
    server.call("SADD", "_kombu.binding.mail", "mail\x06\x16\x06\x16mail")
    for to in ("ada", "bob", "eve"):
        server.call("LPUSH", "mail", celery_message("shop.tasks.send", [to]))
    late = celery_message("old.note", [], {"text": "x"}, eta="2199-01-01T00:00:00+00:00")
    server.call("LPUSH", "celery\x06\x163", late)

    done = run(app, there, "celery", {"old.note": "note"})
    again = run(app, there, "celery", {"old.note": "note"})

    assert (done.stored, again.stored, again.known) == (4, 0, 4)
    assert stored(app) == [
        *(("shop.tasks:send", {"to": to}) for to in ("ada", "bob", "eve")),
        ("note", {"text": "x"}),
    ]
    assert server.call("LLEN", "mail") == 3
    [job] = app.broker.find(Filter(task=("note",))).jobs
    assert job.run_at == 7226582400.0
    assert json.loads(job.body)["headers"] == {"imported_from": "celery id of []"}


def test_move_takes_away_what_was_stored_and_only_that(app, there):
    server = there[1]
    for number in range(1200):  # more than a part
        server.call("LPUSH", "celery", celery_message("note", [f"{number}"]))
        if number % 100 == 0:
            server.call("LPUSH", "celery", celery_message("unknown", [f"{number}"]))

    dry = run(app, there, "celery", dry_run=True, move=True)
    assert (dry.stored, server.call("LLEN", "celery")) == (1200, 1212)
    assert stored(app) == []
    done = run(app, there, "celery", move=True)

    assert (done.stored, done.removed, done.taken) == (1200, 1200, 0)
    why = "no task here has this name: give --task unknown=module:function"
    assert done.stayed == [StayedBehind("unknown", why, 12)]
    assert server.call("LLEN", "celery") == 12


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (celery_message("note", ["a"], content_type="application/x-python-serialize"), "a pickle"),
        (celery_message("note", ["a"], links={"chain": [{"task": "b"}]}), "goes on with a chain"),
        (celery_message("note", ["a"], links={"chord": {"task": "b"}}), "goes on with a chord"),
        (celery_message("note", ["a"], compression="gzip"), "compressed"),
        (celery_message("note", [1, 2, 3]), "note"),
        ("no json", "is no JSON"),
    ],
)
def test_what_celery_has_and_cannot_be_a_job_stays_with_the_reason(app, there, message, why):
    there[1].call("LPUSH", "celery", message)

    done = run(app, there, "celery", move=True)

    [stayed] = done.stayed
    assert why in stayed.why
    assert there[1].call("LLEN", "celery") == 1


def test_what_celerys_workers_hold_is_told(app, there):
    there[1].call("HSET", "unacked", "tag", "[]")

    [note] = run(app, there, "celery").notes

    assert "1 messages are held by Celery's workers" in note


def rq_job(server, id, data):
    server.call("HSET", f"rq:job:{id}", "data", data, "description", "os.system('true')")


def test_json_of_rq_is_read_and_pickle_is_refused_by_name(app, there):
    server = there[1]
    call = json.dumps(["shop.tasks.send", None, ["ada"], {"count": 2}]).encode()
    rq_job(server, "a", zlib.compress(call))
    rq_job(server, "b", zlib.compress(pickle.dumps(("os.system", None, ("true",), {}))))
    rq_job(server, "c", call)
    rq_job(server, "d", call)
    server.call("SADD", "rq:job:d:dependents", "x")
    server.call("SADD", "rq:queues", "rq:queue:default")
    server.call("RPUSH", "rq:queue:default", "a", "b", "d")
    at = int(time.time()) + 3600
    server.call("ZADD", "rq:scheduled:default", at, "c")
    server.call("ZADD", "rq:wip:default", 1, "x")

    done = run(app, there, "rq", move=True)

    assert (done.stored, done.removed) == (2, 2)
    assert stored(app) == [("shop.tasks:send", {"to": "ada", "count": 2})] * 2
    assert max(job.run_at for job in app.broker.find(Filter()).jobs) == at
    assert done.stayed[0].name == "os.system"
    assert "its data is a pickle, and only JSON is read" in done.stayed[0].why
    assert "other jobs wait for it" in done.stayed[1].why
    assert server.call("LRANGE", "rq:queue:default", 0, -1) == [b"b", b"d"]
    assert server.call("EXISTS", "rq:job:a", "rq:job:b", "rq:job:c") == 1
    assert done.notes == ["1 jobs of RQ are running, and are not read"]


def test_a_packed_body_that_is_too_large_is_not_unpacked(app, there):
    server = there[1]
    rq_job(server, "a", zlib.compress(b" " * 2**24))
    server.call("RPUSH", "rq:queue:q", "a")

    [stayed] = run(app, there, "rq", queues=["q"]).stayed

    assert "larger than 1,048,576 bytes" in stayed.why


def bull_job(server, id, name, data, **fields):
    words = [word for pair in fields.items() for word in pair]
    server.call("HSET", f"bull:mail:{id}", "name", name, "data", json.dumps(data), *words)


def test_lists_and_sets_of_bullmq_are_read_with_their_times(app, there):
    server = there[1]
    server.call("HSET", "bull:mail:meta", "opts.maxLenEvents", 10)
    bull_job(server, 1, "send", {"to": "ada"})
    bull_job(server, 2, "send", {"to": "bob"})
    bull_job(server, 3, "send", {"to": "eve"}, delay=1000)
    bull_job(server, 4, "send", {"to": "kim"}, parentKey="bull:q:1")
    bull_job(server, 5, "text", "x", rjk="every")
    bull_job(server, 6, "text", "y")
    server.call("LPUSH", "bull:mail:wait", 1, 2, "0:0", 4, 5, 6)
    at = int(time.time() * 1000) + 60_000
    server.call("ZADD", "bull:mail:delayed", at * 0x1000 + 3, 3)

    tasks = {"mail/send": "shop.tasks:send", "text": "note"}
    done = run(app, there, "bullmq", tasks, move=True)

    assert (done.stored, done.removed) == (4, 4)
    assert stored(app) == [
        ("shop.tasks:send", {"to": "ada"}),
        ("shop.tasks:send", {"to": "bob"}),
        ("note", {"text": "y"}),
        ("shop.tasks:send", {"to": "eve"}),
    ]
    assert max(job.run_at for job in app.broker.find(Filter()).jobs) == pytest.approx(at / 1000)
    assert {stayed.name: stayed.why.split(":")[0] for stayed in done.stayed} == {
        "send": "it is a child of a flow",
        "text": "a repeatable job made it",
    }
    assert server.call("LRANGE", "bull:mail:wait", 0, -1) == [b"5", b"4", b"0:0"]


def test_a_job_that_a_worker_there_took_meanwhile_is_told(app, there):
    server = there[1]
    server.call("LPUSH", "celery", celery_message("note", ["a"]))
    queues = open_other_queues("celery", there[0])
    taking = queues.remove
    queues.remove = lambda jobs: server.call("DEL", "celery") and taking(jobs)

    done = import_queues(app, "celery", queues, {}, move=True)
    queues.close()

    assert (done.stored, done.removed, done.taken) == (1, 0, 1)


def test_only_redis_has_these_queues(app):
    with pytest.raises(Refused, match="is no URL of Redis, where rq keeps its queues"):
        open_other_queues("rq", "postgresql://db/jobs")
    with pytest.raises(Refused, match="--task a=b: there is no task 'b'"):
        import_queues(app, "rq", None, {"a": "b"})
