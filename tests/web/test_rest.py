"""REST: the verbs of the command line, in its JSON, each for the role that it needs."""

from __future__ import annotations

import contextlib
import html
import inspect
import json
import re
from functools import partial

import msgspec
import pytest

from penstock import App
from penstock.enqueue.ids import derived_id
from penstock.errors import Refused
from penstock.job import failed, succeeded
from penstock.operate.bulk_actions import BULK_VERBS
from penstock.operate.refusals import Forbidden
from penstock.operate.roles import OPERATIONS
from penstock.operate.rule_fields import CLEAR_OPERATIONS
from penstock.operate.to_json import JobJson, event_json, job_json
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import (
    a_flow,
    a_job,
    a_schedule,
    a_worker,
    begun,
    claim,
    part,
    settle,
    some_jobs,
)
from penstock.web.access import Person, Role
from penstock.web.checked_store import CheckedStore
from penstock.web.rest.openapi import document
from penstock.web.routes import ROUTES
from tests.web.conftest import Web

V1 = "/api/v1"
REST = [route for route in ROUTES if route.path.startswith("/api/")]
A_JOB = "0190a6c4-5e1f-7000-8000-00000a1b2000"
BODIES = {
    "enqueue": {"task": "mail:send"},
    "copy": {"reason": "once more"},
    "cancel": {"ids": [A_JOB]},
    "retry": {"ids": [A_JOB]},
    "delete": {"ids": [A_JOB]},
    "signal": {"name": "go"},
    "pause": {"queue": "mail"},
    "resume": {"queue": "mail"},
    "block": {"queue": "mail"},
    "unblock": {"queue": "mail"},
    "limit": {"queue": "mail", "running": 1},
    "order": {"queue": "mail", "policy": "wait"},
    "set queue": {"queue": "mail", "options": {"timeout": "60s"}},
    "reset queue": {"queue": "mail"},
    "drop queue": {"queue": "mail"},
    "publish": {"topic": "order.paid"},
    "unsubscribe": {"name": "receipts"},
    "put schedule": {"name": "hourly", "task": "mail:send", "every": 3600},
    "backfill": {"task": "mail:send", "first": "2026-01-01", "last": "2026-01-02"},
    "forget lake": {"lake": "lake-1"},
    "pause schedule": {"name": "hourly"},
    "resume schedule": {"name": "hourly"},
    "run schedule": {"name": "hourly"},
    "remove schedule": {"name": "hourly"},
    "set worker": {"worker": "ada-1", "threads": 2},
    "reset worker": {"worker": "ada-1"},
    "run datasets": {"datasets": ["days"]},
    "begin operation": {"verb": "retry", "filter": "state:failed"},
}


def as_sent(value):
    """A value as it comes over the wire."""
    return json.loads(msgspec.json.encode(value))


def test_jobs_come_in_the_json_of_the_command_line_page_by_page(web: Web, broker, clock):
    jobs = some_jobs(clock, 7, tags={"tenant": "a"})
    broker.enqueue(jobs)
    client = web.client(Role.VIEW)

    seen, after = [], None
    while True:
        asked = {"q": "tag.tenant:a", "limit": 3, **({"after": after} if after else {})}
        page = client.get(f"{V1}/jobs", params=asked).json()
        seen += page["jobs"]
        after = page["after"]
        if after is None:
            break

    assert seen == [as_sent(job_json(broker.get(job.id))) for job in reversed(jobs)]


def test_jobs_whose_ids_hold_no_time_are_paged_by_when_they_were_made(web: Web, broker, clock):
    jobs = []
    for number in range(6):
        clock.advance(seconds=1)
        name = {"id": derived_id("test", str(number))} if number % 2 else {}
        jobs.append(a_job(clock, **name))
        broker.enqueue(jobs[-1:])
    client = web.client(Role.VIEW)

    seen, link = [], "/jobs?limit=1"
    while link:
        page = client.get(link).text
        seen += re.findall(r'href="/jobs/([0-9a-f-]{36})"', page)
        more = re.search(r"/jobs\?[^\"]*after=[^\"]*", page)
        link = f"{html.unescape(more[0])}&limit=1" if more else None

    expected = [job.id for job in reversed(jobs)]
    assert list(dict.fromkeys(seen)) == expected
    first = client.get(f"{V1}/jobs", params={"limit": 1}).json()
    second = client.get(f"{V1}/jobs", params={"limit": 9, "after": first["after"]}).json()
    assert [job["id"] for job in second["jobs"]] == expected[1:]


