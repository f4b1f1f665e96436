"""Audit: who did what, when and why; each deed once, page by page and as a file."""

from __future__ import annotations

import csv
import html
import io
import json
import re

import pytest

from penstock.broker.environment import Environment
from penstock.broker.lake_mark import Mark
from penstock.broker.queue_options import Options, QueueOptions
from penstock.broker.views import RECORDED
from penstock.broker.worker_settings import WorkerSettings
from penstock.enqueue.subscription import Subscription
from penstock.flows.flow import WAIT_TASK
from penstock.flows.signals import TAG
from penstock.job import Job, succeeded
from penstock.operate.audit import KINDS, AuditEntry, AuditQuery, read_audit
from penstock.operate.audit_text import audit_sentence
from penstock.operate.time_text import time_text
from penstock.rules.rule import Rule, RuleKind, rule_id
from penstock.schedules.schedule import Schedule
from penstock.testing.conformance.factories import (
    a_flow,
    a_job,
    a_schedule,
    begun,
    claim,
    part,
    settle,
    some_jobs,
)
from penstock.web.access import Role
from tests.web.conftest import Web
from tests.web.test_operations import ended
from tests.web.test_pages import text_of

HOSTILE = """=cmd|'"><script>alert(1)</script>\u202e/{{7*7}}"""


def test_what_people_did_is_shown_and_what_workers_wrote_is_not(web: Web, broker, clock):
    flow = a_flow(clock, one=part(), two=part("one"))
    broker.enqueue(flow.jobs, flow=flow.flow)
    jobs = some_jobs(clock, 3)
    broker.enqueue(jobs)
    for job in claim(broker, limit=1):
        settle(broker, job, begun(succeeded(), clock.now()))
    broker.act("cancel", [jobs[2].id], "ada", "wrong customer")
    broker.act("retry", [jobs[2].id], "bob", "right after all")
    broker.act("delete", [jobs[2].id], "carl")
    broker.put(Rule(RuleKind.PAUSE, "slow", None, "dora", "provider is down"))
    broker.put(a_schedule("nightly"), "emil")
    broker.put(QueueOptions(queue="slow", override=Options(timeout=5.0)), "emil")
    broker.put(WorkerSettings(worker="ada-1", threads=2), "emil")
    broker.put(Environment(environment="live", adopts=True), "emil")
    job = Job(task="mail:send", id="", body=b'{"args":{}}')
    broker.put(Subscription(name="mail", pattern="a.*", job=job, parameter="a"), "emil")
    broker.act("cancel", (), "fred", "all of it", flow=flow.flow.id)
    broker.put(Mark(lake="lake-1", place="/lakes/one"))
    for kind in RECORDED:
        broker.audit(kind, "gina", f"{kind} of many", {"jobs": 1000})
    waiting = a_flow(clock, wait=part(task=WAIT_TASK, tags={TAG: "go"}))
    waiting.send(broker)
    broker.signal("go", b"1", "hans", "approved")

    page = web.client(Role.VIEW).get("/audit")

    said = text_of(page.text)
    assert page.status_code == 200
    for word in ("ada", "wrong customer", "bob", "carl", "dora", "provider is down", "emil"):
        assert word in said
    assert "fred" in said
    assert "/lakes/one" in said
    assert "penstock history --audit" in said
    kinds = re.findall(r'href="/audit\?kind=(\w+)"', page.text)
    assert sorted(set(kinds)) == sorted(KINDS)
    assert kinds.count("flow") == 1  # that it was queued is nobody's deed


