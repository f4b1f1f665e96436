"""Each operation once: one role, one reading, one sentence, behind all three surfaces."""

from __future__ import annotations

import ast
import html
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import penstock
from penstock.broker.control import Control
from penstock.broker.protocol import Broker
from penstock.brokers import open_broker
from penstock.cli.root import root
from penstock.operate.actions import Actions
from penstock.operate.bulk_actions import BULK_VERBS
from penstock.operate.roles import OPERATIONS
from penstock.operate.rule_fields import CLEAR_OPERATIONS
from penstock.operate.sentences import SCHEDULE_TEXTS
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import a_job
from penstock.web.access import Role
from penstock.web.routes import ROUTES

SRC = Path(penstock.__file__).parent
NO_FLOW = "0190a6c4-5e1f-7000-8000-00000a1b2000"
FORMS = {route.does for route in ROUTES if route.does and not route.path.startswith("/api/")}
REST = {route.does for route in ROUTES if route.does and route.path.startswith("/api/")}

# What a surface has no place for, with the reason.
NOT_IN_REST = {
    "limit_off": "limit with off",
    "order_off": "order with off",
    "record_enqueue": "many at once come from a file or a lake, which the command line reads",
    "record_forgotten_rows": "it is done where the lake is",
    "adopt": "the environment is that of the process whose workers are to start",
}
NOT_ON_PAGES = {
    "adopt": "the environment is that of the process whose workers are to start",
    "record_enqueue": "many at once come from a file or a lake, which the command line reads",
    "signal": "the one who decides has a page of their own",
    "put_schedule": "it names a task and its arguments",
    "publish": "what is published is typed where the code is",
    "unsubscribe": "subscriptions have no page: they are in the code, or made by it",
    "drop_queue": "it deletes all jobs of a queue, which may take minutes",
    "forget_lake": "it is done where the lake is",
    "record_forgotten_rows": "as above",
}
NOT_TYPED = {
    "put_schedule": "schedules are in the code, or made by it",
    "rerun_backfill": "task.backfill",
}