def test_one_job_its_history_notes_and_why(web: Web, broker, clock):
    job = a_job(clock, body=b'{"args":{"n":123456789012345678901234567890}}')
    broker.enqueue([job])
    [claimed] = claim(broker)
    settle(broker, claimed, begun(failed("no"), clock.now()))
    client = web.client(Role.VIEW)

    raw = client.get(f"{V1}/jobs/{job.id}")

    assert raw.json() == as_sent(job_json(broker.get(job.id)))
    assert "123456789012345678901234567890" in raw.text
    history = client.get(f"{V1}/jobs/{job.id}/history").json()
    assert history["events"] == [as_sent(event_json(row)) for row in broker.history(job=job.id)]
    assert client.get(f"{V1}/jobs/{job.id}/why").json()["cause"] == "ended"
    assert client.get(f"{V1}/jobs/{job.id}/notes").json() == {"notes": []}
    assert client.get(f"{V1}/jobs/{A_JOB}").status_code == 404
    assert client.get(f"{V1}/jobs/{A_JOB}/why").status_code == 404
    assert client.get(f"{V1}/jobs/nonsense").status_code == 404


def test_history_is_read_from_a_position_on(web: Web, broker, clock):
    jobs = some_jobs(clock, 5)
    broker.enqueue(jobs)
    broker.act("cancel", [job.id for job in jobs], "ada", "why not")
    client = web.client(Role.VIEW)

    seen, after = [], "0"
    while True:
        page = client.get(f"{V1}/history", params={"after": after, "limit": 2}).json()
        if not page["events"]:
            break
        seen += page["events"]
        after = page["after"]

    cancelled = [row["job"] for row in seen if row["kind"] == "cancel"]
    assert sorted(cancelled) == sorted(job.id for job in jobs)


def test_counts_queues_workers_rules_flows_and_schedules(web: Web, broker, clock):
    broker.enqueue(some_jobs(clock, 3, queue="slow"))
    broker.renew([a_worker()])
    broker.put(a_schedule("hourly"))
    flow = a_flow(clock, first=part(), last=part("first"))
    flow.send(broker)
    client = web.client(Role.OPERATE)
    client.post(f"{V1}/pause", json={"queue": "slow", "reason": "down", "seconds": 60})

    counts = client.get(f"{V1}/count").json()["counts"]
    assert {"queue": "slow", "paused": 3}.items() <= next(
        each for each in counts if each["queue"] == "slow"
    ).items()
    slow = next(
        each for each in client.get(f"{V1}/queues").json()["queues"] if each["queue"] == "slow"
    )
    assert (slow["paused"], slow["held_by"]) == (3, "pause")
    assert client.get(f"{V1}/workers").json()["workers"][0]["host"] == "ada"
    [rule] = client.get(f"{V1}/rules").json()["rules"]
    assert (rule["author"], rule["reason"]) == ("otto", "down")
    [schedule] = client.get(f"{V1}/schedules", params={"next": 3}).json()["schedules"]
    assert len(schedule["next"]) == 3
    [listed] = client.get(f"{V1}/flows").json()["flows"]
    assert listed["jobs"] == 2
    drawn = client.get(f"{V1}/flows/{flow.jobs[0].id}").json()
    assert [node["state"] for node in drawn["nodes"]] == ["ready", "waiting"]


def test_jobs_are_cancelled_by_ids_and_by_flow_and_the_rest_is_named(web: Web, broker, clock):
    job, flow = a_job(clock), a_flow(clock, first=part(), last=part("first"))
    broker.enqueue([job])
    flow.send(broker)
    client = web.client(Role.OPERATE)

    answer = client.post(f"{V1}/cancel", json={"ids": [job.id, A_JOB], "reason": "stop"})
    whole = client.post(f"{V1}/cancel", json={"flow": flow.jobs[0].id})

    assert answer.json() == {"done": [job.id], "left": [A_JOB], "secrets_gone": []}
    assert len(whole.json()["done"]) == 2
    [event] = [row for row in broker.history(job=job.id) if row.kind == "cancel"]
    assert json.loads(event.data)["author"] == "otto"
    assert json.loads(event.data)["reason"] == "stop"


