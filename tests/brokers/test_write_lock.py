"""The doctor names a transaction that keeps a SQLite file from being written."""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import closing

import pytest

from penstock.brokers import open_broker
from penstock.brokers.sqlite.write_lock import held_by_another
from penstock.operate.doctor import Colour, examine


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "shop.db"
    open_broker(f"sqlite:///{file}", create=True).close()
    return file


def test_a_transaction_that_does_not_end_is_named_with_its_process(file):
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("begin immediate")
        findings = {each.name: each for each in examine(f"sqlite:///{file}")}

    assert findings["write lock"].colour is Colour.RED
    assert "has held the write lock for 2 s or longer" in findings["write lock"].says
    if os.path.exists("/proc/locks"):  # noqa: PTH110  a file of the kernel
        assert f"of process {os.getpid()} (" in findings["write lock"].says
    assert "do slow work before a transaction writes" in findings["write lock"].remedy


def test_a_file_that_others_write_is_not_blamed(file):
    over, holds = threading.Event(), threading.Event()

    def write() -> None:
        with closing(sqlite3.connect(file, isolation_level=None, timeout=30)) as other:
            other.execute("create table theirs (n)")
            while not over.is_set():
                other.execute("begin immediate")
                other.execute("insert into theirs values (1)")
                holds.set()
                over.wait(0.1)  # so that the lock is free for a moment only, between two commits
                other.execute("commit")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert holds.wait(60)
        assert held_by_another(file, seconds=0.5) == []
    finally:
        over.set()
        writer.join()
    assert held_by_another(file) == []
    assert "write lock" not in {each.name for each in examine(f"sqlite:///{file}")}
