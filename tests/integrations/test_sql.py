"""penstock.enqueue in SQL: from triggers, psql and other languages, with the checks of Python."""

from __future__ import annotations

import string
import uuid
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import msgspec
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import errors, sql
from psycopg.types.json import Jsonb

from penstock import App, current_job
from penstock.broker.checks import is_path
from penstock.broker.filter import Filter
from penstock.enqueue.ids import Ids, bucket_by, bucket_for, bucket_of, time_of
from penstock.job import Job, Lane
from penstock.task.task import PlainTask
from penstock.testing.conformance.factories import NO_PATHS, ODD_PATHS, PATHS
from penstock.worker import Worker


@pytest.fixture
def url(postgres_store_url: str) -> str:
    return postgres_store_url


@pytest.fixture
def app(url: str) -> Iterator[App]:
    app = App(url)
    yield app
    app.close()


@pytest.fixture
def db(url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def ran() -> list[Any]:
    return []


@pytest.fixture
def confirm(app: App, ran: list[Any]) -> PlainTask[[int, str], None]:
    @app.task(name="shop:confirm", queue="mail", search=("order",))
    def confirm(order: int, customer: str = "nobody") -> None:
        ran.append((order, customer, dict(current_job().headers), dict(current_job().tags)))

    return confirm


def enqueue(db: psycopg.Connection[Any], task: str | None = "shop:confirm", **named: Any) -> str:
    """Call it as `select penstock.enqueue(task, name => value, ...)`."""
    values = {
        name: Jsonb(value) if name in {"args", "tags", "headers"} else value
        for name, value in named.items()
    }
    parts = [
        sql.SQL("{} => {}").format(sql.Identifier(name), sql.Literal(values[name]))
        for name in values
    ]
    call = sql.SQL("select penstock.enqueue({})").format(
        sql.SQL(", ").join([sql.Literal(task), *parts])
    )
    row = db.execute(call).fetchone()
    assert row is not None
    return str(row[0])


def run_all(app: App) -> None:
    Worker(app, threads=2, drain=True).work()


def all_jobs(app: App) -> list[Job[Any]]:
    return list(app.broker.find(Filter()).jobs)


def test_a_worker_runs_what_sql_enqueued_with_its_arguments(app, db, confirm, ran):
    enqueue(db, args={"order": 7, "customer": "Ödön"}, queue="mail", headers={"trace": "t1"})
    enqueue(db, args={"order": 8}, queue="mail", tags={"tenant": "a"})

    run_all(app)

    assert sorted(ran, key=lambda each: each[0]) == [
        (7, "Ödön", {"trace": "t1"}, {}),
        (8, "nobody", {}, {"tenant": "a"}),
    ]


def test_a_trigger_enqueues_with_the_row_that_it_is_about(app, db, confirm, ran):
    db.execute("drop table if exists placed")
    db.execute("create table placed (id integer primary key, customer text)")
    db.execute(
        """
        create or replace function confirm_order() returns trigger language plpgsql as $$
        begin
            perform penstock.enqueue(
                'shop:confirm',
                jsonb_build_object('order', new.id, 'customer', new.customer),
                queue => 'mail'
            );
            return new;
        end $$
        """
    )
    db.execute(
        "create trigger confirm after insert on placed"
        " for each row execute function confirm_order()"
    )

    with db.transaction(force_rollback=True):
        db.execute("insert into placed values (1, 'mallory')")
    assert all_jobs(app) == []
    db.execute("insert into placed select n, 'ada' from generate_series(1, 3) as n")
    run_all(app)

    assert [(order, customer) for order, customer, *_ in sorted(ran, key=lambda each: each[0])] == [
        (1, "ada"),
        (2, "ada"),
        (3, "ada"),
    ]
    db.execute("drop table placed")


def test_a_job_of_sql_is_a_job_like_any_other(app, db, confirm):
    id = enqueue(
        db,
        args={"order": 7},
        queue="mail",
        priority=5,
        delay="1 hour",
        key="ada",
        unique_key="once",
        tags={"tenant": "a"},
        expires="1 day",
        timeout="30 seconds",
        secret=["customer"],
    )

    job = app.broker.get(id)

    now = app.clock.now()
    assert (job.task, job.queue, job.priority, job.key) == ("shop:confirm", "mail", 5, "ada")
    assert job.lane == Lane("mail", "shop:confirm", 1, 5)
    assert job.tags == {"tenant": "a"}
    assert job.unique.key == "once"
    assert job.run_at == pytest.approx(now + 3600, abs=30)
    assert job.expires_at == pytest.approx(now + 86400, abs=30)
    body = msgspec.json.decode(job.body)
    assert body == {"args": {"order": 7}, "timeout": 30.0, "secret": ["customer"]}
    assert confirm.timeout_of(job) == 30
    assert app.broker.why(id).cause == "time"
    assert [count.scheduled for count in app.broker.count()] == [1]


def test_lanes_of_sql_are_those_of_python(app, db, confirm):
    enqueue(db, args={"order": 1}, queue="mail")
    confirm.enqueue(2)
    confirm.options(priority=3).enqueue(3)
    enqueue(db, args={"order": 4}, queue="mail", priority=3)

    lanes = db.execute("select hash, queue, task, version, priority from penstock.lane").fetchall()

    assert {number: Lane(*names).hash for number, *names in lanes} == {
        number: number for number, *_ in lanes
    }
    assert len(lanes) == 2


def test_a_job_made_in_sql_is_of_the_app_that_it_names(app, url, db, confirm, ran):
    enqueue(db, args={"order": 1}, queue="mail", app="media")
    enqueue(db, args={"order": 2}, queue="mail", app="media", key="ada")
    enqueue(db, args={"order": 3}, queue="mail")

    jobs = app.broker.find(Filter(app=("media",))).jobs

    assert {job.lane for job in jobs} == {Lane("mail", "shop:confirm", app="media")}
    assert {job.lane.hash for job in jobs} == {
        number
        for (number,) in db.execute("select hash from penstock.lane where app = 'media'").fetchall()
    }
    Worker(app, drain=True).work()
    assert [order for order, *_ in ran] == [3]


@pytest.mark.parametrize("name", ["a b", "x" * 201, None])
def test_sql_refuses_an_app_as_it_does_a_queue(db, name):
    with pytest.raises(errors.InvalidParameterValue, match=r"app .*: 1 to 200 characters out of"):
        enqueue(db, app=name)


NAMES = st.text(string.ascii_letters + string.digits + "_.:/-", min_size=1, max_size=200)


LANES = st.builds(
    Lane,
    queue=NAMES,
    task=NAMES,
    version=st.integers(1, 2**31 - 1),
    priority=st.integers(-100, 100),
    runs_on=st.lists(NAMES, max_size=4).map(lambda tags: tuple(sorted(tags))),
    app=st.just("") | NAMES,
)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(lane=LANES)
def test_the_number_of_a_lane_is_the_same_in_sql_and_in_python(db, lane):
    words = (lane.app, lane.queue, lane.task, lane.version, lane.priority, list(lane.runs_on))
    with db.transaction(force_rollback=True):
        row = db.execute(
            "select penstock.lane_of(%s, %s, %s, %s::integer, %s::integer, %s::text[])", words
        ).fetchone()

    assert row == (lane.hash,)


def test_ids_of_sql_have_the_layout_of_python(app, db):
    before = app.clock.now()

    ids = [enqueue(db) for _ in range(50)]

    assert ids == sorted(ids)
    assert len(set(ids)) == 50
    for id in ids:
        assert uuid.UUID(id).version == 7
        assert id.endswith("000")
        assert before - 1 < time_of(id) < app.clock.now() + 1


def test_the_same_id_twice_is_one_job_and_so_is_the_same_unique_key(app, db):
    id = Ids().next()

    assert [enqueue(db, id=id), enqueue(db, id=id)] == [id, id]
    first = enqueue(db, unique_key="once")
    assert enqueue(db, unique_key="once") == first
    assert enqueue(db, unique_key="minute", unique_until="time", unique_for="1 minute") != first

    assert len(all_jobs(app)) == 3
    app.enqueue([Job(task="shop:confirm", id=id)])
    assert len(all_jobs(app)) == 3


def test_argument_fields_that_a_task_has_indexed_are_indexed_from_sql_too(app, db, confirm):
    confirm.enqueue(1)
    enqueue(db, args={"order": 2}, queue="mail")

    def orders(**wanted: Any) -> list[str]:
        return [job.id for job in app.broker.find(Filter(args=wanted)).jobs]

    assert len(orders(order=("2",))) == 1
    assert db.execute("select search from penstock.lane").fetchall() == [("order",)]
    enqueue(db, args={"customer": "ada"}, queue="mail")
    assert db.execute("select search from penstock.lane").fetchall() == [("",)]
    assert len(orders(customer=("ada",))) == 1


BAD = {
    "task 'a b'": {"task": "a b"},
    "task null": {"task": None},
    "queue ''": {"queue": ""},
    "task 'aaaa": {"task": "a" * 201},
    "priority 101": {"priority": 101},
    "version 0": {"version": 0},
    "delay -00:00:01": {"delay": "-1 second"},
    "delay 2000 years": {"delay": "2000 years"},
    "delay and at": {"delay": "1 s", "at": "2030-01-01T00:00:00Z"},
    "at infinity": {"at": "infinity"},
    "timeout 00:00:00": {"timeout": "0 s"},
    "key ''": {"key": ""},
    "unique_key 'kkk": {"unique_key": "k" * 501},
    "unique_for and unique_until": {"unique_for": "1 minute"},
    "unique_until 'never'": {"unique_key": "k", "unique_until": "never"},
    "unique_until 'time' needs unique_for": {"unique_key": "k", "unique_until": "time"},
    "tag 'a b'": {"tags": {"a b": "c"}},
    "tag a ''": {"tags": {"a": ""}},
    "tags: 'a' is 1": {"tags": {"a": 1}},
    "tags [1]": {"tags": [1]},
    "headers: 'a' is null": {"headers": {"a": None}},
    "args [1]": {"args": [1]},
    "argument n: an integer": {"args": {"n": 2**64}},
    "argument n.deep[1].m: an integer": {"args": {"n": {"deep": [0, {"m": -(2**70)}]}}},
    "the arguments take 300": {"args": {"text": "x" * 300_000}},
    "the arguments take 400": {"args": {"text": "x" * 400_000, "n": 2**64}},
    "secret: null": {"secret": ["customer", None]},
    "tag in runs_on 'a b'": {"runs_on": ["a b"]},
    "ahead of the store's clock": {"id": str(uuid.UUID(int=2**127 - 1))},
    "days ago": {"id": "01000000-0000-7000-8000-000000000000"},
}


@pytest.mark.parametrize("name", PATHS)
def test_a_task_that_is_named_like_a_file_is_refused(app, db, name):
    with pytest.raises(errors.InvalidParameterValue, match="is a path"):
        enqueue(db, task=name)

    assert all_jobs(app) == []


@pytest.mark.parametrize("name", ODD_PATHS)
def test_a_task_that_is_spelt_so_that_it_looks_like_a_file_is_refused(app, db, name):
    with pytest.raises(errors.InvalidParameterValue, match="letters, digits"):
        enqueue(db, task=name)

    assert all_jobs(app) == []


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    name=st.lists(st.sampled_from(["/", ".", ":", "py", "PY", "x", "..", ".py"]), min_size=1).map(
        "".join
    )
)
def test_sql_and_python_take_the_same_names_for_paths(db, name):
    refusal = pytest.raises(errors.InvalidParameterValue, match="is a path")

    with refusal if is_path(name) else nullcontext():
        db.execute("select penstock.check_task(%s)", (name,))


