"""A job is enqueued by a form that is made of the task's signature."""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec
import pytest

from penstock import App, use
from penstock.operate.roles import Role
from tests.web.conftest import Web


@dataclass
class Order:
    number: int


def client() -> str:
    return "a client"


@pytest.fixture
def form(serve, memory_broker) -> Web:
    app = App(broker=memory_broker)

    @app.task(name="shop:send", queue="mail", secret=("card",))
    def send(
        to: str, order: Order | None = None, *, card: str = "", by: str = use(client)
    ) -> None: ...

    @app.task(name="shop:add")
    def add(a: int, b: int, /) -> int:
        return a + b

    return serve(app)


def hidden_id(page: str) -> str:
    found = re.search(r'name="id" value="([^"]+)"', page)
    assert found is not None
    return found[1]


def test_its_fields_are_the_parameters_without_resources_and_secrets_are_typed_unseen(form):
    browser = form.browser(Role.OPERATE)

    listed = browser.get("/jobs/new").text
    page = browser.get("/jobs/new", params={"task": "shop:send"}).text

    assert "shop:send" in listed
    assert "/jobs/new" in browser.get("/jobs").text
    assert re.findall(r'type="(\w+)" name="arg\.(\w+)"', page) == [
        ("text", "to"),
        ("text", "order"),
        ("password", "card"),
    ]
    assert page.count(" required") == 1


def test_what_was_typed_is_read_by_the_annotations_and_twice_is_one_job(form, memory_broker):
    browser = form.browser(Role.OPERATE)
    id = hidden_id(browser.get("/jobs/new", params={"task": "shop:send"}).text)
    typed = {
        "task": "shop:send",
        "id": id,
        "arg.to": "5",
        "arg.order": '{"number": 7}',
        "queue": "slow",
        "delay": "5m",
        "key": "ada",
    }

    answers = [browser.post("/jobs/new", data=typed) for _ in range(2)]

    assert [answer.headers["location"] for answer in answers] == [f"/jobs/{id}"] * 2
    [job] = [memory_broker.get(id)]
    body = msgspec.json.decode(job.body)
    assert body["args"] == {"to": "5", "order": {"number": 7}}
    assert (job.queue, job.key) == ("slow", "ada")
    assert job.run_at == pytest.approx(memory_broker.clock.now() + 300, abs=60)
    assert sum(count.total for count in memory_broker.count()) == 1


def test_parameters_without_a_name_are_given_in_their_order(form, memory_broker):
    typed = {"task": "shop:add", "arg.a": "2", "arg.b": "3"}

    answer = form.browser(Role.OPERATE).post("/jobs/new", data=typed)

    job = memory_broker.get(answer.headers["location"].rpartition("/")[2])
    assert msgspec.json.decode(job.body)["args"] == {"a": 2, "b": 3}


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ({"task": "shop:send"}, "to"),
        ({"task": "shop:send", "arg.to": "ada", "arg.order": "many"}, "order"),
        ({"task": "shop:send", "arg.to": "ada", "delay": "soon"}, "is not a duration"),
        ({"task": "shop:sent"}, "shop:send"),
    ],
)
def test_a_mistake_leads_back_with_what_was_typed_but_for_secrets(form, typed, sentence):
    answer = form.browser(Role.OPERATE).post("/jobs/new", data={**typed, "arg.card": "4111"})

    assert answer.status_code == 422
    [mistake] = re.findall(r'class="mistake" role="alert">(.*?)</p>', answer.text)
    assert sentence in mistake
    assert "4111" not in answer.text
    assert all(value in answer.text for name, value in typed.items() if name == "arg.to")


def test_it_takes_the_role_operate_and_an_app(form, memory_web):
    assert form.browser(Role.VIEW).get("/jobs/new").status_code == 403
    assert form.browser(Role.VIEW).post("/jobs/new", data={"task": "x"}).status_code == 403
    assert "/jobs/new" not in form.browser(Role.VIEW).get("/jobs").text
    refused = memory_web.browser(Role.OPERATE).get("/jobs/new")
    assert (refused.status_code, "penstock dashboard TARGET" in refused.text) == (422, True)
    assert "/jobs/new" not in memory_web.browser(Role.OPERATE).get("/jobs").text
