"""Everything that a filter means: counted, done page by page, shown, audited, and stopped."""

from __future__ import annotations

import json
import re
import threading

import msgspec
import pytest

from penstock.broker.position import BEGINNING
from penstock.brokers import open_broker
from penstock.errors import Refused
from penstock.job import failed
from penstock.operate.refusals import Conflict, Forbidden
from penstock.testing.conformance.factories import a_job, a_worker, begun, claim_for, some_jobs
from penstock.web.access import Person, Role
from penstock.web.bulk_operations import MOST_AT_ONCE, Operations, Preview, preview
from penstock.web.checked_store import CheckedStore
from tests.web.conftest import Web

V1 = "/api/v1"


def fail_all(broker, clock, count: int, **fields) -> list[str]:
    """So many jobs that failed for good."""
    broker.enqueue(some_jobs(clock, count, **fields))
    ids: list[str] = []
    while jobs := claim_for(broker, a_worker(), limit=500):
        broker.settle([(job, begun(failed("no"), clock.now())) for job in jobs])
        ids += [job.id for job in jobs]
    return ids


def ended(client, id: str) -> dict:
    """The operation once it has ended; asking again takes its time."""
    while True:
        answer = client.get(f"{V1}/operations/{id}").json()
        if answer["state"] != "running":
            return answer


def retried(broker, count: int) -> dict[str, dict]:
    """Who retried which job, and why, as the history says."""
    told, after = {}, BEGINNING
    while rows := broker.history(after, 1000):
        told |= {row.job: json.loads(row.data) for row in rows if row.kind == "retry"}
        after = rows[-1].position
    return told


def wait_for(operations: Operations) -> None:
    """Until all that it began has ended."""
    for each in operations._all.values():
        each.thread.join()


def check_a_batch_retry(web: Web, broker, clock, count: int) -> None:
    ids = fail_all(broker, clock, count)
    others = fail_all(broker, clock, 3, queue="slow")
    client = web.client(Role.OPERATE)
    asked = {"verb": "retry", "q": "state:failed -queue:slow"}

    counted = client.get(f"{V1}/operations/preview", params=asked).json()
    begun_ = client.post(
        f"{V1}/operations",
        json={"verb": "retry", "filter": "state:failed -queue:slow", "reason": "fixed"},
    ).json()
    done = ended(client, begun_["id"])

    assert (counted["count"], counted["more"]) == (count, False)
    assert (done["state"], done["matched"], done["done"]) == ("done", count, count)
    assert sum(each.ready for each in broker.count()) == count
    told = retried(broker, count)
    assert told.keys() == set(ids)
    assert {(each["author"], each["reason"]) for each in told.values()} == {("otto", "fixed")}
    assert broker.get(others[0]).state == "failed"
    page = client.get(f"/operations/{begun_['id']}").text
    assert "done" in page
    assert f"{count:,} of {count:,} jobs changed" in re.sub(r"\s+", " ", page)


def test_all_failed_jobs_of_a_filter_are_retried_and_audited_one_by_one(web: Web, broker, clock):
    check_a_batch_retry(web, broker, clock, 1100)


@pytest.mark.soak
def test_ten_thousand_failed_jobs_are_retried_and_audited_one_by_one(web: Web, broker, clock):
    check_a_batch_retry(web, broker, clock, 10_000)


def test_by_the_pages_one_sees_the_number_types_it_and_watches(
    memory_web: Web, memory_broker, clock
):
    ids = fail_all(memory_broker, clock, 150)
    browser = memory_web.browser(Role.OPERATE)
    listed = browser.get("/jobs", params={"q": "state:failed"}).text
    assert "/operations/new?verb=delete&amp;q=state%3Afailed" in listed

    form = browser.get("/operations/new", params={"verb": "delete", "q": "state:failed"}).text
    assert "150 jobs match" in form
    data = {"verb": "delete", "q": "state:failed", "reason": "old"}
    assert browser.post("/operations", data=data).status_code == 409
    answer = browser.post("/operations", data={**data, "typed": "150"})

    assert answer.status_code == 303
    ended(browser, answer.headers["location"].rpartition("/")[2])
    assert all(memory_broker.get(id) is None for id in ids)
    assert "old" in browser.get("/operations").text


