"""Retry on the dashboard and over REST, of jobs whose secrets were deleted when they ended."""

from __future__ import annotations

import json

import pytest

from penstock.broker.checks import MOST_BODY_BYTES
from penstock.broker.filter import parse_filter
from penstock.broker.views import Page
from penstock.errors import Refused
from penstock.job import State, failed
from penstock.operate.actions import Actions
from penstock.operate.roles import Person, Role
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import (
    a_flow,
    a_job,
    begun,
    claim,
    enqueue_and_claim,
    part,
    settle,
)
from penstock.web.checked_store import CheckedStore
from tests.web.conftest import Web
from tests.web.test_operations import V1, ended
from tests.web.test_pages import text_of

BODY = b'{"args":{"card":"4111-1111","n":1},"secret":["card"]}'


def a_failed_job(broker, clock):
    job = enqueue_and_claim(broker, clock, body=BODY)
    settle(broker, job, begun(failed("no"), clock.now()))
    return job


def test_rest_counts_jobs_whose_secrets_are_gone_and_takes_them(web: Web, broker, clock):
    job = a_failed_job(broker, clock)
    client = web.client(Role.OPERATE)

    left = client.post(f"{V1}/retry", json={"ids": [job.id]})
    wrong = client.post(f"{V1}/retry", json={"ids": [job.id], "secrets": {"n": 2}})
    hidden = client.post(f"{V1}/retry", json={"ids": [job.id], "secrets": {"card": "***"}})
    done = client.post(f"{V1}/retry", json={"ids": [job.id], "secrets": {"card": {"no": 42}}})

    assert left.json() == {"done": [], "left": [job.id], "secrets_gone": [job.id]}
    assert (wrong.status_code, hidden.status_code) == (422, 422)
    assert done.json() == {"done": [job.id], "left": [], "secrets_gone": []}
    [again] = claim(broker)
    assert json.loads(again.body)["args"] == {"card": {"no": 42}, "n": 1}
    assert client.post(f"{V1}/cancel", json={"ids": [], "secrets": {}}).status_code == 422


def test_secrets_beyond_the_size_of_a_body_are_refused(broker, clock):
    job = a_failed_job(broker, clock)
    actions = Actions(broker, Person("ada", Role.ADMIN))

    with pytest.raises(Refused, match=r"secrets of [\d,]+ bytes: [\d,]+ at most"):
        actions.act("retry", [job.id], secrets={"card": "4" * MOST_BODY_BYTES})

    assert broker.get(job.id).state is State.FAILED


def test_an_operation_counts_them(web: Web, broker, clock):
    a_failed_job(broker, clock)
    client = web.client(Role.OPERATE)

    begun_ = client.post(f"{V1}/operations", json={"verb": "retry", "filter": "state:failed"})

    answer = ended(client, begun_.json()["id"])
    assert (answer["matched"], answer["done"], answer["secrets_gone"]) == (1, 0, 1)
    page = web.browser(Role.VIEW).get(f"/operations/{answer['id']}")
    assert "1 left as they are (secrets_gone)" in text_of(page.text)


def test_the_page_of_a_job_asks_for_its_secrets(web: Web, broker, clock):
    job = a_failed_job(broker, clock)
    browser = web.browser(Role.OPERATE)
    assert 'type="password" name="secret.card"' in browser.get(f"/jobs/{job.id}").text

    left = browser.post(f"/jobs/{job.id}/retry", data={"secret.card": ""})
    assert left.status_code == 409
    assert "secrets_gone" in text_of(left.text)

    done = browser.post(f"/jobs/{job.id}/retry", data={"secret.card": "4222", "reason": "again"})
    assert done.status_code == 303
    assert b'"card":"4222"' in claim(broker)[0].body
    assert "4222" not in browser.get(f"/jobs/{job.id}").text


def test_the_page_of_a_job_that_keeps_its_secrets_does_not_ask(web: Web, broker, clock):
    """And shows nothing of them; it says that it has no key for what is encrypted."""
    sealed = b'{"$sealed":"0011aabb.j.hunter2"}'
    body = b'{"args":{"card":%b,"n":%b},"secret":["card"],"keep_secrets":60}' % (sealed, sealed)
    job = enqueue_and_claim(broker, clock, body=body)
    settle(broker, job, begun(failed("no"), clock.now()))
    browser = web.browser(Role.OPERATE)
    page = browser.get(f"/jobs/{job.id}").text
    assert "secret.card" not in page
    assert page.count("hunter2") == page.count("&#34;n&#34;")
    assert "this dashboard has no key for them" in text_of(page)
    api = web.client(Role.OPERATE)

    assert api.get(f"{V1}/jobs/{job.id}").json()["args"]["card"] == "***"
    assert api.post(f"{V1}/retry", json={"ids": [job.id]}).json()["done"] == [job.id]


def a_failed_flow(broker, clock):
    """Two jobs with a secret in the second; the first one has failed."""
    flow = a_flow(clock, first=part(), last=part("first"))
    bodies = [BODY[:-1] + b"," + job.body[job.body.index(b'"flow"') :] for job in flow.jobs]
    last = flow.jobs[1]
    flow.named["last"] = [type(last)(task=last.task, id=last.id, body=bodies[1])]
    flow.send(broker)
    [job] = claim(broker)
    settle(broker, job, begun(failed("no"), clock.now()))
    return flow.jobs


def test_a_flow_says_how_many_of_its_own_were_left(web: Web, broker, clock):
    [first, last] = a_failed_flow(broker, clock)
    a_failed_flow(broker, clock)
    client = web.client(Role.OPERATE)

    answer = client.post(f"{V1}/retry", json={"flow": first.id})

    assert answer.json() == {"done": [first.id], "left": [], "secrets_gone": [last.id]}
    assert broker.get(last.id).state is State.CANCELLED


def test_hidden_arguments_cannot_be_guessed(broker, clock):
    jobs = [a_job(clock, body=b'{"args":{"user":"ada"}}', search={"user": "ada"}) for _ in "abc"]
    broker.enqueue(jobs)
    person = Person("vera", Role.VIEW)
    store = CheckedStore(broker, person, may_change=False, hide_arguments=True)

    def answers(word: str) -> list[Page]:
        rule = Rule(RuleKind.PAUSE, tag=("arg.user", word))
        assert store.matching(rule).jobs == 0
        return [store.find(parse_filter([f"tag.arg.user:{word}"], clock.now()))]

    assert answers("ada") == answers("eve")
    for words in ("arg.user:ada", "-arg.user:ada"):
        with pytest.raises(Refused, match="arguments are hidden here"):
            store.find(parse_filter([words], clock.now()))
