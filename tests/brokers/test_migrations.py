"""Migrations of a file: the schema, whoever goes first, and a made-up step after it.

There was no release yet: schema.sql is the only step that there is.
"""

from __future__ import annotations

import sqlite3
import threading

import pytest

from penstock.brokers import migrate_store, migration_sql, store_condition
from penstock.brokers.sqlite import SqliteBroker
from penstock.brokers.sqlite.statements import migrations, sql
from penstock.brokers.tables.statements import migrations as steps_in
from penstock.errors import PenstockError, Refused, SchemaTooNew, StoreUnreachable
from penstock.testing.conformance.factories import a_job

NEXT = migrations()[-1][0] + 1
COLOUR = (NEXT, "alter table penstock_batch add column colour text;")


def shape_of(connection: sqlite3.Connection) -> dict[tuple[str, str], str]:
    """Every table and index, without comments and line breaks."""
    rows = connection.execute("select type, name, sql from sqlite_master where sql is not null")
    return {
        (kind, name): " ".join(
            line.partition("--")[0].strip() for line in text.splitlines() if line.strip()
        ).replace("  ", " ")
        for kind, name, text in rows
    }


def test_a_store_that_the_broker_made_has_the_schema(tmp_path):
    SqliteBroker(tmp_path / "jobs.db").close()
    made = sqlite3.connect(tmp_path / "jobs.db")
    written = sqlite3.connect(":memory:")
    written.executescript(sql.schema)

    assert shape_of(made) == shape_of(written)

    made.close()
    written.close()


def test_steps_are_read_in_the_order_of_their_numbers(tmp_path):
    for name in ("0010_c.sql", "0002_b.sql", "0001_a.sql", "notes.txt"):
        (tmp_path / name).write_text(f"-- {name}")

    assert steps_in(tmp_path) == [(1, "-- 0001_a.sql"), (2, "-- 0002_b.sql"), (10, "-- 0010_c.sql")]
    assert steps_in(tmp_path / "none") == []


def test_many_that_open_a_new_file_at_once_migrate_it_once(tmp_path):
    opened: list[SqliteBroker] = []
    errors: list[BaseException] = []
    at_once = threading.Barrier(8)

    def open_it() -> None:
        try:
            at_once.wait()
            opened.append(SqliteBroker(tmp_path / "jobs.db"))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    assert len({broker.store.store_id for broker in opened}) == 1
    for broker in opened:
        broker.close()


def test_a_newer_schema_is_refused_in_a_sentence_and_left_as_it_is(tmp_path, clock):
    path = tmp_path / "jobs.db"
    broker = SqliteBroker(path, clock=clock)
    broker.enqueue([a_job(clock)])
    broker.close()
    newest = migrations()[-1][0]
    raw = sqlite3.connect(path, isolation_level=None)
    raw.execute("update penstock_meta set value = ? where name = 'schema'", (str(newest + 1),))
    before = list(raw.iterdump())

    with pytest.raises(SchemaTooNew) as refusal:
        SqliteBroker(path, clock=clock)

    sentence = str(refusal.value)
    assert str(path) in sentence
    assert f"has schema {newest + 1}, this Penstock knows {newest}" in sentence
    assert "upgrade Penstock" in sentence
    assert list(raw.iterdump()) == before
    raw.close()


def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_bytes(b"this is a letter to my aunt, and no database at all. " * 40)

    with pytest.raises(PenstockError, match=r"notes\.txt cannot be used as a store"):
        SqliteBroker(path)

    assert path.read_bytes().startswith(b"this is a letter")


def test_a_store_in_the_apps_own_database_leaves_its_tables_alone(tmp_path):
    path = tmp_path / "shop.db"
    shop = sqlite3.connect(path)
    shop.execute("create table orders (id integer)")
    shop.execute("insert into orders values (7)")
    shop.commit()

    SqliteBroker(path).close()

    assert shop.execute("select id from orders").fetchall() == [(7,)]
    shop.close()


def test_an_sqlite_that_is_too_old_is_refused_in_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.34.1")

    with pytest.raises(PenstockError, match=r"comes with SQLite 3\.34\.1, and stores need 3\.37"):
        SqliteBroker(tmp_path / "jobs.db")

    assert not (tmp_path / "jobs.db").exists()


def test_a_store_of_the_step_before_is_brought_forward_with_what_it_holds(tmp_path, clock):
    path = tmp_path / "jobs.db"
    broker = SqliteBroker(path, clock=clock)
    broker.enqueue([job := a_job(clock)])

    stands = broker.store.migrate([*migrations(), COLOUR])

    assert stands == NEXT
    assert broker.store.migrate([*migrations(), COLOUR]) == NEXT  # once, however often
    assert broker.get(job.id) is not None
    broker.close()
    raw = sqlite3.connect(path)
    written = sqlite3.connect(":memory:")
    written.executescript(sql.schema + COLOUR[1])
    assert shape_of(raw) == shape_of(written)
    raw.close()
    written.close()


def test_a_step_that_fails_leaves_the_store_as_it_was(tmp_path, clock):
    path = tmp_path / "jobs.db"
    broker = SqliteBroker(path, clock=clock)
    raw = sqlite3.connect(path)
    before = list(raw.iterdump())
    broken = (NEXT + 1, "alter table penstock_no_such add column colour text;")

    with pytest.raises(StoreUnreachable, match="penstock_no_such"):
        broker.store.migrate([*migrations(), COLOUR, broken])

    assert list(raw.iterdump()) == before
    raw.close()
    broker.close()


@pytest.fixture
def unreleased(tmp_path):
    """What a development version left: numbered higher than anything that there is now."""
    path = tmp_path / "jobs.db"
    raw = sqlite3.connect(path)
    raw.executescript(
        "create table penstock_meta (name text primary key, value text not null);"
        "insert into penstock_meta values ('schema', '11'), ('store', 'x');"
        "create table penstock_job (id blob primary key);"
    )
    raw.close()
    return path


@pytest.mark.parametrize(
    "attempt",
    [
        SqliteBroker,
        lambda path: migrate_store(f"sqlite:///{path}"),
        lambda path: migration_sql(f"sqlite:///{path}"),
    ],
    ids=["open", "migrate", "sql"],
)
def test_a_store_of_a_development_version_is_refused_with_the_way_out(unreleased, attempt):
    raw = sqlite3.connect(unreleased)
    before = list(raw.iterdump())

    with pytest.raises(Refused) as refusal:
        attempt(unreleased)

    sentence = str(refusal.value)
    assert f"the store {unreleased} was made by a development version" in sentence
    assert "(schema 11)" in sentence
    assert "move the file away" in sentence
    assert "drop its tables that begin with penstock_" in sentence
    assert list(raw.iterdump()) == before
    raw.close()


def test_the_doctor_names_a_store_of_a_development_version(unreleased):
    found = store_condition(f"sqlite:///{unreleased}")

    assert found.unseen is not None
    assert "made by a development version of Penstock (schema 11)" in found.unseen.says


def test_after_its_tables_were_dropped_a_new_store_is_made_in_their_place(unreleased, clock):
    raw = sqlite3.connect(unreleased)
    raw.executescript("drop table penstock_meta; drop table penstock_job;")
    raw.close()

    broker = SqliteBroker(unreleased, clock=clock)
    broker.enqueue([a_job(clock)])

    assert sum(count.ready for count in broker.count()) == 1
    broker.close()