def test_a_job_is_enqueued_by_the_name_of_its_task(serve, store_app: App):
    @store_app.task(name="shop:add", queue="sums")
    def add(a: int, b: int = 2) -> int:
        return a + b

    client = serve(store_app).client(Role.OPERATE)

    answer = client.post(f"{V1}/jobs", json={"task": "shop:add", "args": {"a": 2**62}, "key": "k"})

    assert answer.status_code == 200
    job = store_app.broker.get(answer.json()["id"])
    assert job is not None
    assert (job.queue, job.key) == ("sums", "k")
    assert json.loads(job.body)["args"] == {"a": 2**62}
    for wrong in (
        {"task": "shop:add", "args": {"a": "x"}},
        {"task": "shop:add", "args": {}},
        {"task": "shop:nothing"},
        {"task": "shop:add", "args": {"a": 1}, "priority": 1000},
        {"task": "shop:add", "args": {"a": 1}, "colour": "red"},
    ):
        assert client.post(f"{V1}/jobs", json=wrong).status_code == 422


def test_a_time_is_whole_nanoseconds_in_and_out(serve, store_app: App):
    """V10: kept to the microsecond."""

    @store_app.task(name="shop:add")
    def add() -> None: ...

    client = serve(store_app).client(Role.OPERATE)
    later = 4_070_908_800_123_456_789

    answer = client.post(f"{V1}/jobs", json={"task": "shop:add", "at_ns": later})

    job = client.get(f"{V1}/jobs/{answer.json()['id']}").json()
    assert job["run_at_ns"] == later // 1000 * 1000
    both = {"task": "shop:add", "at_ns": later, "at": "2099-01-01T00:00:00Z"}
    refused = client.post(f"{V1}/jobs", json=both)
    assert (refused.status_code, "give one of them" in refused.text) == (422, True)


def test_without_an_app_nothing_can_be_enqueued(memory_web: Web):
    answer = memory_web.client(Role.ADMIN).post(f"{V1}/jobs", json={"task": "x"})

    assert answer.status_code == 422
    assert "penstock dashboard TARGET" in answer.json()["error"]


def test_a_schedule_is_paused_resumed_run_and_removed(web: Web, broker):
    broker.put(a_schedule("nightly/ä"))
    client, named = web.client(Role.OPERATE), {"name": "nightly/ä", "reason": "holiday"}

    assert client.post(f"{V1}/schedules/pause", json=named).json()["paused"] is True
    assert client.post(f"{V1}/schedules/resume", json=named).json()["paused"] is False
    job = client.post(f"{V1}/schedules/run", json=named).json()["job"]
    assert broker.get(job) is not None
    assert client.post(f"{V1}/schedules/remove", json=named).json() == {"removed": True}
    assert client.post(f"{V1}/schedules/pause", json=named).status_code == 422


def test_rules_are_set_and_taken_back(web: Web, broker):
    admin = web.client(Role.ADMIN)

    for verb, undo in (("pause", "resume"), ("block", "unblock")):
        about = {"queue": "mail", "tag": {"tenant": "a"}}
        assert admin.post(f"{V1}/{verb}", json=about).json()["rule"]["tag"] == "tenant=a"
        assert admin.post(f"{V1}/{undo}", json=about).json() == {"cleared": True}
        assert admin.post(f"{V1}/{undo}", json=about).json() == {"cleared": False}
    limit = {"queue": "mail", "running": 3, "rate": "10/s"}
    assert admin.post(f"{V1}/limit", json=limit).json()["rule"]["running"] == 3
    assert admin.post(f"{V1}/limit", json={"queue": "mail", "off": True}).json()["cleared"] is True
    assert broker.records(Rule) == []
    assert admin.post(f"{V1}/pause", json={}).status_code == 422


