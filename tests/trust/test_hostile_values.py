"""Hostile values: what goes in comes out, byte for byte, or is refused and nothing was stored."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from penstock import App, JobFailed, Refused, State
from penstock.broker.filter import Filter
from penstock.broker.views import WorkerRow
from penstock.job import Job, succeeded
from penstock.testing.conformance.factories import a_job, claim_for

LIMIT = 256 * 1024


def nested(depth: int) -> Any:
    value: Any = "bottom"
    for _ in range(depth):
        value = [value]
    return value


TEXTS = {
    "nothing": "",
    "NUL": "\x00",
    "NUL inside": "before\x00after",
    "every control character": "".join(map(chr, range(32))) + "\x7f\x80\x9f",
    "right to left": "\u202egnp.exe\u202c \u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",
    "emoji": "\U0001f980\U0001f469\u200d\U0001f469\u200d\U0001f467\U0001f1eb\U0001f1f7",
    "combining": "e\u0301" + "\u0300" * 500,
    "byte order mark": "\ufeffx\ufffe\uffff",
    "line separators": "a\u2028b\u2029c\r\nd\x85e",
    "the last character": "\U0010ffff",
    "quotes": "'\"`\\\\'; drop table penstock_job; --",
    "templates": "{{7*7}} ${7*7} %s%n <script>alert(1)</script> ../../etc/passwd",
    "not quite JSON": '"},{"args":{}}',
    "long": "x" * 200_000,
    "whitespace": " \t\n ",
}

NUMBERS = {
    "largest": 2**63 - 1,
    "smallest": -(2**63),
    "beyond a double": 2**53 + 1,
    "largest float": 1.7976931348623157e308,
    "smallest float": 5e-324,
    "minus zero": -0.0,
    "a third": 1 / 3,
    "true": True,
    "none": None,
}

SHAPES = {
    "as deep as allowed": nested(64),
    "hostile keys": {text: index for index, text in enumerate(TEXTS.values()) if len(text) < 1000},
    "prototype": {"__proto__": {"x": 1}, "constructor": 1, "__class__": "os.system"},
    "many keys": {str(index): index for index in range(5000)},
    "empty things": [[], {}, "", None, [{}], {"": {}}],
    "everything": [list(TEXTS.values())[:5], list(NUMBERS.values())],
}

TEXT_OPTION_NAMES = ["key", "unique", "tag"]
TEXT_OPTIONS = [
    lambda text: {"key": text},
    lambda text: {"unique": text},
    lambda text: {"tags": {"a": text}},
]
REFUSED = {
    "lone surrogate": ("\ud800", "lone surrogate"),
    "lone surrogate inside": ({"a": ["x\udfffy"]}, r"value\.a\[0\]: character 1"),
    "lone surrogate as a key": ({"\ud800": 1}, "lone surrogate"),
    "NaN": (math.nan, "NaN"),
    "infinity": ({"deep": [math.inf]}, r"value\.deep\[0\]: inf"),
    "beyond 64 bits": (2**63, "64 bits"),
    "far beyond 64 bits": (-(10**4000), "64 bits|digits"),
    "too deep": (nested(65), "64 levels deep"),
    "far too deep": (nested(5000), "levels deep|recursion"),
    "an object": (object(), "object cannot be stored"),
    "a function": (print, "cannot be stored"),
    "too large": ("x" * LIMIT, "limit"),
    "a set in a list": ([{1, 2}], "would come back as"),
}


@pytest.fixture
def app():
    app = App("memory:")

    @app.task(name="any")
    def anything(value: Any) -> Any:
        return value

    @app.task(name="tagged", tags={"a": "b"})
    def tagged(value: Any) -> Any:
        return value

    @app.task(name="text")
    def text(value: str) -> str:
        return value

    @app.task(name="make")
    def make(name: str) -> Any:
        return REFUSED[name][0]

    return app


@pytest.fixture
def t(app, store_url):
    with app.testing(url=store_url) as t:
        yield t


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same kind: 1, 1.0 and True are three values, and so are 0.0 and -0.0."""
    if isinstance(one, dict):
        return (
            isinstance(other, dict)
            and list(one) == list(other)
            and all(same(one[key], other[key]) for key in one)
        )
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return repr(one) == repr(other)


