"""A copy of a job that has ended: as it is, or with other arguments, or refused as a whole."""

from __future__ import annotations

import pytest

from penstock.app.app import App
from penstock.broker.filter import parse_filter
from penstock.job import State, Unique, failed
from penstock.operate.audit import AuditQuery, read_audit
from penstock.operate.audit_text import audit_sentence
from penstock.testing.conformance.factories import a_flow, a_job, begun, claim, part, settle
from penstock.web.access import Role
from tests.web.conftest import Web
from tests.web.test_pages import text_of

BODY = b'{"args":{"n":12345678901234567890,"x":0.10},"timeout":5.0}'


def ended(broker, clock, **fields):
    """A job of these fields that failed."""
    job = a_job(clock, **fields)
    broker.enqueue([job])
    [held] = claim(broker, tasks={job.task: 1})
    settle(broker, held, begun(failed("no"), clock.now()))
    return job


def test_a_copy_is_a_new_job_with_the_same_arguments_to_the_letter(web: Web, broker, clock):
    fields = {"body": BODY, "queue": "slow", "key": "k", "tags": {"tenant": "a"}, "priority": 7}
    job = ended(broker, clock, **fields)

    answer = web.browser(Role.OPERATE).post(f"/jobs/{job.id}/copy", data={"reason": "once more"})

    assert answer.status_code == 303
    copy = broker.get(answer.headers["location"].rpartition("/")[2])
    assert (copy.state, copy.attempt) == (State.READY, 0)
    assert (copy.task, copy.queue, copy.key, copy.priority) == (job.task, "slow", "k", 7)
    assert copy.tags == {"tenant": "a"}
    assert copy.body.startswith(BODY[:-1])
    assert broker.get(job.id).state is State.FAILED
    [deed] = read_audit(broker, AuditQuery(kinds=("enqueue",))).entries
    assert (deed.author, deed.reason) == ("otto", "once more")
    assert (
        str(audit_sentence(deed))
        == f"enqueued job {copy.id} a copy of {job.id} (mail:send in slow)"
    )
    said = text_of(web.client(Role.VIEW).get(f"/jobs/{copy.id}").text)
    assert f"copy of {job.id}" in said
    assert "author otto" in said
    audit = web.client(Role.VIEW).get("/audit").text
    assert f'<a class="open" href="/jobs/{copy.id}">' in audit


def test_arguments_that_were_edited_are_those_of_the_copy_and_found_by(web: Web, broker, clock):
    job = ended(broker, clock, body=b'{"args":{"user":1}}', search={"user": "1"})
    browser = web.browser(Role.OPERATE)
    assert "1" in text_of(browser.get(f"/jobs/{job.id}").text)

    answer = browser.post(f"/jobs/{job.id}/copy", data={"arguments": '{"user":\r\n 62}'})

    copy = broker.get(answer.headers["location"].rpartition("/")[2])
    [found] = broker.find(parse_filter(["arg.user:62"], clock.now())).jobs
    assert found.id == copy.id
    assert b'"user":62' in copy.body.replace(b" ", b"").replace(b"\r\n", b"")


def test_arguments_that_do_not_fit_the_task_are_refused_whole_and_kept_to_mend(
    serve, memory_broker, clock
):
    app = App(broker=memory_broker)

    @app.task(name="mail:send")
    def send(to: str, copies: int = 1) -> None: ...

    job = ended(memory_broker, clock, body=b'{"args":{"to":"ada"}}')
    browser = serve(app).browser(Role.OPERATE)
    assert "send(to: str, copies: int = 1)" in text_of(browser.get(f"/jobs/{job.id}").text)

    for typed, sentence in (
        ('{"to": 7}', "Expected `str`, got `int`"),
        ('{"copies": 2}', "missing required field `to`"),
        ('{"to": "ada", "bcc": "eve"}', "bcc"),
        ("[1, 2]", "not a JSON object"),
        ("{", "not a JSON object"),
    ):
        answer = browser.post(f"/jobs/{job.id}/copy", data={"arguments": typed})
        assert answer.status_code == 422
        assert sentence in text_of(answer.text)
        assert typed in text_of(answer.text)
    assert len(memory_broker.find(parse_filter([], clock.now())).jobs) == 1
    good = browser.post(f"/jobs/{job.id}/copy", data={"arguments": '{"to": "bob"}'})
    assert good.status_code == 303