def test_many_jobs_come_in_one_call_with_the_fields_that_are_asked_for(web: Web, broker, clock):
    """G57."""
    jobs = some_jobs(clock, 3, tags={"tenant": "a"})
    broker.enqueue(jobs)
    client, ids = web.client(Role.VIEW), ",".join([*(job.id for job in jobs), A_JOB])

    answer = client.get(f"{V1}/jobs/many", params={"ids": ids, "fields": "state,tags"})
    wrong = client.get(f"{V1}/jobs/many", params={"ids": ids, "fields": "sate"})

    assert answer.json()["jobs"] == {
        job.id: {"state": "ready", "tags": {"tenant": "a"}} for job in jobs
    }
    assert (wrong.status_code, "no field 'sate'" in wrong.json()["error"]) == (422, True)


def test_a_signal_ends_whoever_waits(serve, store_app: App):
    from penstock import wait_for

    handle = store_app.enqueue([wait_for("go")])[0]
    client = serve(store_app).client(Role.OPERATE)

    answer = client.post(f"{V1}/signal", json={"name": "go", "value": {"n": 1}})

    assert answer.json() == {"done": [handle.id]}


@pytest.mark.parametrize("role", [Role.VIEW, Role.OPERATE, Role.ADMIN])
@pytest.mark.parametrize("route", REST, ids=lambda route: route.name)
def test_every_role_may_do_what_the_table_says_and_no_more(memory_web: Web, route, role):
    body = BODIES.get(route.name)
    assert body is not None or route.takes is None

    answer = memory_web.client(role).request(
        route.method, route.path.replace("{id}", A_JOB), json=body
    )

    if role < route.role:
        assert answer.status_code == 403
        assert str(route.role) in answer.json()["error"]
    else:
        assert answer.status_code in {200, 404, 409, 422}


SAYS = {RuleKind.LIMIT: {"running": 1}, RuleKind.ORDER: {"policy": "wait"}}


@pytest.mark.parametrize("role", [Role.VIEW, Role.OPERATE, Role.ADMIN])
@pytest.mark.parametrize("verb", OPERATIONS)
def test_the_role_is_asked_for_at_the_verb_whatever_the_page_forgot(memory_broker, verb, role):
    checked = CheckedStore(memory_broker, Person("mallory", role), may_change=True)
    needed = OPERATIONS[verb].role
    by_name = {
        **{
            kind: partial(checked.set_rule, Rule(kind, "mail", **SAYS.get(kind, {})))
            for kind in RuleKind
        },
        **{
            off: partial(checked.clear_rule, Rule(kind, "mail", **SAYS.get(kind, {})))
            for kind, off in CLEAR_OPERATIONS.items()
        },
        **{act: partial(checked.act, act, [A_JOB]) for act in BULK_VERBS},
    }

    def asked() -> None:
        if verb in by_name:
            by_name[verb]()
            return
        # Arguments that no verb can use: who may call it is refused for another reason, or none.
        parameters = list(inspect.signature(getattr(CheckedStore, verb)).parameters.values())[1:]
        nonsense = [None for each in parameters if each.default is each.empty]
        with contextlib.suppress(Refused, AttributeError, TypeError):
            getattr(checked, verb)(*nonsense)

    if role < needed:
        with pytest.raises(Forbidden, match=f"needs the role {needed}"):
            asked()
    else:
        asked()


def test_every_verb_that_changes_something_needs_more_than_a_viewer():
    assert {verb for verb, needs in OPERATIONS.items() if needs.changes} == {
        verb for verb, needs in OPERATIONS.items() if needs.role > Role.VIEW
    }
    assert {verb for verb, needs in OPERATIONS.items() if needs.role is Role.ADMIN} == {
        "adopt",
        "block",
        "unblock",
    }


