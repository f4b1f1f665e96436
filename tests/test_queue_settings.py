"""Options of queues as people type them, the presets, and how a queue is dropped."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import App, presets
from penstock.app.queue_options import options_of
from penstock.broker.queue_options import Options, QueueOptions, option_text
from penstock.brokers.memory import MemoryBroker
from penstock.enqueue.codec import RetryWire
from penstock.errors import Refused
from penstock.job import succeeded
from penstock.operate.actions import Actions
from penstock.operate.queue_settings import parse_option_words, parse_options
from penstock.operate.roles import Person, Role
from penstock.rules.rule import Rule, RuleKind
from penstock.task.retry import Repeat
from penstock.testing.conformance.factories import a_job, a_worker, claim_for, settle

PRESETS = {name: getattr(presets, name) for name in ("dark", "vitess", "avail", "guild", "bee")}


@pytest.fixture
def store(clock):
    return MemoryBroker(clock)


@pytest.fixture
def actions(store):
    return Actions(store, Person("ada", Role.OPERATE))


def test_options_are_typed_as_in_the_code():
    words = "timeout=10m retry=limit=5,delay=30s,jitter=0.33,min=1s on_timeout=repeat:limit=2"
    more = "keep=none running=4 rate=10/s per_key=yes order=fair crash_budget=5 on_error=delete"

    assert parse_option_words(f"{words} {more}".split()) == Options(
        timeout=600.0,
        retry=RetryWire(limit=5, delay=30.0, jitter=0.33, min=1.0),
        on_timeout=Repeat(limit=2),
        keep=None,
        running=4,
        rate=(10, 1.0),
        per_key=True,
        order="fair",
        crash_budget=5,
        on_error="delete",
    )


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("colour=red", "'colour' is no option of a queue; there are lease, keep"),
        ("timeout", "'timeout'"),
        ("timeout=0", "more than 0 seconds"),
        ("timeout=soon", "timeout 'soon' is not a duration"),
        ("retry=often=3", "retry: 'often' is not one of limit, delay"),
        ("retry=min=2h", "min is at most max"),
        ("retry=jitter=x", "retry: jitter='x' is not a number"),
        ("on_error=explode", "keep, delete, or repeat:"),
        ("order=fifo", "order='fifo': wait, skip, batch, fair or none"),
        ("relaxed=maybe", "relaxed='maybe': yes or no"),
        ("crash_budget=0", "crash_budget=0: a number of crashes"),
    ],
)
def test_a_mistake_is_named_with_the_way_out(word, sentence):
    with pytest.raises(Refused, match=sentence):
        parse_option_words([word])


@pytest.mark.parametrize("name", PRESETS)
def test_the_table_of_presets_is_what_they_are(name):
    """B37, C7, C26: and what is printed can be typed."""
    page = (Path(__file__).parents[1] / "docs" / "coming-from.md").read_text(encoding="utf-8")
    options = options_of(name, PRESETS[name])

    said = {each: option_text(value) for each, value in options.said.items()}

    row = ", ".join(f"`{each}={text}`" for each, text in said.items())
    assert f"| `presets.{name}` | {row} |" in page
    assert parse_options(said) == options


def test_a_preset_decides_what_becomes_of_a_job(store):
    app = App(broker=store)
    app.queue("dark", presets.dark)
    app.queue("bee", presets.bee, timeout=3)

    @app.task
    def fail() -> None: ...

    dark, bee = fail.policy_in("dark"), fail.policy_in("bee")

    assert (dark.retry.limit, dark.retry.then, dark.on_success) == (2, "delete", "delete")
    assert (bee.retry.limit, bee.on_timeout) == (0, Repeat(limit=2))
    assert app.queues.of("bee").timeout == 3


def test_an_override_is_set_beside_the_others_and_reset(actions, store):
    actions.set_queue("mail", "", Options(timeout=60.0), "slow")
    actions.set_queue("mail", "", Options(running=3), "provider")

    assert store.records(QueueOptions)[0].override == Options(timeout=60.0, running=3)
    assert [rule.author for rule in store.records(Rule)] == ["ada"]
    assert actions.reset_queue("mail", "", ["running"]).override == Options(timeout=60.0)
    assert actions.reset_queue("mail", "").override is None
    assert store.records(Rule) == []
    with pytest.raises(Refused, match="'colour' is no option"):
        actions.reset_queue("mail", "", ["colour"])


def test_a_dropped_queue_leaves_its_history_and_nothing_else(actions, store, clock):
    """V29, B36."""
    jobs = [a_job(clock, queue="mail") for _ in range(3)]
    other = a_job(clock, queue="media")
    store.enqueue([*jobs, other])
    store.enqueue([a_job(clock, queue="mail", run_at=clock.now() + 60)])
    [done] = claim_for(store, a_worker(), ("mail",), limit=1)
    settle(store, done, succeeded(b"1"))
    store.put(Rule(RuleKind.LIMIT, "mail", running=3))
    actions.set_queue("mail", "", Options(timeout=60.0))

    dropped = actions.drop_queue("mail", "", "refuse", "moved away")

    assert (dropped.cancelled, dropped.deleted, dropped.rules) == (3, 4, 1)
    assert [count.queue for count in store.count() if count.total] == ["media"]
    assert (store.records(Rule), store.records(QueueOptions)) == ([], [])
    assert store.get(done.id) is None
    assert [row.job for row in store.history(job=done.id) if row.kind == "attempt"] == [done.id]


def test_a_queue_whose_jobs_run_is_not_dropped_unless_they_are_cancelled(actions, store, clock):
    store.enqueue([a_job(clock, queue="mail")])
    [running] = claim_for(store, a_worker(), ("mail",), limit=1)

    with pytest.raises(Refused, match="queue mail: 1 of its jobs run; wait for them, or"):
        actions.drop_queue("mail", "", "refuse")

    assert store.records(Rule) == []
    assert store.get(running.id) is not None


def test_a_queue_that_two_programs_use_is_not_dropped(actions, store, clock):
    store.enqueue([a_job(clock, queue="mail"), a_job(clock, queue="mail", app="media")])

    with pytest.raises(Refused, match=r"also has jobs of other programs \(media\)"):
        actions.drop_queue("mail", "", "cancel")

    assert store.records(Rule) == []