@pytest.mark.parametrize("name", NO_PATHS)
def test_a_name_with_a_slash_or_a_suffix_elsewhere_is_stored(app, db, name):
    enqueue(db, task=name)

    assert [job.task for job in all_jobs(app)] == [name]


@pytest.mark.parametrize("said", BAD)
def test_what_python_refuses_is_refused_with_the_value_in_the_sentence(app, db, said):
    with pytest.raises(errors.InvalidParameterValue, match=said.replace("[", r"\[")):
        enqueue(db, **{"task": "a", **BAD[said]})

    assert all_jobs(app) == []


def test_what_is_too_deep_is_refused(db):
    deep: Any = 1
    for _ in range(70):
        deep = [deep]

    with pytest.raises(errors.InvalidParameterValue, match="64 levels"):
        enqueue(db, args={"n": deep})


def test_a_plain_role_with_the_right_to_execute_can_enqueue_and_nothing_else(app, db):
    db.execute("drop role if exists webshop")
    db.execute("create role webshop")
    try:
        db.execute("grant usage on schema penstock to webshop")
        db.execute("set role webshop")
        with pytest.raises(errors.InsufficientPrivilege):
            enqueue(db)
        db.execute("reset role")
        db.execute("grant execute on function penstock.enqueue to webshop")
        db.execute("set role webshop")
        enqueue(db, tags={"tenant": "a"})
        enqueue(db)
        with pytest.raises(errors.InsufficientPrivilege):
            db.execute("delete from penstock.job")
    finally:
        db.execute("reset role")
        db.execute("drop owned by webshop")
        db.execute("drop role webshop")

    assert len(all_jobs(app)) == 2