@pytest.mark.parametrize(
    ("path", "content", "status"),
    [
        ("/cancel", b"{", 400),
        ("/cancel", b"\xff\xfe", 400),
        ("/signal", b'{"name": "go", "value": ' + b"[" * 100_000, 400),
        ("/cancel", b"[]", 422),
        ("/cancel", b'{"ids": 7}', 422),
        ("/cancel", b'{"ids": ["x"]}', 422),
        ("/cancel", b'{"idz": []}', 422),
        ("/cancel", b"{}", 422),
        ("/pause", b'{"queue": "mail", "seconds": 1e999}', 422),
        ("/pause", b'{"queue": "mail", "seconds": -1}', 422),
        ("/pause", b'{"version": 99999999999999999999}', 422),
        ("/limit", b'{"queue": "mail", "rate": "often"}', 422),
        ("/limit", b'{"queue": "mail", "running": 0}', 422),
        ("/signal", b'{"name": ""}', 422),
        ("/operations", b'{"verb": "claim", "filter": "state:failed"}', 422),
        ("/operations", b'{"verb": "retry", "filter": ""}', 422),
        ("/operations", b'{"verb": "retry", "filter": "x"}', 422),
        ("/signal", b'{"name": "go", "value": "%s"}' % (b"x" * 300_000), 422),
        ("/limit", b'{"queue": "mail", "running": 9223372036854775808}', 422),
        ("/pause", b'{"queue": "%s"}' % (b"x" * 201), 422),
        ("/operations", b'{"verb": "retry", "filter": "%s"}' % (b"task:a " * 100_000), 422),
    ],
    ids=range(21),
)
def test_what_is_wrong_is_said_in_a_sentence(memory_web: Web, path, content, status):
    answer = memory_web.client(Role.ADMIN).post(f"{V1}{path}", content=content)

    assert answer.status_code == status
    assert set(answer.json()) == {"error"}
    assert answer.json()["error"]


@pytest.mark.parametrize(
    "path",
    [
        "/jobs?limit=x",
        "/jobs?limit=99999999999999999999",
        "/jobs?after=x",
        "/jobs?q=state:gone",
        "/jobs?q='",
        "/jobs?q=since:99999999999999999999d",
        "/jobs?q=until:0001-01-01",
        "/history?after=-x",
        "/flows?find=x",
        "/schedules?name=none",
        "/operations/preview?verb=x&q=y",
    ],
)
def test_what_is_wrong_with_an_address_is_said_too(memory_web: Web, path):
    answer = memory_web.client(Role.ADMIN).get(f"{V1}{path}")

    assert answer.status_code in {200, 400, 404, 422}
    assert answer.status_code == 200 or answer.json()["error"]


def test_openapi_describes_every_route_with_its_types(memory_web: Web):
    described = memory_web.client(Role.VIEW).get(f"{V1}/openapi.json").json()

    assert described == as_sent(document(ROUTES))
    assert described["openapi"] == "3.1.0"
    listed = {
        (method.upper(), path) for path, each in described["paths"].items() for method in each
    }
    assert listed == {(route.method, route.path) for route in REST}
    text = json.dumps(described)
    for name in set(re.findall(r"#/components/schemas/(\w+)", text)):
        assert name in described["components"]["schemas"]
    for route in REST:
        operation = described["paths"][route.path][route.method.lower()]
        assert operation["summary"]
        assert operation["responses"]["200"]["content"]["application/json"]["schema"] != {}


def test_what_is_given_is_what_openapi_says(web: Web, broker, clock):
    broker.enqueue(some_jobs(clock, 2))
    [claimed] = claim(broker)
    settle(broker, claimed, begun(succeeded(b"1"), clock.now()))
    broker.put(a_schedule())
    a_flow(clock, first=part(), last=part("first")).send(broker)
    client = web.client(Role.VIEW)

    for route in REST:
        # Those of datasets: test_dataset_pages.py, which has an app with some.
        elsewhere = "{" in route.path or "preview" in route.path or "/datasets" in route.path
        if route.method == "GET" and not elsewhere:
            asked = {"of": "default"} if route.name == "why named" else {}
            answer = client.get(route.path, params=asked).content
            msgspec.json.decode(answer, type=route.gives, strict=True)
    job = client.get(f"{V1}/jobs/{claimed.id}").content
    msgspec.json.decode(job, type=JobJson, strict=True)


def test_the_slots_of_many_schedules_are_bounded_together(memory_web: Web, memory_broker):
    for number in range(50):
        memory_broker.put(a_schedule(f"nightly {number}"))
    client = memory_web.client(Role.VIEW)

    many = client.get(f"{V1}/schedules", params={"next": 100}).json()["schedules"]
    one = client.get(f"{V1}/schedules", params={"next": 100, "name": "nightly 7"}).json()

    assert {len(each["next"]) for each in many} == {20}
    assert [len(each["next"]) for each in one["schedules"]] == [100]
