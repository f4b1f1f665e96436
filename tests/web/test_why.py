"""Why is it not running? Every cause there is, over REST and on the job's page, of each store."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from penstock.broker.protocol import Broker
from penstock.flows.flow import WAIT_TASK
from penstock.flows.signals import TAG
from penstock.job import failed, succeeded, try_again
from penstock.operate import why as module
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import (
    a_flow,
    a_job,
    a_worker,
    claim,
    part,
    settle,
    some_jobs,
)
from penstock.web.access import Role
from tests.web.conftest import Web
from tests.web.test_pages import text_of

Given = Callable[[Broker, Any], str]


class Answer(NamedTuple):
    """The cause, and the words that make its sentence useful."""

    cause: str
    words: tuple[str, ...]


CAUSES: dict[Given, Answer] = {}


def because(cause: str, *words: str) -> Callable[[Given], Given]:
    def declare(given: Given) -> Given:
        CAUSES[given] = Answer(cause, words)
        return given

    return declare


def stored(broker: Broker, clock, **fields: Any) -> str:
    job = a_job(clock, **fields)
    broker.enqueue([job])
    return job.id


@because("unknown", "No job", "is in this store")
def of_a_job_that_nobody_stored(broker, clock) -> str:
    return a_job(clock).id


@because("signal", "waits for the signal 'approve-62'", "penstock signal approve-62")
def waiting_for_a_signal(broker, clock) -> str:
    flow = a_flow(clock, wait=part(task=WAIT_TASK, tags={TAG: "approve-62"}), ship=part("wait"))
    flow.send(broker)
    return flow.ids("wait")[0]


@because("needs", "1 job of 1 of the task 'mail:send' left")
def waiting_for_what_it_needs(broker, clock) -> str:
    flow = a_flow(clock, first=part(), last=part("first"))
    flow.send(broker)
    return flow.ids("last")[0]


@because("ended", "It succeeded at")
def ended_well(broker, clock) -> str:
    id = stored(broker, clock)
    settle(broker, claim(broker)[0], succeeded())
    return id


@because("ended", "It failed at", "ValueError: boom", "penstock retry")
def ended_badly(broker, clock) -> str:
    id = stored(broker, clock)
    settle(broker, claim(broker)[0], failed("Traceback\nValueError: boom"))
    return id


@because("ended", "It was cancelled at", "penstock retry")
def cancelled_by_somebody(broker, clock) -> str:
    id = stored(broker, clock)
    broker.act("cancel", [id], "ada")
    return id


@because("ended", "a job that it needs did not succeed")
def cancelled_with_its_need(broker, clock) -> str:
    flow = a_flow(clock, first=part(), last=part("first"))
    flow.send(broker)
    settle(broker, claim(broker)[0], failed("no"))
    return flow.ids("last")[0]


@because("running", "It runs on worker worker-1", "attempt 1")
def running(broker, clock) -> str:
    id = stored(broker, clock)
    claim(broker)
    return id


@because("running", "whose lease has expired")
def running_on_a_worker_that_fell_silent(broker, clock) -> str:
    id = running(broker, clock)
    clock.advance(seconds=16)
    return id


@because("time", "It waits for its time: due in 3 min 20 s")
def due_later(broker, clock) -> str:
    return stored(broker, clock, run_at=clock.now() + 200)


@because("time", "It failed once (ValueError: boom)", "waits for its retry: due in 1 min")
def to_be_tried_again(broker, clock) -> str:
    id = stored(broker, clock)
    settle(broker, claim(broker)[0], try_again("ValueError: boom", clock.now() + 60))
    return id


@because("time", "It expired at", "the next worker that looks at it cancels it")
def expired(broker, clock) -> str:
    id = stored(broker, clock, expires_at=clock.now() + 5)
    clock.advance(seconds=6)
    return id


@because("paused", "is paused by ada", "provider is down", "penstock resume default")
def paused(broker, clock) -> str:
    broker.renew([a_worker()])
    broker.put(Rule(RuleKind.PAUSE, "default", None, "ada", "provider is down"))
    return stored(broker, clock)


@because("blocked", "is blocked by ada", "disk is full", "penstock unblock default --admin")
def blocked(broker, clock) -> str:
    broker.renew([a_worker()])
    broker.put(Rule(RuleKind.BLOCK, "default", None, "ada", "disk is full"))
    return stored(broker, clock)


@because("no_worker", "No worker is alive", "penstock worker")
def without_a_worker(broker, clock) -> str:
    return stored(broker, clock)


@because("no_worker", "the last one, worker-1", "has expired")
def after_all_workers_fell_silent(broker, clock) -> str:
    broker.renew([a_worker()])
    clock.advance(seconds=16)
    return stored(broker, clock)


@because("no_task", "No live worker knows the task 'mail:sned'", "mail:send")
def of_a_task_that_nobody_knows(broker, clock) -> str:
    broker.renew([a_worker()])
    return stored(broker, clock, task="mail:sned")


@because("no_app", "a job of the app 'shop', and no live worker belongs to that", "without a name")
def of_a_program_that_has_no_worker(broker, clock) -> str:
    broker.renew([a_worker()])
    return stored(broker, clock, app="shop")


@because("no_queue", "No live worker serves the queue 'mail'", "'media'")
def in_a_queue_that_nobody_serves(broker, clock) -> str:
    broker.renew([a_worker(queues=("media",))])
    return stored(broker, clock, queue="mail")


@because("no_version", "needs version 2", "have version 1 at most")
def newer_than_every_worker(broker, clock) -> str:
    broker.renew([a_worker()])
    return stored(broker, clock, version=2)


@because("no_tags", "only on a worker with the tags 'gpu'", "they have 'linux'")
def for_a_worker_with_other_tags(broker, clock) -> str:
    broker.renew([a_worker(tags=frozenset({"linux"}))])
    return stored(broker, clock, runs_on=("gpu",))


def in_order(broker, clock) -> str:
    """The first of two jobs of a key is claimed; the id of the second."""
    broker.put(Rule(RuleKind.ORDER, "default", None, "ada", policy="wait"))
    broker.enqueue([first := a_job(clock, key="ada"), second := a_job(clock, key="ada")])
    [claimed] = claim(broker)
    assert claimed.id == first.id
    return second.id


@because("order", "It waits behind job", "of the same key 'ada'", "which runs since")
def behind_another_of_its_key(broker, clock) -> str:
    return in_order(broker, clock)


@because("stuck", "It waits behind job", "which failed", "penstock delete")
def behind_one_that_failed(broker, clock) -> str:
    broker.put(Rule(RuleKind.ORDER, "default", None, "ada", policy="wait"))
    broker.enqueue([a_job(clock, key="ada"), second := a_job(clock, key="ada")])
    settle(broker, claim(broker)[0], failed("no"))
    return second.id


@because("limit", "is limited to 1 running by ada", "1 on worker-1", "when one of them has ended")
def over_a_limit(broker, clock) -> str:
    broker.put(Rule(RuleKind.LIMIT, "default", None, "ada", running=1))
    broker.enqueue(jobs := some_jobs(clock, 2))
    claim(broker)
    return jobs[1].id


@because("limit", "is limited to", "the next may start in")
def over_a_rate(broker, clock) -> str:
    broker.put(Rule(RuleKind.LIMIT, "default", None, "ada", rate=(1, 60.0)))
    broker.enqueue(jobs := some_jobs(clock, 2))
    settle(broker, claim(broker)[0], succeeded())
    return jobs[1].id


@because("next", "It is ready and next")
def the_next_one(broker, clock) -> str:
    broker.renew([a_worker()])
    return stored(broker, clock)


@because("next", "2 jobs of its lane are ahead of it")
def behind_two_others(broker, clock) -> str:
    broker.renew([a_worker()])
    broker.enqueue(jobs := some_jobs(clock, 3))
    return jobs[2].id


@pytest.mark.parametrize("given", CAUSES, ids=lambda given: given.__name__)
def test_the_cause_is_right_over_rest_and_on_the_page(web: Web, broker, clock, given: Given):
    expected, id = CAUSES[given], given(broker, clock)
    client = web.client(Role.VIEW)

    answer, page = client.get(f"/api/v1/jobs/{id}/why"), client.get(f"/jobs/{id}")

    if expected.cause == "unknown":
        assert (answer.status_code, page.status_code) == (404, 404)
        sentence = answer.json()["error"]
    else:
        assert (answer.status_code, page.status_code) == (200, 200)
        assert answer.json()["cause"] == expected.cause
        sentence = answer.json()["sentence"]
    for word in expected.words:
        assert word in sentence
        assert word in text_of(page.text)


def test_every_cause_that_there_is_has_its_test():
    tree = ast.parse(inspect.getsource(module))
    causes: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Why":
            causes |= literals(node.args[2])
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
            causes |= literals(node.value.elts[0])

    assert {answer.cause for answer in CAUSES.values()} == causes


def literals(node: ast.expr) -> set[str]:
    if isinstance(node, ast.IfExp):
        return literals(node.body) | literals(node.orelse)
    return {node.value} if isinstance(node, ast.Constant) and isinstance(node.value, str) else set()