def test_a_viewer_begins_no_operation(memory_web: Web, memory_broker, clock):
    fail_all(memory_broker, clock, 1)
    viewer = memory_web.client(Role.VIEW)

    answer = viewer.post(f"{V1}/operations", json={"verb": "retry", "filter": "state:failed"})

    assert answer.status_code == 403
    assert viewer.get(f"{V1}/operations").json() == {"operations": []}


class Slow:
    """A store in which a page that is to be changed waits until the test says so."""

    def __init__(self, broker) -> None:
        self._broker = broker
        self.reached = threading.Event()
        self.go_on = threading.Event()

    def __getattr__(self, name):
        return getattr(self._broker, name)

    def act(self, action, ids=(), *told, **options):
        if ids and action == "retry":
            self.reached.set()
            self.go_on.wait()
        return self._broker.act(action, ids, *told, **options)


def test_one_that_is_stopped_ends_after_the_page_it_is_at(memory_broker, clock):
    fail_all(memory_broker, clock, 1200)
    store, operations = Slow(memory_broker), Operations()
    checked = CheckedStore(store, Person("ada", Role.OPERATE), may_change=True)  # pyright: ignore[reportArgumentType]
    begun_ = operations.begin(checked, preview(checked, "retry", "state:failed"), "")
    store.reached.wait()

    with pytest.raises(Forbidden):
        operations.cancel(
            CheckedStore(memory_broker, Person("vera", Role.VIEW), may_change=True), begun_.id
        )
    operations.cancel(checked, begun_.id)
    store.go_on.set()
    operations.close()

    assert (begun_.state, begun_.done) == ("cancelled", 500)
    with pytest.raises(Conflict):
        operations.cancel(checked, begun_.id)
    assert sum(each.failed for each in memory_broker.count()) == 700


def test_a_person_has_one_under_way_and_all_together_have_few(memory_broker, clock):
    fail_all(memory_broker, clock, 10)
    store, operations = Slow(memory_broker), Operations()

    def begin(name: str) -> None:
        checked = CheckedStore(store, Person(name, Role.OPERATE), may_change=True)  # pyright: ignore[reportArgumentType]
        operations.begin(checked, preview(checked, "retry", "state:failed"), "")

    begin("ada")
    with pytest.raises(Refused, match="ada already runs an operation"):
        begin("ada")
    begin("bob")
    with pytest.raises(Refused, match=f"{MOST_AT_ONCE} operations are running"):
        begin("carl")
    store.go_on.set()
    operations.close()


def test_what_a_kill_leaves_undone_is_done_by_the_same_filter_again(tmp_path, clock):
    broker = open_broker(f"sqlite:///{tmp_path / 'jobs.db'}", clock)
    ids = fail_all(broker, clock, 30)
    checked = CheckedStore(broker, Person("ada", Role.OPERATE), may_change=True)
    checked.act("retry", ids[:10], "first half")
    broker.close()

    again = open_broker(f"sqlite:///{tmp_path / 'jobs.db'}", clock)
    checked = CheckedStore(again, Person("bob", Role.OPERATE), may_change=True)
    operations = Operations()
    begun_ = operations.begin(checked, preview(checked, "retry", "state:failed"), "second half")
    wait_for(operations)

    assert (begun_.state, begun_.done) == ("done", 20)
    authors = [each["author"] for each in retried(again, 30).values()]
    assert (authors.count("ada"), authors.count("bob")) == (10, 20)
    again.close()


def test_a_preview_counts_up_to_a_bound(memory_broker, clock, monkeypatch):
    monkeypatch.setattr("penstock.web.bulk_operations.MOST_COUNTED", 1500)
    fail_all(memory_broker, clock, 2500)
    checked = CheckedStore(memory_broker, Person("ada", Role.VIEW), may_change=False)

    counted = preview(checked, "retry", "state:failed")

    assert counted.more
    assert counted.count >= 1500


