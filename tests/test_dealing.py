"""How tests are dealt out: what is named there exists, and no line of tests is much too long."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dealing import ALONE, TOGETHER, InGroups

HOUSE = Path(__file__).parents[1]
PLACES = [*ALONE, *(place for places in TOGETHER.values() for place in places)]


def group(test: str) -> str:
    return InGroups._split_scope(InGroups.__new__(InGroups), test)


@pytest.mark.parametrize("place", PLACES)
def test_what_is_named_is_there(place: str):
    path, _, name = place.partition("::")
    folder, _, start = path.rpartition("/")

    files = [HOUSE / path] if path.endswith(".py") else [*(HOUSE / folder).glob(f"{start}*")]

    assert files
    assert not name or f"\ndef {name}" in files[0].read_text(encoding="utf-8")


def test_tests_with_a_cluster_have_one_process_and_others_have_their_own():
    assert group("tests/spark/test_dynamic_allocation.py::test_executors") == "a cluster"
    assert group("tests/spark/test_sink_kills.py::test_killed[executor]") == "a cluster"
    assert group("tests/spark/test_source.py::test_a_wide_row") == "a Spark session that reads"
    assert group("tests/spark/test_sink.py::test_rows") == "a Spark session"
    for test in ("tests/spark/test_demo.py::test_the_demo_on_spark", "tests/test_retry.py::test_a"):
        assert group(test) == test
