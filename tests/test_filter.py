"""Filters: which jobs one means, in words and as a value."""

from __future__ import annotations

import pytest

from penstock.broker.filter import (
    MOST_CHARACTERS,
    Filter,
    as_text,
    parse_filter,
    parse_time,
    words_of,
)
from penstock.errors import Refused
from penstock.job import Job, State

NOW = 1_794_733_800.0  # 2026-11-15 09:10:00 UTC
JOB = Job(
    task="mail:send",
    queue="mail",
    key="ada",
    tags={"tenant": "a"},
    state=State.FAILED,
    reason="error",
    enqueued_at=NOW,
    body=b'{"args":{"user":62,"to":"ada","order":{"id":"x7","lines":[1,2]},"none":null,"ok":true}}',
)


def matches(text: str, job: Job = JOB) -> bool:
    return parse_filter(text.split(), NOW).matches(job)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "task:mail:send",
        "task:mail:send task:other",
        "queue:mail",
        "state:failed",
        "state:failed state:ready",
        "key:ada",
        "reason:error",
        "tag.tenant:a",
        "tag.tenant:b tag.tenant:a",
        "arg.user:62",
        "arg.to:ada",
        "arg.order.id:x7",
        "arg.order.lines:[1,2]",
        "arg.ok:true",
        "since:1h",
        "until:2026-11-15T10:00",
        "-due:now -due:later",
        "-task:other",
        "-tag.tenant:b",
        "-arg.user:63",
        "-state:ready -state:running",
        "state:failed queue:mail -task:heartbeat since:2d",
    ],
)
def test_a_job_that_is_meant(text):
    assert matches(text)


@pytest.mark.parametrize(
    "text",
    [
        "task:mail",
        "queue:media",
        "state:ready",
        "key:bob",
        "reason:crashed",
        "tag.tenant:b",
        "tag.other:a",
        "arg.user:6",
        "arg.missing:1",
        "arg.none:null",
        "arg.to.deeper:x",
        "since:2026-11-15T10:00",
        "until:1h",
        "until:2026-11-15T09:10",
        "-task:mail:send",
        "-queue:mail",
        "-state:failed",
        "-key:ada",
        "-reason:error",
        "-tag.tenant:a",
        "-arg.user:62",
        "state:failed -queue:mail",
        "task:mail:send state:ready",
        "due:now",
        "due:later",
        "due:now due:later",
    ],
)
def test_a_job_that_is_not_meant(text):
    assert not matches(text)


@pytest.mark.parametrize(
    ("run_at", "due"), [(None, "now"), (NOW - 1, "now"), (NOW, "now"), (NOW + 0.001, "later")]
)
def test_a_ready_job_is_due_now_or_later(run_at, due):
    job = Job(task="mail:send", state=State.READY, run_at=run_at)
    other = "later" if due == "now" else "now"

    assert matches(f"due:{due}", job)
    assert matches(f"-due:{other}", job)
    assert matches("due:now due:later", job)
    assert not matches(f"due:{other}", job)
    assert not matches(f"-due:{due}", job)
    assert not matches(f"due:{due} state:running", job)


@pytest.mark.parametrize("state", [state for state in State if state is not State.READY])
def test_whatever_is_not_ready_is_not_due(state):
    job = Job(task="mail:send", state=state, run_at=NOW + 60)

    assert not matches("due:now due:later", job)
    assert matches("-due:later", job)


@pytest.mark.parametrize("body", [b"", b"not json", b"[1]", b"{}", b'{"args":[1]}', b'"x"'])
def test_a_body_that_cannot_be_read_has_no_arguments(body):
    job = Job(task="a", body=body)

    assert not Filter(args={"user": ("62",)}).matches(job)
    assert Filter(exclude=Filter(args={"user": ("62",)})).matches(job)


@pytest.mark.parametrize(
    ("word", "named"),
    [
        ("hello", "'hello'"),
        ("state:", "'state:'"),
        ("state:broken", "waiting, ready, running, succeeded, failed, cancelled"),
        ("state:scheduled", "due:later"),
        ("due:tomorrow", "due:now, or due:later"),
        ("colour:red", "task, queue, state"),
        ("tag:a", "tag.NAME"),
        ("since:soon", "90s"),
        ("-since:1h", "since and until"),
    ],
)
def test_a_mistake_is_named_with_what_would_be_right(word, named):
    with pytest.raises(Refused, match=named):
        parse_filter([word], NOW)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("90s", NOW - 90),
        ("1.5h", NOW - 5400),
        ("2d", NOW - 172_800),
        ("1w", NOW - 604_800),
        ("10m", NOW - 600),
        ("2026-11-15T09:10", NOW),
        ("2026-11-15T10:10+01:00", NOW),
        ("2026-11-15", NOW - 33_000),
    ],
)
def test_a_time_is_so_long_ago_or_a_date(text, at):
    assert parse_time(text, NOW) == at


@pytest.mark.parametrize(
    ("value", "text"), [("a", "a"), (62, "62"), (True, "true"), ([1, "b"], '[1,"b"]')]
)
def test_an_argument_is_written_as_json_but_texts_as_they_are(value, text):
    assert as_text(value) == text


def test_a_line_that_is_too_long_to_be_read_is_refused():
    assert words_of("x" * MOST_CHARACTERS) == ["x" * MOST_CHARACTERS]
    with pytest.raises(Refused, match="a filter of 8,001 characters"):
        words_of("x" * (MOST_CHARACTERS + 1))
