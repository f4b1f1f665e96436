"""What is checked after each story: every store that its fixtures lead to, if there is one."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from penstock import App
from tests.checked_stores import verdicts
from tests.workers import drain

TWICE = (
    "insert into penstock_history (kind, at, job, lane, attempt, state, worker, started_at)"
    " select kind, at + 9, job, lane, attempt + 1, state, worker, at + 1"
    " from penstock_history where kind = 'attempt'"
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A store in which one job ended, and then ended again."""
    file = tmp_path / "below" / "jobs.db"
    file.parent.mkdir()
    with closing(App(f"sqlite:///{file}")) as app:

        @app.task(name="nap")
        def nap() -> None: ...

        nap.enqueue()
        drain(app)
    with closing(sqlite3.connect(file)) as store:
        store.execute(TWICE)
        store.commit()
    return file


def test_a_file_in_the_folder_a_url_an_app_and_a_broker_are_checked(file: Path, tmp_path: Path):
    url = f"sqlite:///{file}"
    with closing(App(url)) as app:
        fixtures = {"folder": tmp_path, "url": url, "app": app, "broker": app.broker}
        for name, value in fixtures.items():
            [(_, verdict)] = verdicts({"number": 7, name: value})

            assert [found.invariant for found in verdict.contradictions] == ["ended once"], name


def test_what_is_no_store_is_left_alone(tmp_path: Path):
    (tmp_path / "notes.db").write_text("no database")
    with closing(sqlite3.connect(tmp_path / "other.db")) as other:
        other.execute("create table t (n)")

    assert list(verdicts({"folder": tmp_path, "url": f"sqlite:///{tmp_path}/none.db"})) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.db", "other.db"]
