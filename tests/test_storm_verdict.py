"""The verdict of a storm: it holds only if everything was seen, and nothing was wrong."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from penstock.testing.checker import Contradiction, Verdict
from penstock.tools.demo.storm.storm import WANTED, StormVerdict

GOOD = StormVerdict(
    seed=1,
    seconds=60.0,
    faults={"child killed": 3},
    accepted=10,
    history=Verdict([], Counter(dict.fromkeys(WANTED, 1)), Counter()),
    transfers=4,
    effects=(4, 4),
    gone=[],
    deaf=[],
    leftovers=[],
)


def test_a_storm_without_a_fault_in_its_history_holds():
    assert GOOD.holds
    assert GOOD.sentences() == []


@pytest.mark.parametrize("what", WANTED)
def test_a_storm_in_which_something_never_happened_does_not_count(what: str):
    GOOD.history.seen[what] = 0
    try:
        assert not GOOD.holds
        assert GOOD.sentences() == [f"it does not count: there were no {what}"]
    finally:
        GOOD.history.seen[what] = 1


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"effects": (5, 4)}, "4 jobs committed a row each: 5 rows of 4 jobs"),
        ({"effects": (3, 3)}, "4 jobs committed a row each: 3 rows of 3 jobs"),
        ({"gone": ["worker-1"]}, "worker-1 ended by itself; see its log"),
        ({"deaf": ["host-1-a"]}, "worker host-1-a is alive and claims nothing"),
        ({"leftovers": [7, 9]}, "these processes were left: [7, 9]"),
    ],
)
def test_whatever_is_wrong_is_named(change: dict[str, Any], sentence: str):
    verdict = msgspec.structs.replace(GOOD, **change)

    assert not verdict.holds
    assert verdict.sentences() == [sentence]


def test_a_contradiction_in_the_history_is_named():
    found = Contradiction("ended once", "a-job", "it ended twice")
    history = Verdict([found], GOOD.history.seen, Counter())
    verdict = msgspec.structs.replace(GOOD, history=history)

    assert not verdict.holds
    assert verdict.sentences() == ["ended once: a-job: it ended twice"]
