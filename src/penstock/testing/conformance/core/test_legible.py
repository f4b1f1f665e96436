"""Words for people that are no text: they are kept as far as they can be, and nothing fails."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest

from penstock.broker.filter import parse_filter
from penstock.errors import Refused
from penstock.rules.rule import Rule, RuleKind, rule_id
from penstock.run.job_notes import LogLine, Notebook, Progress
from penstock.testing.conformance.factories import a_job, enqueue_and_claim

HOSTILE = "a\x00b\ud800c\U0001f980"
KEPT = "a\u2400b\ufffdc\U0001f980"


def test_who_cancelled_retried_and_deleted_and_why(broker, clock):
    job = a_job(clock)
    broker.enqueue([job])

    assert broker.act("cancel", [job.id], HOSTILE, HOSTILE) == [job.id]
    assert broker.act("retry", [job.id], HOSTILE, HOSTILE) == [job.id]
    assert broker.act("delete", [job.id], HOSTILE, HOSTILE) == [job.id]

    said = [event for event in broker.history() if event.kind in {"cancel", "retry", "delete"}]
    assert [event.kind for event in said] == ["cancel", "retry", "delete"]
    for event in said:
        assert msgspec.json.decode(event.data) == {"author": KEPT, "reason": KEPT}


def test_whose_rule_it_is_and_why(broker):
    broker.put(Rule(RuleKind.PAUSE, "mail", author=HOSTILE, reason=HOSTILE))

    [rule] = broker.records(Rule)
    assert (rule.author, rule.reason) == (KEPT, KEPT)
    assert broker.clear(Rule, rule_id(RuleKind.PAUSE, "mail"), author=HOSTILE)


def test_what_a_job_leaves_behind(broker, clock):
    job = enqueue_and_claim(broker, clock)
    notebook = Notebook(lambda: broker, job, lambda question: question())

    notebook.progress(Progress(0.5, HOSTILE))
    notebook.line(LogLine(clock.now(), "info", HOSTILE))
    notebook.write("event", HOSTILE, b"null")
    notebook.flush()

    [progress] = broker.notes(job.id, "progress")
    assert msgspec.json.decode(progress.value)["note"] == KEPT
    [log] = broker.notes(job.id, "log")
    assert msgspec.json.decode(log.value)[0]["text"] == KEPT
    [event] = [event for event in broker.history() if event.kind == "event"]
    assert KEPT in msgspec.json.decode(event.data).values()


def test_a_filter_that_no_job_can_match(broker, clock):
    broker.enqueue([a_job(clock, tags={"x": "a"})])

    for word in ("tag.x", "arg.x", "task", "queue", "key", "reason"):
        wanted = parse_filter([f"{word}:{HOSTILE}"], clock.now())
        assert broker.find(wanted).jobs == []


@pytest.mark.parametrize("job_id", ["x", "", "0", "ff", "\ud800", "zz" * 16])
def test_what_is_no_id_is_no_job(broker, job_id):
    with suppress(Refused):
        assert broker.get(job_id) is None
