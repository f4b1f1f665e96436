"""Migrations: the numbered steps lead to schema.sql, whoever goes first, from any earlier step."""

from __future__ import annotations

import sqlite3
import threading

import pytest

from penstock.broker.lake_mark import Mark
from penstock.brokers.sqlite import SqliteBroker
from penstock.brokers.sqlite.statements import migrations, sql
from penstock.errors import PenstockError, SchemaTooNew
from tests.factories import a_job


def shape_of(connection: sqlite3.Connection) -> dict[tuple[str, str], str]:
    """Every table and index, without comments and line breaks."""
    rows = connection.execute("select type, name, sql from sqlite_master where sql is not null")
    return {
        (kind, name): " ".join(
            line.partition("--")[0].strip() for line in text.splitlines() if line.strip()
        ).replace("  ", " ")
        for kind, name, text in rows
    }


def test_migrations_lead_to_the_schema(tmp_path):
    migrated = sqlite3.connect(tmp_path / "migrated.db")
    for _, script in migrations():
        migrated.executescript(script)
    written = sqlite3.connect(tmp_path / "written.db")
    written.executescript(sql.schema)

    assert shape_of(migrated) == shape_of(written)
    assert ("table", "penstock_job") in shape_of(migrated)

    migrated.close()
    written.close()


def test_a_store_that_the_broker_made_has_the_schema(tmp_path):
    SqliteBroker(tmp_path / "jobs.db").close()
    made = sqlite3.connect(tmp_path / "jobs.db")
    written = sqlite3.connect(":memory:")
    written.executescript(sql.schema)

    assert shape_of(made) == shape_of(written)

    made.close()
    written.close()


def test_migrations_are_numbered_in_order():
    numbers = [number for number, _ in migrations()]

    assert numbers == sorted(set(numbers))


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


@pytest.mark.parametrize("steps", range(1, len(migrations())))
def test_a_store_of_any_earlier_step_is_brought_forward(tmp_path, clock, steps):
    """With what it holds: a job from before is run, and lakes hold its history as any other."""
    path = tmp_path / "jobs.db"
    older = sqlite3.connect(path)
    for number, script in migrations()[:steps]:
        older.executescript(script)
        older.execute(
            "insert or replace into penstock_meta values ('schema', ?), ('store', 'x')",
            (str(number),),
        )
    older.execute(
        "insert into penstock_history (kind, at) values ('event', ?)", (clock.now() - 86400,)
    )
    older.commit()
    older.close()

    broker = SqliteBroker(path, clock=clock)
    broker.enqueue([a_job(clock)])
    broker.set_mark(Mark(lake="a"))
    broker.prune(clock.now())

    assert [row.kind for row in broker.history()] == ["event", "lake"]
    assert sum(count.ready for count in broker.count()) == 1
    broker.close()
    made, written = sqlite3.connect(path), sqlite3.connect(":memory:")
    written.executescript(sql.schema)
    assert shape_of(made) == shape_of(written)
    made.close()
    written.close()
