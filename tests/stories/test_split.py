"""One SQLite file becomes four and one again while jobs run; workers and the mover are killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.store_choice import use_store
from penstock.enqueue.ids import BUCKETS
from penstock.tools.demo.shards import tasks
from penstock.tools.demo.shards.split import Split

HALF, QUARTER = BUCKETS // 2, BUCKETS // 4
# Where buckets go, one after the other.
MOVES = (
    ("b", range(HALF, BUCKETS)),
    ("c", range(QUARTER, HALF)),
    ("d", range(HALF + QUARTER, BUCKETS)),
    ("a", range(HALF + QUARTER, BUCKETS)),
    ("a", range(HALF, HALF + QUARTER)),
    ("a", range(QUARTER, HALF)),
)


# On a busy machine the 20 kills, each with a command that starts, take longer than other tests may.
SOAK = (pytest.mark.soak, pytest.mark.timeout(3600))


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=SOAK)])
def test_nothing_is_lost_while_a_store_is_split_and_merged_under_load(tmp_path: Path, kills: int):
    """V41: accepted = ended once, limits and unique keys hold, ordered keys are in order."""
    split = Split(tmp_path, "a", seed=kills)
    with use_store(split.url, None):
        try:
            split.start()
            for number, (to, buckets) in enumerate(MOVES):
                if to not in split.shards():
                    split.name(to)
                split.move(buckets, to, kills=len(range(number, kills, len(MOVES))), busy=1.0)
            states = split.states()
            verdict = split.calm()
        finally:
            split.end()
            tasks.app.close()

    assert verdict.history.contradictions == []
    assert verdict.out_of_order == []
    assert verdict.killed >= kills
    assert verdict.accepted > 0
    assert {state.name: state.number for state in states} == {"a": BUCKETS, "b": 0, "c": 0, "d": 0}
    assert all(state.on_their_way == 0 for state in states)