def called(folder: str) -> Iterator[tuple[Path, str, str]]:
    """Every method call in a folder: its file, what it is called on, and its name."""
    for file in sorted((SRC / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                yield file, ast.unparse(node.func.value), node.func.attr


def changing() -> set[str]:
    return {name for name, needs in OPERATIONS.items() if needs.changes}


def test_rest_and_pages_reach_every_operation_or_leave_it_out_with_a_reason():
    assert REST & changing() == changing() - set(NOT_IN_REST)
    assert FORMS & changing() == changing() - set(NOT_ON_PAGES)


def test_the_command_line_reaches_every_operation_or_leaves_it_out_with_a_reason():
    typed = {name for _, owner, name in called("cli") if "actions" in owner.lower()}
    groups = {
        "act": set(BULK_VERBS),
        "set_rule": set(RuleKind),
        "clear_rule": set(CLEAR_OPERATIONS.values()),
    }
    groups["act_on_schedule"] = {f"{verb}_schedule" for verb in SCHEDULE_TEXTS}
    reached = {each for name in typed for each in groups.get(name, {name})}

    assert reached & changing() == changing() - set(NOT_TYPED)


def test_a_route_that_changes_something_has_the_role_of_its_operation():
    for route in ROUTES:
        changes = route.name != "test alert"  # it writes to no store
        if route.method == "POST" and changes and (route.role or Role.VIEW) > Role.VIEW:
            assert route.role is OPERATIONS[route.does].role


def verbs_of(group: type) -> set[str]:
    members = vars(group).items()
    return {name for name, member in members if inspect.isfunction(member) and name[0] != "_"}


@pytest.mark.parametrize("folder", ["cli", "web"])
def test_no_surface_changes_a_store_by_itself(folder):
    changes = {"act", "audit", "clear", "decide_schedule", "put", "signal"}
    assert changes == verbs_of(Control)

    by_itself = [
        f"{file.name}: {owner}.{name}"
        for file, owner, name in called(folder)
        if name in changes and owner.rpartition(".")[2].lstrip("_") == "broker"
    ]

    assert by_itself == []
    assert changes - {"decide_schedule"} <= {
        name for _, owner, name in called("operate") if owner == "self._broker"
    }


@pytest.fixture
def store(tmp_path) -> Iterator[tuple[Broker, str]]:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    broker = open_broker(url)
    yield broker, url
    broker.close()


@pytest.fixture
def sentences(serve, store) -> Callable[..., list[str]]:
    """What each surface answers: words of the command line, a body of REST, fields of a form."""
    broker, url = store
    web = serve(broker)

    def said(words: list[str], rest: tuple[str, dict], form: tuple[str, dict]) -> list[str]:
        typed = CliRunner().invoke(root, [*words, "--url", url])
        program = web.client(Role.ADMIN).post(f"/api/v1{rest[0]}", json=rest[1])
        page = web.browser(Role.ADMIN).post(form[0], data=form[1])
        return [typed.output, program.json().get("error", ""), html.unescape(page.text)]

    return said


LONG = "x" * 501


@pytest.mark.parametrize(
    ("words", "rest", "form", "sentence"),
    [
        (
            ["pause", "--reason", "all"],
            ("/pause", {"reason": "all"}),
            ("/rules/pause", {"reason": "all"}),
            "pause what? Name a queue, a task, a version, a tag or a key",
        ),
        (
            ["resume"],
            ("/resume", {}),
            ("/rules/resume", {}),
            "resume what? Name a queue, a task, a version, a tag or a key",
        ),
        (
            ["limit", "--running", "3"],
            ("/limit", {"running": 3}),
            ("/rules/limit", {"running": "3"}),
            "limit what? Name a queue, a task or both",
        ),
        (
            ["limit", "mail", "--rate", "often"],
            ("/limit", {"queue": "mail", "rate": "often"}),
            ("/rules/limit", {"queue": "mail", "rate": "often"}),
            "rate 'often': write 10/s, 100/min",
        ),
        (
            ["pause", "--version", "2147483648"],
            ("/pause", {"version": 2147483648}),
            ("/rules/pause", {"version": "2147483648"}),
            "version '2147483648' is not a whole number from 0 to 2,147,483,647",
        ),
        (
            ["pause", "mail", "--for", "99999d"],
            ("/pause", {"queue": "mail", "seconds": 9e9}),
            ("/rules/pause", {"queue": "mail", "for": "99999d"}),
            "must be more than 0 seconds and at most ten years",
        ),
        (
            ["order", "mail", "often"],
            ("/order", {"queue": "mail", "policy": "often"}),
            ("/rules/order", {"queue": "mail", "policy": "often"}),
            "an order 'often': there are wait, skip, batch, fair",
        ),
        (
            ["pause", "mail", "--reason", LONG],
            ("/pause", {"queue": "mail", "reason": LONG}),
            ("/rules/pause", {"queue": "mail", "reason": LONG}),
            "the reason has 501 characters: at most 500 are kept",
        ),
        (
            ["cancel", "--flow", NO_FLOW],
            ("/cancel", {"flow": NO_FLOW}),
            (f"/flows/{NO_FLOW}/cancel", {}),
            f"{NO_FLOW} is not a flow in this store, nor a job of one: it was never enqueued here",
        ),
        (
            ["schedules", "nightly", "--pause"],
            ("/schedules/pause", {"name": "nightly"}),
            ("/schedules/pause", {"name": "nightly"}),
            "there is no schedule nightly; there are: none at all",
        ),
    ],
)
def test_one_mistake_gets_one_sentence(sentences, store, *, words, rest, form, sentence):
    answers = sentences(words, rest, form)

    assert [sentence in answer for answer in answers] == [True, True, True], answers
    assert store[0].records(Rule) == []


def test_what_was_not_set_and_what_was_left_is_said_alike(sentences, store, clock):
    job = a_job(clock)
    store[0].enqueue([job])

    for words, rest, form, sentence in (
        (
            ["resume", "mail"],
            ("/resume", {"queue": "mail"}),
            ("/rules/resume", {"queue": "mail"}),
            "queue mail was not paused: nothing was changed",
        ),
        (
            ["retry", job.id],
            ("/retry", {"ids": [job.id]}),
            (f"/jobs/{job.id}/retry", {}),
            f"{job.id} was not changed. ",
        ),
    ):
        typed, _, page = sentences(words, rest, form)
        assert sentence in typed
        assert sentence in page


def test_an_operator_is_refused_alike_wherever_they_block(serve, store):
    broker, url = store
    web = serve(broker)

    typed = CliRunner().invoke(root, ["block", "mail", "--url", url])
    program = web.client(Role.OPERATE).post("/api/v1/block", json={"queue": "mail"})
    page = web.browser(Role.OPERATE).post("/rules/block", data={"queue": "mail"})

    for answer in (typed.output, program.json()["error"], page.text):
        assert "block needs the role admin; " in answer
        assert " has operate" in answer
    assert broker.records(Rule) == []


def test_an_operation_has_one_place():
    for name in changing():
        by_name = name in {*BULK_VERBS, *RuleKind, *CLEAR_OPERATIONS.values()}
        assert by_name or name in vars(Actions)