@pytest.mark.parametrize("typed", [None, '{"card": "***", "n": 1}', '{"card": "***", "n": 2}'])
def test_a_secret_has_to_be_given_for_a_copy(web: Web, broker, clock, typed):
    """The job lost it when it ended."""
    body = b'{"args":{"card":"4111-1111","n":1},"secret":["card"]}'
    job = ended(broker, clock, body=body)
    browser = web.browser(Role.OPERATE)

    refused = browser.post(f"/jobs/{job.id}/copy", data={"arguments": typed} if typed else {})
    given = browser.post(f"/jobs/{job.id}/copy", data={"arguments": '{"card": "4222", "n": 1}'})

    assert refused.status_code == 422
    assert "card is secret, and is not kept" in text_of(refused.text)
    assert b'"card":"4222"' in broker.get(given.headers["location"].rpartition("/")[2]).body
    assert len(broker.find(parse_filter([], clock.now())).jobs) == 2


def test_what_has_not_ended_or_is_filled_by_others_is_not_copied(web: Web, broker, clock):
    ready = a_job(clock)
    broker.enqueue([ready])
    held = ended(broker, clock, task="mail:sweep", unique=Unique("k", "time", 3600))
    browser = web.browser(Role.OPERATE)

    waiting = browser.post(f"/jobs/{ready.id}/copy")
    standing = browser.post(f"/jobs/{held.id}/copy")
    gone = browser.post("/jobs/0190a6c4-5e1f-7000-8000-00000a1b2000/copy")

    assert waiting.status_code == standing.status_code == 422
    assert "has not ended" in text_of(waiting.text)
    assert f"job {held.id} holds the unique key" in text_of(standing.text)
    assert gone.status_code == 404


def test_a_copy_of_a_step_is_in_no_flow(web: Web, broker, clock):
    flow = a_flow(clock, one=part(), two=part("one"))
    broker.enqueue(flow.jobs, flow=flow.flow)
    [held] = claim(broker, tasks={job.task: 1 for job in flow.jobs})
    settle(broker, held, begun(failed("no"), clock.now()))

    answer = web.browser(Role.OPERATE).post(f"/jobs/{held.id}/copy")

    copy = broker.get(answer.headers["location"].rpartition("/")[2])
    assert b'"flow"' not in copy.body
    assert broker.flow(flow.flow.id).ended_at is not None


@pytest.mark.parametrize("role", [Role.VIEW, None])
def test_nobody_copies_without_the_role(memory_web: Web, memory_broker, clock, role):
    job = ended(memory_broker, clock)
    client = memory_web.client() if role is None else memory_web.browser(role)

    assert client.post(f"/jobs/{job.id}/copy").status_code in {401, 403}
    assert len(memory_broker.find(parse_filter([], clock.now())).jobs) == 1


def test_where_arguments_are_hidden_a_job_is_copied_as_it_is(serve, memory_broker, clock):
    job = ended(memory_broker, clock, body=b'{"args":{"to":"ada@example.org"}}')
    browser = serve(memory_broker, hide_arguments=True).browser(Role.OPERATE)
    assert "textarea" not in browser.get(f"/jobs/{job.id}").text

    edited = browser.post(f"/jobs/{job.id}/copy", data={"arguments": '{"to": "eve"}'})
    as_it_is = browser.post(f"/jobs/{job.id}/copy")

    assert edited.status_code == 422
    assert "arguments are hidden here" in text_of(edited.text)
    assert as_it_is.status_code == 303
    copy = memory_broker.get(as_it_is.headers["location"].rpartition("/")[2])
    assert b"ada@example.org" in copy.body


def test_a_job_is_copied_over_rest(web: Web, broker, clock):
    job = ended(broker, clock, body=BODY)
    client = web.client(Role.OPERATE)
    path = f"/api/v1/jobs/{job.id}/copy"

    as_it_is = client.post(path, json={"reason": "once more"})
    edited = client.post(path, content='{"args": {"n": 12345678901234567891}}')
    bad = client.post(path, json={"args": [1]})

    assert (as_it_is.status_code, edited.status_code, bad.status_code) == (200, 200, 422)
    assert broker.get(as_it_is.json()["id"]).body.startswith(BODY[:-1])
    assert b"12345678901234567891" in broker.get(edited.json()["id"]).body
    assert "Expected `object | null`, got `array`" in bad.json()["error"]
    assert web.client(Role.VIEW).post(path).status_code == 403
