"""Who may read a store: what jobs carry is the owner's affair, and that of the file's group."""

from __future__ import annotations

import os
import stat
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from penstock.brokers.sqlite import SqliteBroker
from penstock.testing.conformance.factories import some_jobs


@contextmanager
def umask(mask: int) -> Generator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.glob("jobs.db*")}


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o640), (0o002, 0o660), (0o077, 0o600)])
def test_a_new_store_is_closed_to_all_but_its_owner_and_group(tmp_path, clock, mask, mode):
    with umask(mask), closing(SqliteBroker(tmp_path / "jobs.db", clock)) as broker:
        broker.enqueue(some_jobs(clock, 1))

        found = modes(tmp_path)

    assert {"jobs.db", "jobs.db-wal", "jobs.db-shm", "jobs.db-rules"} <= found.keys()
    assert set(found.values()) == {mode}


def test_a_store_that_is_there_keeps_its_mode_and_its_rules_follow(tmp_path, clock):
    SqliteBroker(tmp_path / "jobs.db", clock).close()
    (tmp_path / "jobs.db").chmod(0o664)

    SqliteBroker(tmp_path / "jobs.db", clock).close()

    assert modes(tmp_path)["jobs.db"] == modes(tmp_path)["jobs.db-rules"] == 0o664