def test_secrets_are_no_filter_for_an_operation(memory_broker, clock):
    body = msgspec.json.encode({"args": {"card": "4111"}, "secret": ["card"]})
    memory_broker.enqueue([a_job(clock, body=body)])
    checked = CheckedStore(memory_broker, Person("ada", Role.ADMIN), may_change=True)

    assert preview(checked, "cancel", "arg.card:4111").count == 0


def test_a_preview_of_what_is_not_indexed_is_given_up_in_time(sqlite_broker, clock, monkeypatch):
    monkeypatch.setattr("penstock.web.bulk_operations.MOST_EXAMINED", 1000)
    monkeypatch.setattr("penstock.brokers.tables.reading.MOST_EXAMINED", 500)
    sqlite_broker.enqueue(some_jobs(clock, 2000))
    checked = CheckedStore(sqlite_broker, Person("vera", Role.VIEW), may_change=False)

    assert preview(checked, "cancel", "arg.n:none") == Preview("cancel", "arg.n:none", 0, more=True)


def test_no_more_jobs_are_touched_than_were_counted(broker, clock):
    fail_all(broker, clock, 3)
    checked = CheckedStore(broker, Person("ada", Role.OPERATE), may_change=True)
    counted = preview(checked, "delete", "state:failed")
    fail_all(broker, clock, 700)
    operations = Operations()

    begun_ = operations.begin(checked, counted, "")
    wait_for(operations)

    assert (begun_.state, begun_.matched, begun_.done) == ("done", 3, 3)
    assert sum(each.failed for each in broker.count()) == 700


def test_of_what_another_process_began_one_is_told_where_to_look(web: Web, serve, broker, clock):
    fail_all(broker, clock, 3)
    other = serve(broker).browser(Role.OPERATE)
    client = web.client(Role.OPERATE)
    given = {"verb": "retry", "filter": "state:failed", "reason": "fixed"}
    begun_ = client.post(f"{V1}/operations", json=given).json()
    ended(client, begun_["id"])

    answers = [
        other.get(f"/operations/{begun_['id']}"),
        other.post(f"/operations/{begun_['id']}/cancel"),
        other.get(f"{V1}/operations/{begun_['id']}"),
    ]

    for answer in answers:
        assert answer.status_code == 404
        assert "another process may run it" in answer.text
        assert "The audit shows" in answer.text
    assert "No operation since this dashboard was started" in other.get("/operations").text
    [deed] = other.get(f"{V1}/audit", params={"kind": "operation"}).json()["deeds"]
    assert (deed["reason"], deed["says"]["operation"]) == ("fixed", begun_["id"])


def test_jobs_that_wait_for_their_time_are_cancelled_and_no_others(web: Web, broker, clock):
    later = [a_job(clock, run_at=clock.now() + 60) for _ in range(3)]
    broker.enqueue([*some_jobs(clock, 4), *later])
    client = web.client(Role.OPERATE)
    asked = {"verb": "cancel", "q": "due:later"}

    counted = client.get(f"{V1}/operations/preview", params=asked).json()
    begun_ = client.post(f"{V1}/operations", json={"verb": "cancel", "filter": "due:later"}).json()

    assert counted["count"] == 3
    assert ended(client, begun_["id"])["done"] == 3
    assert {broker.get(job.id).state for job in later} == {"cancelled"}
    assert [(count.ready, count.scheduled) for count in broker.count()] == [(4, 0)]


def test_what_is_later_is_later_than_the_beginning_of_an_operation(broker, clock, monkeypatch):
    monkeypatch.setattr("penstock.web.bulk_operations.PAGE", 1)
    jobs = [a_job(clock, run_at=clock.now() + 60) for _ in range(3)]
    broker.enqueue(jobs)

    class Slow(CheckedStore):
        def act(self, *args, **options):
            clock.advance(seconds=60)  # by now they are due, and nobody has claimed them
            return super().act(*args, **options)

    checked = Slow(broker, Person("ada", Role.OPERATE), may_change=True)
    operations = Operations()

    begun_ = operations.begin(checked, preview(checked, "cancel", "due:later"), "")
    wait_for(operations)

    assert (begun_.state, begun_.done) == ("done", 3)