def test_a_deed_is_said_in_words_and_leads_to_what_it_was_done_to(web: Web, broker, clock):
    flow = a_flow(clock, one=part(), two=part("one"))
    broker.enqueue(flow.jobs, flow=flow.flow)
    [job] = some_jobs(clock, 1)
    broker.enqueue([job])
    broker.act("cancel", [job.id], "ada", "wrong customer")
    broker.act("retry", [job.id], "ada")
    broker.act("delete", [job.id], "ada")
    broker.act("cancel", (), "ada", flow=flow.flow.id)
    until = clock.now() + 3600
    broker.put(Rule(RuleKind.PAUSE, "slow", None, "ada", "down", until=until))
    broker.clear(Rule, rule_id(RuleKind.PAUSE, "slow", None), "ada")
    broker.put(Rule(RuleKind.LIMIT, "pay", None, "ada", running=4, rate=(100, 60.0)))
    broker.clear(Rule, rule_id(RuleKind.LIMIT, "pay", None), "ada")
    broker.put(Rule(RuleKind.BLOCK, None, "mail:send", "ada", tag=("tenant", "a")))
    broker.put(Rule(RuleKind.ORDER, "pay", None, "ada", policy="wait"))
    broker.put(a_schedule("nightly"), "ada")
    broker.clear(Schedule, "nightly", "ada")
    client = web.client(Role.VIEW)

    page = client.get("/audit")

    said = text_of(page.text)
    for sentence in (
        f"cancelled job {job.id} (mail:send in default) wrong customer",
        f"retried job {job.id}",
        f"deleted job {job.id}",
        f"cancelled flow {flow.flow.id} (2 jobs)",
        f"paused queue slow until {time_text(until)} down",
        "resumed queue slow",
        "limited queue pay to 4 running and 100 starts in 60 s",
        "removed the limit of queue pay",
        "blocked task mail:send and tag tenant=a",
        "ordered by key queue pay (wait)",
        "put schedule nightly",
        "removed schedule nightly",
    ):
        assert sentence in said
    for to in (f"/jobs/{job.id}", f"/flows/{flow.flow.id}", "/queues/one?name=slow"):
        assert f'<a class="open" href="{to}">' in page.text
    assert '<a class="open" href="/schedules/one?name=nightly">' in page.text
    rows = csv.DictReader(io.StringIO(client.get("/audit.csv").text))
    assert "resumed queue slow" in [row["told"] for row in rows]


def test_what_was_done_to_many_is_said_with_how_many(web: Web, broker, clock):
    broker.enqueue(some_jobs(clock, 250))
    browser = web.browser(Role.OPERATE)
    answer = browser.post(
        "/operations", data={"verb": "cancel", "q": "task:mail:send", "typed": "250", "reason": "x"}
    )
    ended(browser, answer.headers["location"].rpartition("/")[2])
    broker.audit("backfill", "ada", "", {"task": "t", "first": "1", "last": "9", "jobs": 9})
    broker.audit("enqueue", "ada", "", {"task": "t", "queue": "q", "jobs": 3, "batch": "b"})
    broker.audit("operation", "ada", "", {"operation": "gone", "verb": "stop"})
    half = {"operation": "gone", "verb": "retry", "filter": "state:failed", "jobs": 1}
    broker.audit("operation", "ada", "", {**half, "state": "cancelled"})

    page = browser.get("/audit")

    said = text_of(page.text)
    assert re.search(r"otto (\w+ )?cancelled 250 jobs that matched task:mail:send x", said)
    assert f'<a class="open" href="{answer.headers["location"]}">' in page.text
    assert "ran a backfill of t from 1 to 9 (9 jobs)" in said
    assert '<a class="open" href="/backfills/one?task=t">' in page.text
    assert "enqueued 3 jobs of t in q" in said
    assert "stopped an operation" in said
    assert "retried 1 job that matched state:failed, until it was stopped" in said
    assert '<a class="open" href="/jobs?q=state%3Afailed">' in page.text


def test_a_deed_that_there_is_no_word_for_is_shown_with_its_data():
    damaged = {"kind": "rule", "author": "ada", "reason": ""}
    told = [
        audit_sentence(
            AuditEntry(
                position="1", at=0.0, **damaged, queue="slow", says={"kind": "spell", "n": 3}
            )
        ),
        audit_sentence(
            AuditEntry(position="2", at=0.0, **damaged, says={"kind": "limit", "rate": "often"})
        ),
        audit_sentence(
            AuditEntry(position="3", at=0.0, **{**damaged, "kind": "swap"}, says={"with": "x"})
        ),
    ]

    assert list(map(str, told)) == [
        "rule queue slow kind spell, n 3",
        "rule kind limit, rate often",
        "swap with x",
    ]


