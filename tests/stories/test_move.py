"""From SQLite to PostgreSQL while jobs run; the mover is killed again and again on its way."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.broker.shard_map import Departure
from tests.stories.conftest import Load, Story, eventually

MOVE = ("shards", "move", "--buckets", "all", "--to", "new", "--busy", "1", "--wait", "60")


@pytest.fixture
def story(tmp_path: Path, own_store_url: str) -> Iterator[Story]:
    file = tmp_path / "shards.toml"
    file.write_text('[shards]\nold = "sqlite:///old.db"\n')
    story = Story(tmp_path, f"shards:///{file}")
    story.next_url = own_store_url  # pyright: ignore[reportAttributeAccessIssue]
    yield story
    story.close()


def mover(story: Story) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "penstock", *MOVE],
        env=story.environment(),
        cwd=story.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_sqlite_becomes_postgresql_with_a_producer_and_a_worker_running(story):
    """V41: neither is told, nothing is lost, nothing runs twice; three movers are killed."""
    nap = story.task("nap")
    long = nap.enqueue(7, seconds=8.0)
    later = nap.options(delay=3600).enqueue(9)
    story.start(threads=2)
    eventually(lambda: story.ledger("nap"))
    load = Load(story, pause=0.3, size=3)
    file = story.folder / "shards.toml"
    file.write_text(file.read_text() + f'new = "{story.next_url}"\n')

    for _ in range(3):
        killed = mover(story)
        assert killed.stdout is not None
        for line in killed.stdout:
            if "buckets are on new" in line:
                break
        killed.kill()
        killed.wait()
        killed.stdout.close()
    last = mover(story)
    said, _ = last.communicate(timeout=300)
    assert last.returncode == 0, said
    accepted = load.stop()

    eventually(lambda: len(story.successes()) == len(accepted) + 1, timeout=120)
    assert story.successes() == dict.fromkeys([long.id, *accepted], 1)
    assert load.refused == load.unknown == 0
    assert long.result(timeout=60) == 7
    assert story.broker.shards.newest.names == ["new"]
    assert story.broker.shards.named["new"].call(lambda store: store.get(later.id)) is not None
    for shard in story.broker.shards.all:
        assert shard.call(lambda store: store.records(Departure)) == []
    assert story.broker.moves.finish() == 0
    assert all("rror" not in fleet.output() for fleet in story.fleets)
