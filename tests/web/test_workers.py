"""The page Workers: each worker, the jobs it runs, and those that are alive but claim nothing."""

from __future__ import annotations

from penstock.broker.worker_settings import WorkerSettings
from penstock.testing.conformance.factories import a_worker, claim, some_jobs
from penstock.web.access import Role
from tests.web.conftest import Web
from tests.web.test_pages import text_of

HOSTILE = """'"><script>alert(1)</script>\u202e/{{7*7}}"""


def test_every_worker_is_shown_with_what_it_holds(web: Web, broker, clock):
    broker.enqueue(some_jobs(clock, 1))
    [held] = claim(broker, worker="busy-1", host="ada", pid=71, tags=frozenset({"gpu"}))
    claim(broker, worker="idle-1", host="bob", queues=("none",))
    broker.renew([a_worker("detached-1", queues=(), started_at=clock.now())])

    page = web.client(Role.VIEW).get("/workers")

    said = text_of(page.text)
    assert page.status_code == 200
    assert "1 busy 1 idle 1 detached 0 manager 0 lapsed" in said
    assert f"/jobs/{held.id}" in page.text
    assert "gpu" in said
    assert "penstock doctor" in said


def test_a_worker_that_lapsed_and_one_that_claims_nothing_are_red(web: Web, broker, clock):
    claim(broker, worker="gone-1", lease=15.0, started_at=clock.now())
    clock.advance(seconds=70)
    broker.renew([a_worker("deaf-1", started_at=clock.now() - 70, lease=15.0)])

    said = text_of(web.client(Role.VIEW).get("/workers").text)

    assert "lapsed its lease has expired" in said
    assert "idle, and its last successful claim was" in said


def test_workers_of_different_releases_and_versions_are_named(web: Web, broker, clock):
    now = clock.now()
    broker.renew([a_worker("old", penstock="0.1.0", tasks={"mail:send": 1}, started_at=now)])
    broker.renew([a_worker("new", penstock="0.2.0", tasks={"mail:send": 2}, started_at=now)])

    said = text_of(web.client(Role.VIEW).get("/workers").text)

    assert "different Penstock releases are running: 0.1.0 , 0.2.0" in said
    assert "mail:send: versions 1, 2" in said


def test_without_workers_the_page_says_how_to_start_one(web: Web, broker, clock):
    broker.enqueue(some_jobs(clock, 2))

    said = text_of(web.client(Role.VIEW).get("/workers").text)

    assert "No worker is alive , and 2 jobs are ready to run" in said or (
        "No worker is alive, and 2 jobs are ready to run" in said
    )
    assert "penstock worker MODULE:APP" in said


def test_names_of_workers_are_shown_and_never_run(web: Web, broker, clock):
    broker.renew([a_worker(HOSTILE, host=HOSTILE, tags=frozenset({HOSTILE}), penstock=HOSTILE)])

    page = web.client(Role.VIEW).get("/workers")

    assert page.status_code == 200
    assert "<script>alert" not in page.text
    assert "alert(1)" in text_of(page.text)


def test_receivers_are_shown_with_their_manager_and_what_they_hold(web: Web, broker, clock):
    now = clock.now()
    broker.enqueue(some_jobs(clock, 1))
    row = {"host": "ada", "pid": 71, "started_at": now, "claimed_at": now}
    [held] = claim(broker, worker="receiver/mailer/node-62", **row)
    broker.renew([a_worker("manager-1", queues=(), **row)])

    page = web.client(Role.VIEW).get("/workers")

    said = text_of(page.text)
    assert "1 busy 0 idle 0 detached 1 manager 0 lapsed" in said
    assert "mailer/node-62 busy running jobs ada pid 71 1 job" in said
    assert "hands out jobs to receivers" in said
    assert f"/jobs/{held.id}" in page.text


def test_a_worker_is_changed_from_the_page_and_over_rest(memory_web: Web):
    memory_web.site.broker.renew([a_worker(id="w-1", group="mail-1", threads=3)])
    browser = memory_web.browser(Role.OPERATE)
    assert "Change a worker" in browser.get("/workers").text
    assert "Change a worker" not in memory_web.browser(Role.VIEW).get("/workers").text

    form = {"worker": "mail-1", "threads": "20", "processes": "", "reason": "backlog"}
    assert browser.post("/workers/set", data=form).status_code == 303
    browser.post("/workers/set", data={"worker": "mail-1", "quiet": "yes"})
    [kept] = memory_web.site.broker.records(WorkerSettings)
    assert (kept.threads, kept.processes, kept.quiet, kept.author) == (20, None, True, "otto")

    program = memory_web.client(Role.OPERATE)
    body = {"worker": "mail-1", "async_slots": 50, "quiet": False}
    assert program.post("/api/v1/workers/set", json=body).json()["async_slots"] == 50
    [row] = program.get("/api/v1/workers").json()["workers"]
    assert (row["group"], row["threads"], row["jobs"]) == ("mail-1", 3, [])
    assert program.post("/api/v1/workers/reset", json={"worker": "mail-1"}).json() == {
        "reset": True
    }
    browser.post("/workers/reset", data={"worker": "mail-1"})
    assert memory_web.site.broker.records(WorkerSettings) == []
    denied = memory_web.client(Role.VIEW).post("/api/v1/workers/set", json={"worker": "mail-1"})
    assert denied.status_code == 403