def test_deeds_are_narrowed_by_author_kind_and_time(web: Web, broker, clock):
    jobs = some_jobs(clock, 4)
    broker.enqueue(jobs)
    broker.act("cancel", [jobs[0].id], "ada", "one")
    clock.advance(seconds=7200)
    broker.act("cancel", [jobs[1].id], "bob", "two")
    broker.act("retry", [jobs[1].id], "bob", "three")
    client = web.client(Role.VIEW)

    def reasons(**query):
        return [row["reason"] for row in client.get("/api/v1/audit", params=query).json()["deeds"]]

    assert reasons() == ["three", "two", "one"]
    assert reasons(author="bob") == ["three", "two"]
    assert reasons(kind="cancel") == ["two", "one"]
    assert reasons(since="1h") == ["three", "two"]
    assert reasons(until="1h") == ["one"]
    assert reasons(author="eve") == []


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ({"kind": "attempt"}, "does not exist; the kinds are cancel"),
        ({"since": "yesterday"}, "is not a time"),
    ],
)
def test_a_filter_with_a_mistake_says_what_would_be_right(memory_web: Web, query, sentence):
    client = memory_web.client(Role.VIEW)

    page = client.get("/audit", params=query)

    assert page.status_code == 422
    assert sentence in text_of(page.text)
    assert client.get("/audit.csv", params=query).status_code == 422


def test_deeds_come_page_by_page_each_once(web: Web, broker, clock):
    jobs = some_jobs(clock, 130)
    broker.enqueue(jobs)
    for number, job in enumerate(jobs):
        action = "delete" if number % 2 else "cancel"
        broker.act(action, [job.id], "ada", f"reason-{number}.")
    client = web.client(Role.VIEW)

    seen: list[str] = []
    address: str | None = "/audit"
    while address:
        page = client.get(address)
        seen += re.findall(r"reason-(\d+)\.", page.text)
        more = re.search(r'<tr class="more"><td colspan="4"><a href="([^"]+)"', page.text)
        address = None if more is None else html.unescape(more[1])

    assert seen == [str(number) for number in reversed(range(130))]


def test_a_look_is_bounded_and_says_how_far_it_went(broker, clock):
    jobs = some_jobs(clock, 40)
    broker.enqueue(jobs)
    for job in jobs:
        broker.act("cancel", [job.id], "ada" if job is jobs[0] else "bob")

    first = read_audit(broker, AuditQuery(author="ada"), None, 10, 15)
    second = read_audit(broker, AuditQuery(author="ada"), first.before, 10, 100)

    assert (first.entries, first.looked) == ([], 15)
    assert [deed.job for deed in second.entries] == [jobs[0].id]
    assert second.before is None


def test_no_cell_of_the_file_is_a_formula(web: Web, broker, clock):
    job = a_job(clock)
    broker.enqueue([job])
    for action, reason in (("cancel", "=1+1"), ("retry", "-2"), ("delete", HOSTILE)):
        broker.act(action, [job.id], "@ada", reason)

    answer = web.client(Role.VIEW).get("/audit.csv")

    assert answer.headers["content-type"].startswith("text/csv")
    assert "attachment" in answer.headers["content-disposition"]
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [row["reason"] for row in rows] == [f"'{HOSTILE}", "'-2", "'=1+1"]
    assert {row["author"] for row in rows} == {"'@ada"}


def test_a_file_says_from_where_to_go_on(web: Web, broker, clock):
    jobs = some_jobs(clock, 3)
    broker.enqueue(jobs)
    for job in jobs:
        broker.act("cancel", [job.id], "ada")
    client = web.client(Role.VIEW)

    first = client.get("/audit.jsonl", params={"limit": 2})
    rest = client.get("/audit.jsonl", params={"before": first.headers["penstock-before"]})

    seen = [json.loads(line)["job"] for line in (first.text + rest.text).splitlines()]
    assert seen == [job.id for job in reversed(jobs)]
    assert "penstock-before" not in rest.headers


def test_reasons_and_authors_are_shown_and_never_run(web: Web, broker, clock):
    job = a_job(clock)
    broker.enqueue([job])
    broker.act("cancel", [job.id], HOSTILE, HOSTILE)
    client = web.client(Role.VIEW)

    for path in ("/audit", f"/audit?author={html.escape(HOSTILE)}", "/audit?since=<script>"):
        page = client.get(path)
        assert page.status_code in {200, 422}
        assert "<script>" not in page.text.replace('<script src="/', "")


def test_an_audit_without_deeds_says_what_would_be_here(memory_web: Web):
    said = text_of(memory_web.client(Role.VIEW).get("/audit").text)

    assert "No actions yet" in said