@pytest.mark.parametrize("task", ["any", "tagged"])
@pytest.mark.parametrize("value", [*TEXTS.values(), *NUMBERS.values(), *SHAPES.values()])
def test_what_goes_in_comes_out(app, t, task, value):
    job = app.tasks[task].job(value)

    handle = job.enqueue()
    assert t.broker.get(job.id).body == job.body
    [ran] = t.drain()

    assert ran.job.body == job.body
    assert same(handle.result(timeout=0), value)
    assert t.broker.get(job.id).body == job.body


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_texts_survive_a_typed_task(app, t, text):
    handle = app.tasks["text"].enqueue(text)

    t.drain()

    assert handle.result(timeout=0) == text


def test_a_body_of_exactly_the_limit_fits(app, t):
    empty = len(app.tasks["text"].job("").body)
    fits = "x" * (LIMIT - empty)

    handle = app.tasks["text"].enqueue(fits)
    t.drain()

    assert handle.result(timeout=0) == fits
    with pytest.raises(Refused, match="limit"):
        app.tasks["text"].enqueue(fits + "x")
    assert len(t.jobs()) == 1


@pytest.mark.parametrize(("value", "words"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("task", ["any", "tagged"])
def test_what_cannot_be_stored_is_refused_and_leaves_nothing(app, t, task, value, words):
    with pytest.raises(Refused, match=words) as refusal:
        app.tasks[task].enqueue(value)
    with pytest.raises(Refused, match=words):
        app.tasks[task].enqueue_many([("good",), (value,)])

    assert len(str(refusal.value)) < 1000
    assert t.jobs() == []
    assert t.broker.count() == []


@pytest.mark.parametrize("name", REFUSED)
def test_a_result_that_cannot_be_stored_fails_the_job_with_a_reason(app, t, name):
    bad, good = app.tasks["make"].enqueue(name), app.tasks["text"].enqueue("after it")

    t.drain()

    assert good.result(timeout=0) == "after it"
    with pytest.raises(JobFailed) as failure:
        bad.result(timeout=0)
    assert failure.value.reason == "unstorable"


@pytest.mark.parametrize(
    "text", [text for text in TEXTS.values() if len(text) <= 500 and "\x00" not in text]
)
def test_tags_headers_and_errors_hold_any_text(app, t, text):
    @app.task(name="failing")
    def failing() -> None:
        raise ValueError(text)

    tagged = failing.options(tags={"name": text or "-"}, headers={"trace": text}).enqueue()
    t.drain()

    [job] = t.broker.find(Filter(tags={"name": (text or "-",)})).jobs
    assert job.id == tagged.id
    assert job.tags == {"name": text or "-"}
    assert msgspec.json.decode(job.body)["headers"] == {"trace": text}
    assert job.reason == "error"
    for event in t.broker.history(job=job.id):
        assert event.tags == {"name": text or "-"}


@pytest.mark.parametrize("text", ["\x00", "a\x00b", "\ud800", "x\udfff"])
@pytest.mark.parametrize(
    "options",
    [
        lambda text: {"key": text},
        lambda text: {"unique": text},
        lambda text: {"tags": {"a": text}},
        lambda text: {"tags": {text: "a"}},
        lambda text: {"queue": text},
    ],
    ids=["key", "unique", "tag", "tag's name", "queue"],
)
def test_options_that_are_no_text_are_refused(app, t, options, text):
    with pytest.raises(Refused):
        app.tasks["text"].options(**options(text)).enqueue("x")

    assert t.jobs() == []


@pytest.mark.parametrize("options", TEXT_OPTIONS, ids=TEXT_OPTION_NAMES)
def test_a_text_of_500_characters_is_taken_and_a_longer_one_is_refused(app, t, options):
    task = app.tasks["text"]

    task.options(**options("ö" * 500)).enqueue("x")
    for wrong in ("", "ö" * 501):
        with pytest.raises(Refused, match="1 to 500 characters"):
            task.options(**options(wrong)).enqueue("x")

    assert len(t.jobs()) == 1


def test_headers_hold_any_text_but_half_characters(app, t):
    app.tasks["text"].options(headers={"a\x00": "\x00"}).enqueue("x")

    with pytest.raises(Refused, match="headers: a: character 0 is a lone surrogate"):
        app.tasks["text"].options(headers={"a": "\ud800"}).enqueue("x")
    assert len(t.jobs()) == 1


@pytest.mark.parametrize(
    "fields",
    [{"key": "\x00"}, {"tags": {"a": "\x00"}}, {"tags": {"\ud800": "a"}}, {"key": "\ud800"}],
    ids=str,
)
def test_brokers_refuse_what_they_could_not_find_again(broker, clock, fields):
    with pytest.raises(Refused, match="cannot be stored as text"):
        broker.enqueue([a_job(clock), a_job(clock, **fields)])

    assert broker.count() == []


def test_an_error_that_is_no_text_at_all_is_kept_as_far_as_it_goes(app, t):
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("not even that")

    @app.task(name="broken")
    def broken(kind: str) -> None:
        raise {"surrogate": ValueError("\ud800 \udfff"), "unprintable": Unprintable()}[kind]

    handles = [broken.enqueue("surrogate"), broken.enqueue("unprintable")]
    t.drain()

    for handle in handles:
        with pytest.raises(JobFailed):
            handle.result(timeout=0)


NAMES = {
    "200 characters": "n" * 200,
    "right to left": "\u05e9\u05dc\u05d5\u05dd-\u0645\u0631\u062d\u0628\u0627",
    "emoji": "queue-\U0001f980",
    "a path": "mail/../../%2e%2e?x=1&y=#frag",
    "quotes": "'; drop table penstock_job; --",
    "spaces": " a b ",
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_names_from_elsewhere_are_kept_as_they_are(stored, clock, name):
    job = a_job(clock, task=name, queue=name, key=name, tags={name: name}, runs_on=("gpu",))
    stored.enqueue([job])
    worker = WorkerRow(id=name, tasks={name: 1}, tags=frozenset({"gpu"}), host=name)

    [claimed] = claim_for(stored, worker, [name])

    assert (claimed.task, claimed.queue, claimed.key) == (name, name, name)
    assert claimed.tags == {name: name}
    assert stored.settle([(claimed, succeeded())]) == [True]
    [found] = stored.find(Filter(task=(name,), queue=(name,), tags={name: (name,)})).jobs
    assert found.id == job.id
    assert stored.workers()[0].id == name


@pytest.mark.parametrize("name", ["", "n" * 201, "a\x00b", "a\nb", "\ud800", "\x7f"])
@pytest.mark.parametrize("field", ["task", "queue"])
def test_names_that_nobody_can_type_are_refused(broker, clock, name, field):
    fields = {"task": "mail:send", "queue": "default", field: name}

    # What has no UTF-8 is not even sent to a manager.
    with pytest.raises(Refused, match=r"name has 1 to 200 characters|lone surrogate cannot be"):
        broker.enqueue([Job(id=a_job(clock).id, **fields)])

    assert broker.count() == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x00",
        b"null",
        b"[]",
        b"{}",
        b'{"args":[]}',
        b'{"args":{"other":1}}',
        b'{"args":{"value":1},"headers":7}',
        b'{"args":{"value":"\xff"}}',
        b"[" * 100_000,
        b'{"args":' * 30_000,
    ],
    ids=lambda body: repr(body[:20]),
)
def test_a_body_that_nobody_can_read_fails_alone(app, t, body):
    bad = Job(task="text", body=body, id=app.ids.next())
    t.broker.enqueue([bad])
    good = app.tasks["text"].enqueue("after it")

    t.drain()

    assert good.result(timeout=0) == "after it"
    job = t.broker.get(bad.id)
    assert (job.state, job.reason) == (State.FAILED, "unreadable")
    assert job.body == body
    assert len(job.error) < 10_000


def test_two_thousand_queues_are_no_trouble(stored, clock):
    jobs = [a_job(clock, queue=f"queue-{number}") for number in range(2000)]
    stored.enqueue(jobs)
    worker = WorkerRow(id="w", tasks={"mail:send": 1})

    claimed = claim_for(stored, worker, limit=2000)

    assert len({job.queue for job in claimed}) == 2000
    assert all(stored.settle([(job, succeeded()) for job in claimed]))