def test_a_waiting_worker_hears_of_it(app, db, confirm):
    confirm.enqueue(0)
    app.broker.wait(None, 0.05)

    enqueue(db, args={"order": 1}, queue="mail")

    assert app.broker.wait(None, 10)


@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=60))
def test_sql_and_python_agree_on_the_bucket_of_a_text(db: psycopg.Connection[Any], text: str):
    [bucket] = db.execute("select penstock.bucket_for(%s)", [text]).fetchone() or ()

    assert bucket == bucket_for(text)


def test_a_job_made_in_sql_is_in_the_bucket_of_its_unique_key_or_key(db: psycopg.Connection[Any]):
    for key, unique in ((None, "once"), ("ada", "zürich"), ("ada", None)):
        made = uuid.UUID(enqueue(db, args={"order": 1}, key=key, unique_key=unique))

        assert bucket_of(str(made)) == bucket_by(unique, key)
        assert (made.version, made.variant) == (7, uuid.RFC_4122)

    made = {bucket_of(enqueue(db, args={"order": 1})) for _ in range(20)}
    assert len(made) > 10


def test_a_secret_that_is_searched_for_is_refused(app, db):
    """As `@app.task(search=..., secret=...)` is: an index would tell whether a guess was right."""

    @app.task(name="shop:invoice", queue="shop", search=("customer.id",))
    def invoice(order: int, customer: dict[str, str]) -> None: ...

    invoice.enqueue(1, {"id": "ada"})
    call = {
        "task": "shop:invoice",
        "queue": "shop",
        "args": {"order": 2, "customer": {"id": "eve"}},
    }

    with pytest.raises(errors.InvalidParameterValue, match=r"search customer\.id is of a secret"):
        enqueue(db, **call, secret=["customer"])

    enqueue(db, **call, secret=["order"])
    assert len(all_jobs(app)) == 2
