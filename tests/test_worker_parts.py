"""Pace, slots and targets: the small parts of the worker."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from contextlib import ExitStack
from http.client import HTTPConnection

import msgspec
import pytest

from penstock import App, Refused
from penstock.app.locate import load_app, target_of
from penstock.broker.views import WorkerRow
from penstock.brokers.memory import MemoryBroker
from penstock.job import Job
from penstock.worker.claim_plan import ClaimPlan
from penstock.worker.claim_size import MOST_AT_ONCE, ClaimSize
from penstock.worker.drain_check import anything_left
from penstock.worker.health_server import serve
from penstock.worker.running_slots import Flag, RunningSlots, Vitals


def test_a_lease_doubles_while_it_ends_quickly_and_is_full():
    claim_size = ClaimSize(10)

    for _ in range(20):
        claim_size.claim_ended(0.01, full=True)

    assert claim_size.size == MOST_AT_ONCE


def test_a_lease_that_took_long_is_halved_down_to_one():
    claim_size = ClaimSize(10)

    for _ in range(10):
        claim_size.claim_ended(0.2, full=True)

    assert claim_size.size == 1


def test_a_lease_that_was_not_full_says_nothing():
    claim_size = ClaimSize(10)

    claim_size.claim_ended(0.01, full=False)

    assert claim_size.size == 10


def test_quick_jobs_are_taken_together_and_slow_ones_alone():
    quick, medium, slow, unknown = ClaimSize(10), ClaimSize(10), ClaimSize(10), ClaimSize(10)
    quick.ran(100, 0.001)
    medium.ran(10, 0.01)
    slow.ran(1, 0.5)

    assert quick.chunk(1000, 10) == 1000
    assert medium.chunk(100, 10) == 5
    assert medium.chunk(10, 10) == 1
    assert (slow.chunk(1000, 10), unknown.chunk(1000, 10)) == (1, 1)


def test_a_request_asks_for_as_many_as_there_are_free_hands():
    claims = ClaimPlan(10, 100, processes=False, apart=False)
    claims.set_tasks({"plain": "thread", "other": "async"})
    [first] = claims.requests(0.0)
    assert (first.kind.name, first.limit, first.sizes) == ("any", 10, None)
    claims.take([Job(task="plain", attempt=1)], first, 0, 0.0)

    requests = {
        request.kind.name: (request.limit, request.sizes) for request in claims.requests(0.0)
    }

    assert requests == {
        "hands": (9, {"plain": 9, "other": 0}),
        "slots": (100, {"plain": 0, "other": 100}),
    }


def test_jobs_that_lapsed_before_travel_alone_and_in_a_process_of_their_own():
    claims = ClaimPlan(10, 100, processes=True, apart=False)
    claims.set_tasks({"plain": "thread"})
    [request] = claims.requests(0.0)
    jobs = [Job(task="plain", lapses=lapses, attempt=1) for lapses in (0, 1, 0)]

    chunks = claims.take(jobs, request, 0, 0.0)

    assert sorted((len(chunk.jobs), chunk.own_process) for chunk in chunks) == [
        (1, False),
        (1, False),
        (1, True),
    ]


def test_while_quick_jobs_have_all_the_hands_others_are_claimed_beside_them():
    """As many as could start once those have ended; none more while they have not."""
    claims = ClaimPlan(2, 100, processes=False, apart=True)
    claims.set_tasks({"quick": "thread", "slow": "thread"})
    [first] = claims.requests(0.0)
    for chunk in claims.take([Job(task="quick", attempt=1) for _ in range(2)], first, 0, 0.0):
        chunk.ran, chunk.seconds = 1, 0.000_5
        claims.ended(chunk, 1, 0.001)
        claims.hand_freed(chunk)
    ahead = claims.requests(0.0)[-1]
    claims.take([Job(task="quick", attempt=1) for _ in range(4)], ahead, 0, 0.0)
    [again] = claims.requests(0.0)
    claims.take([Job(task=task, attempt=1) for task in ("slow", "quick")], again, 0, 0.0)
    [once_more] = claims.requests(0.0)

    assert (again.limit, again.sizes) == (4, {"quick": 4, "slow": 2})
    assert once_more.sizes == {"quick": 3, "slow": 1}


@pytest.mark.parametrize(("apart", "wanted"), [(False, []), (True, [20])])
def test_a_store_that_works_apart_is_asked_for_more_while_quick_jobs_run(apart, wanted):
    claims = ClaimPlan(10, 100, processes=False, apart=apart)
    claims.set_tasks({"quick": "thread"})
    [first] = claims.requests(0.0)
    for chunk in claims.take([Job(task="quick", attempt=1) for _ in range(10)], first, 0, 0.0):
        chunk.ran, chunk.seconds = 1, 0.000_01
        claims.ended(chunk, 1, 0.001)
        claims.hand_freed(chunk)
    [ahead] = claims.requests(0.0)
    assert (ahead.kind.name, ahead.limit) == ("ahead", 20)
    claims.take([Job(task="quick", attempt=1) for _ in range(20)], ahead, 0, 0.0)

    assert [
        request.limit for request in claims.requests(0.0) if request.kind is ahead.kind
    ] == wanted


def test_slots_are_seen_through_their_descriptor():
    ours = RunningSlots.make(3)
    theirs = RunningSlots(3, os.dup(ours.descriptor))
    job = Job(task="send", attempt=7, at_most_once=True)

    theirs.hold(1, job, 12.5)
    theirs.beat()
    theirs.publish(Vitals(settled=3, flags=Flag.READY))

    assert ours.held() == [(job.id, 7, 12.5, True)]
    assert ours.vitals == Vitals(pulse=1, settled=3, flags=Flag.READY)

    theirs.free(1)

    assert ours.held() == []
    theirs.close()
    ours.close()
    assert ours.vitals == Vitals()  # the heartbeat may still ask for it


def test_health_is_served_on_loopback():
    answers = {"live": True, "ready": False}

    def page(name: str):
        return lambda: (answers[name], {"name": name})

    with serve(0, page("live"), page("ready")) as port:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/live") as live:
            assert msgspec.json.decode(live.read()) == {"ok": True, "name": "live"}
        for path, status in (("/ready", 503), ("/", 404)):
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(f"http://127.0.0.1:{port}{path}")
            assert refused.value.code == status
            refused.value.close()

    assert not [each for each in threading.enumerate() if each.name == "penstock-health"]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:8080", 200),
        ("127.0.0.1:1", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example:80", 421),
        ("127.0.0.1@evil.example", 421),
        ("", 421),
    ],
)
def test_health_answers_to_this_machines_own_names_alone(host, status):
    """A page on the web may make a name of its own lead to 127.0.0.1."""
    with serve(0, lambda: (True, {"pid": 7}), lambda: (True, {})) as port:
        connection = HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", "/live", headers={"Host": host})
        answer = connection.getresponse()
        body = msgspec.json.decode(answer.read())
        connection.close()

    assert answer.status == status
    assert ("pid" in body) is (status == 200)


def test_health_is_not_held_by_connections_that_say_nothing(monkeypatch):
    monkeypatch.setattr("penstock.worker.health_server._PROBE_SECONDS", 1.0)
    with serve(0, lambda: (True, {}), lambda: (True, {})) as port, ExitStack() as open_:
        lines = [
            open_.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
            for _ in range(30)
        ]

        assert all(line.recv(1) == b"" for line in lines)  # hung up on, sooner or later
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/live", timeout=30) as live:
            assert live.status == 200


def test_jobs_for_newer_code_are_not_left_for_this_worker():
    broker = MemoryBroker()
    broker.enqueue([Job(task="send", version=2)])

    assert not anything_left(broker, WorkerRow(id="old", tasks={"send": 1}))
    assert anything_left(broker, WorkerRow(id="new", tasks={"send": 2}))
    assert not anything_left(broker, WorkerRow(id="new", tasks={"send": 2}, queues=("mail",)))


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder to import from; what was imported there is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_an_app_is_found_by_module_attribute_and_file(project):
    (project / "shop_one.py").write_text("from penstock import App\nmain = App('memory:')\n")
    (project / "pack").mkdir()
    (project / "pack" / "__init__.py").write_text("")
    (project / "pack" / "jobs.py").write_text("from penstock import App\napp = App('memory:')\n")

    app = load_app("shop_one:main")

    assert load_app("shop_one") is app
    assert load_app("shop_one.py") is app
    assert load_app(f"{project}/shop_one.py:main") is app
    assert load_app("pack.jobs:app") is load_app(f"{project}/pack/jobs.py")
    assert target_of(app) == "shop_one:main"


def test_a_file_whose_name_is_taken_is_still_found(project):
    (project / "string.py").write_text("from penstock import App\napp = App('memory:')\n")

    assert isinstance(load_app("string.py"), App)


def test_an_app_that_no_module_holds_has_no_target():
    assert target_of(App("memory:")) is None


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("shop_to:app", "Did you mean shop_two?"),
        ("shop_two", "shop_two:first or shop_two:second"),
        ("shop_two:third", "has no third; it has first, second"),
        ("shop_two:number", "is a int, not an App; it has first, second"),
        ("shop_none", "has no App: write"),
        ("shop_missing", "imports there_is_no_such, which is not installed"),
        ("nowhere.py", "there is no file"),
        ("shop-two", "is not a module"),
        (":app", "names no app"),
    ],
)
def test_what_is_wrong_with_a_target_is_said(project, target, sentence):
    (project / "shop_two.py").write_text(
        "from penstock import App\nfirst = App('memory:')\nsecond = App('memory:')\nnumber = 3\n"
    )
    (project / "shop_none.py").write_text("")
    (project / "shop_missing.py").write_text("import there_is_no_such\n")

    with pytest.raises(Refused) as refused:
        load_app(target)

    assert sentence in str(refused.value)


def test_a_module_that_works_while_it_is_imported_is_told_so(project):
    (project / "eager.py").write_text(
        "from penstock import App\nfrom penstock.worker import Worker\n"
        "app = App('memory:')\nWorker(app, drain=True).work()\n"
    )

    with pytest.raises(RuntimeError, match="__main__"):
        load_app("eager:app")


def test_a_worker_imports_no_event_loop_and_no_http_server_before_it_needs_them() -> None:
    code = (
        "import sys, penstock.worker.child, penstock.worker.supervisor\n"
        "heavy = {'asyncio', 'http.server', 'importlib.metadata', 'typer', 'rich'}\n"
        "print(sorted(heavy & sys.modules.keys()))"
    )

    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout

    assert printed.strip() == "[]"
