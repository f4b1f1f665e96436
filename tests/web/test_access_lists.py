"""Access lists: what is not on a person's list is not shown, counted, streamed or changed (V71)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import msgspec
import pytest

from penstock import App
from penstock.broker.filter import Filter
from penstock.broker.queue_options import Options, QueueOptions
from penstock.broker.values import Wanted
from penstock.broker.views import WorkerRow
from penstock.brokers.memory import MemoryBroker
from penstock.enqueue.subscription import Subscription
from penstock.errors import Refused
from penstock.job import Job, Unique, failed
from penstock.operate.access_list import AccessList, parse_access_list
from penstock.operate.bulk_actions import BULK_VERBS
from penstock.operate.refusals import Forbidden
from penstock.operate.roles import Person, Role
from penstock.rules.rule import Rule, RuleKind
from penstock.schedules.schedule import Schedule
from penstock.testing.conformance.factories import a_flow, a_job, a_schedule, begun, part, settle
from penstock.web import dashboard
from penstock.web.access import Token, Tokens, new_token, parse_tokens
from penstock.web.oidc_settings import parse_oidc
from penstock.web.route import FOR_LISTED, Route
from penstock.web.routes import ROUTES
from tests.web.conftest import NO_TLS, serving

V1 = "/api/v1"
GETS = [route for route in ROUTES if route.method == "GET" and route.name in FOR_LISTED]
POSTS = [route for route in ROUTES if route.method == "POST" and route.name in FOR_LISTED]
# Of these one reads the same whoever one is.
OF_NO_STORE = {"openapi", "style", "file", "log in at the provider", "back from the provider"}


def filled(store: MemoryBroker, clock: Any, queue: str, app: str, mark: str) -> Job[Any]:
    """All that a queue may have, with a mark on it; the job that failed."""
    body = msgspec.json.encode({"args": {"who": mark}})
    jobs = [
        a_job(clock, f"{mark}:pay", queue=queue, app=app, body=body, key=f"{mark}-{number}")
        for number in range(3)
    ]
    store.enqueue(jobs)
    row = WorkerRow(
        id=f"{mark}-w", app=app, tasks={f"{mark}:pay": 1}, queues=(queue,), host=mark, group=mark
    )
    first, _ = store.claim([Wanted(row, limit=2)]).jobs[0]
    settle(store, first, begun(failed(mark), clock.now()))
    store.put(Rule(RuleKind.PAUSE, queue, key=mark), mark, mark)
    store.put(QueueOptions(queue=queue, app=app, override=Options(timeout=5.0)), mark, mark)
    schedule = a_schedule(f"{mark} nightly", f"{mark}:sweep")
    store.put(
        msgspec.structs.replace(
            schedule, job=Job(task=f"{mark}:sweep", id="", queue=queue, app=app)
        ),
        mark,
    )
    store.act("cancel", [jobs[2].id], mark, mark)
    return first


class Place(NamedTuple):
    """A store with a queue that the list names, and one that it does not."""

    store: MemoryBroker
    seen: Job[Any]
    hidden: Job[Any]
    limited: httpx.Client
    everybody: httpx.Client


def place(clock: Any, only: AccessList, other: tuple[str, str]) -> Iterator[Place]:
    store = MemoryBroker(clock)
    seen = filled(store, clock, "mail", "shop", "SEEN")
    hidden = filled(store, clock, *other, "HIDDEN")
    store.put(
        Subscription(name="HIDDEN", pattern="a.*", job=Job(task="HIDDEN:a", id=""), parameter="a")
    )
    a_flow(clock, one=part(task="HIDDEN:flow"), two=part("one")).send(store)
    clock.advance(60)
    store.gauge()
    app = App(broker=store)
    for queue in ("mail", other[0]):
        app.task(lambda: None, name=f"{queue}_task", queue=queue)
    mine, text = new_token("mia", Role.ADMIN)
    whole, whole_text = new_token("ada", Role.ADMIN)
    tokens = [Token(mine.name, mine.role, mine.hashed, only), whole]
    site = dashboard(app, access=Tokens(tokens))
    with serving(site) as address:
        clients = [
            httpx.Client(
                base_url=address,
                headers={"authorization": f"Bearer {each}"},
                timeout=60,
                verify=NO_TLS,
            )
            for each in (text, whole_text)
        ]
        yield Place(store, seen, hidden, *clients)
        for client in clients:
            client.close()
        site.end_streams()
    site.close()


@pytest.fixture
def queues(clock):
    yield from place(clock, AccessList(frozenset({"mail"})), ("bills", "shop"))


@pytest.fixture
def apps(clock):
    yield from place(clock, AccessList(None, frozenset({"shop"})), ("mail", "blog"))


def path_of(route: Route, job: Job[Any]) -> str:
    return route.path.replace("{id}", job.id).replace("{file:path}", "penstock.js")


@pytest.mark.parametrize("fixture", ["queues", "apps"])
def test_no_page_and_no_answer_shows_what_is_not_on_the_list(request, fixture):
    at: Place = request.getfixturevalue(fixture)
    shows_all: set[str] = set()
    query = {"over": "hour", "of": "queue:bills", "word": "task:", "verb": "retry", "name": "mail"}

    for route in GETS:
        if route.name == "live":
            continue
        answers = [
            at.limited.get(path_of(route, job), params=query) for job in (at.hidden, at.seen)
        ]

        for answer in answers:
            assert "HIDDEN" not in answer.text, route.path
            assert answer.status_code < 500, (route.path, answer.text)
        if "HIDDEN" in at.everybody.get(path_of(route, at.hidden), params=query).text:
            shows_all.add(route.name)

    # The same pages show it to others: the test could fail.
    assert shows_all >= {"jobs", "job", "find", "count", "workers", "rules", "schedules", "history"}
    assert shows_all >= {"audit", "audit over REST", "trends", "suggestions", "overview"}


@pytest.mark.parametrize("fixture", ["queues", "apps"])
def test_what_is_on_the_list_is_shown_and_counted_alone(request, fixture):
    at: Place = request.getfixturevalue(fixture)

    def read(path: str) -> Any:
        answer = at.limited.get(f"{V1}{path}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    assert {job["task"] for job in read("/jobs")["jobs"]} == {"SEEN:pay"}
    [count] = read("/count")["counts"]
    assert (count["ready"] + count["paused"], count["running"], count["failed"]) == (0, 1, 1)
    assert [each["id"] for each in read("/workers")["workers"]] == ["SEEN-w"]
    assert {row["task"] for row in read("/history")["events"]} <= {"SEEN:pay", None}
    assert [each["name"] for each in read("/schedules")["schedules"]] == ["SEEN nightly"]
    assert {each["author"] for each in read("/audit")["deeds"]} == {"SEEN"}
    assert "SEEN" in at.limited.get("/").text
    if fixture == "queues":
        assert [rule["author"] for rule in read("/rules")["rules"]] == ["SEEN"]


@pytest.mark.parametrize("fixture", ["queues", "apps"])
def test_the_stream_counts_what_is_on_the_list(request, fixture):
    at: Place = request.getfixturevalue(fixture)

    def first(client: httpx.Client) -> Any:
        with client.stream("GET", "/live") as answer:
            for line in answer.iter_lines():
                if line.startswith("data: ") and (ticks := json.loads(line[6:])):
                    return ticks[0]
        return None

    seen, whole = first(at.limited), first(at.everybody)

    assert (seen["places"]["failed"], whole["places"]["failed"]) == (1, 2)
    assert (seen["places"]["running"], whole["places"]["running"]) == (1, 2)
    assert not any("HIDDEN" in rule for rule in seen["rules"])


def changes(job: Job[Any]) -> dict[str, tuple[Any, Any]]:
    """What a form or a body says that would change what is not on the list."""
    queue = job.queue
    by_id = {verb: ({}, {"ids": [job.id]}) for verb in BULK_VERBS}
    rule = {"queue": queue, "running": 3, "policy": "wait"}
    return {
        **{f"{verb} chosen jobs": ({"id": job.id}, None) for verb in BULK_VERBS},
        **{f"{verb} job": ({}, None) for verb in BULK_VERBS},
        **by_id,
        "enqueue job": ({"task": f"{queue}_task", "queue": queue}, None),
        "enqueue": ({}, {"task": f"{queue}_task", "queue": queue}),
        "copy job": ({"arguments": "{}"}, None),
        "copy": ({}, {}),
        "set queue form": ({"queue": queue, "app": job.app, "options": "timeout=9"}, None),
        "set queue": ({}, {"queue": queue, "app": job.app, "options": {"timeout": "9"}}),
        "reset queue form": ({"queue": queue, "app": job.app}, None),
        "reset queue": ({}, {"queue": queue, "app": job.app}),
        "drop queue": ({}, {"queue": queue, "app": job.app, "running": "cancel"}),
        **{
            f"{verb} schedule{form}": ({"name": "HIDDEN nightly"}, {"name": "HIDDEN nightly"})
            for verb in ("pause", "resume", "run", "remove")
            for form in ("", " form")
        },
        "begin": ({"verb": "cancel", "q": f"queue:{queue} app:{job.app}"}, None),
        "begin operation": ({}, {"verb": "cancel", "filter": f"queue:{queue} app:{job.app}"}),
        "rules": ({key: str(value) for key, value in rule.items()}, rule),
    }


@pytest.mark.parametrize("fixture", ["queues", "apps"])
def test_nothing_changes_what_is_not_on_the_list(request, fixture):
    at: Place = request.getfixturevalue(fixture)
    told = changes(at.hidden)
    before = state(at.store)

    for route in POSTS:
        form, body = told.get(route.name, told["rules"])
        given = (
            {"data": form} if body is None or not route.path.startswith("/api") else {"json": body}
        )
        answer = at.limited.post(path_of(route, at.hidden), **given, follow_redirects=False)

        assert answer.status_code < 500, (route.path, answer.text)
        assert "HIDDEN" not in answer.text.replace("HIDDEN nightly", ""), route.path
        assert state(at.store) == before, route.path


def state(store: MemoryBroker) -> Any:
    """What there is, but for the audit."""
    jobs = {job.id: (job.state, job.attempt) for job in store.find(Filter(), limit=1000).jobs}
    kinds = (Rule, QueueOptions, Subscription, Schedule)
    return jobs, [store.records(kind) for kind in kinds]


def test_an_act_on_what_is_not_on_the_list_says_that_there_is_no_such_job(queues):
    for route in ("cancel", "retry", "delete"):
        answer = queues.limited.post(f"{V1}/{route}", json={"ids": [queues.hidden.id]}).json()
        assert (answer["done"], answer["left"]) == ([], [queues.hidden.id])
    assert queues.limited.get(f"{V1}/jobs/{queues.hidden.id}").status_code == 404
    assert queues.limited.post(f"{V1}/retry", json={"ids": [queues.seen.id]}).json()["done"]
    assert queues.limited.post(f"{V1}/pause", json={"queue": "mail"}).status_code == 200
    assert queues.limited.post(f"{V1}/pause", json={"queue": "bills"}).status_code == 403
    assert queues.limited.post(f"{V1}/pause", json={"all": True}).status_code == 403


def test_what_shows_the_store_as_a_whole_is_not_for_who_has_a_list(queues):
    for route in ROUTES:
        if route.name not in FOR_LISTED and route.path != "/enter":
            answer = queues.limited.request(route.method, path_of(route, queues.seen))
            assert answer.status_code == 403, route.path
    page = queues.limited.get("/").text
    assert "Workers</a>" in page
    assert "Health</a>" not in page
    assert "Flows</a>" not in page


def test_a_job_of_a_task_of_another_queue_is_not_enqueued_by_naming_ones_own(queues):
    def stored(task: str, **more: str) -> int:
        answer = queues.limited.post(f"{V1}/jobs", json={"task": task, **more})
        return answer.status_code

    assert stored("mail_task") == 200
    assert stored("bills_task", queue="mail") == 422
    assert stored("mail_task", queue="bills") == 403
    assert "bills_task" not in queues.limited.get("/jobs/new").text


def test_to_take_the_place_of_another_job_needs_no_list(queues, clock):
    from penstock.operate.listed_store import ListedStore

    store: Any = ListedStore(queues.store, AccessList(frozenset({"mail"})), "mia")
    unique = Unique("one", replace=True)

    with pytest.raises(Forbidden, match="take the place of another job"):
        store.enqueue([a_job(clock, queue="mail", unique=unique)])


def test_every_name_of_the_routes_for_lists_is_of_a_route():
    assert {route.name for route in ROUTES} >= FOR_LISTED
    assert {route.name for route in GETS} > OF_NO_STORE


def test_a_list_is_written_before_the_token():
    secret = "4c1e7a90b2d35f68e0c4a1b79d2f6e83"
    text = f"mia:operate:queue=mail&queue=a%3Ab&app=shop:{secret}\nada:admin:{secret[::-1]}"

    mia, ada = parse_tokens(text, "tokens")

    assert mia.person == Person(
        "mia", Role.OPERATE, AccessList(frozenset({"mail", "a:b"}), frozenset({"shop"}))
    )
    assert ada.only is None
    assert parse_tokens(mia.line, "tokens") == [mia]
    assert mia.person.at_most(Role.VIEW).only == mia.only
    for wrong in ("queues=mail", "queue=mail&team=x", "tag=a"):
        with pytest.raises(Refused, match="an access list is written queue=mail"):
            parse_tokens(f"mia:operate:{wrong}:{secret}", "tokens")
    assert not parse_access_list("queue=", "x").sees("", "mail")


def test_a_value_of_the_claim_may_have_a_list():
    table = {
        "issuer": "https://login.example.org",
        "client_id": "penstock",
        "roles": {"operate": ["support", "billing"], "admin": ["sre"]},
        "only": {"support": "queue=mail", "billing": "queue=bills"},
    }
    settings = parse_oidc(table, None)
    assert settings is not None

    assert settings.only_for(["sre"]) is None
    assert settings.only_for(["support", "sre"]) == AccessList(frozenset({"mail"}))
    assert settings.only_for(["support", "billing"]) == AccessList(frozenset({"mail", "bills"}))
    for wrong, says in (
        ({"support": "queue=mail", "billing": "app=shop"}, "all name queues, or all name apps"),
        ({"support": "queue=mail&app=shop"}, "not both"),
    ):
        with pytest.raises(Refused, match=says):
            parse_oidc({**table, "only": wrong}, None)


def test_a_list_without_a_token_is_not_taken_for_one():
    """It would be a token that anybody can guess, and that sees everything."""
    with pytest.raises(Refused, match="FILE: ada has an access list and no token after it"):
        parse_tokens("ada:operate:queue=mail&queue=letters&queue=invoices&app=shop", "FILE")
