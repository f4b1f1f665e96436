"""How tests are dealt out to test processes: one by one, but for those that share something.

What takes seconds to make, such as a Spark session, is made in one process, and the tests that use
it follow each other there. The others go to whichever process is free.
"""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

# Where the tests that share something are: their files, or their names as far as needed. The
# first that fits counts.
TOGETHER = {
    "a cluster": (
        "tests/spark/test_fleet.py::test_killing",
        "tests/spark/test_sink_kills.py",
        "tests/spark/test_skew.py::test_another_penstock",
    ),
    # Two sessions: with one alone, its tests would be what all others have to wait for.
    "a Spark session for pipelines": ("tests/spark/pipelines/",),
    "a Spark session": ("tests/spark/",),
    "Django": ("tests/integrations/test_django.py",),
    "a crowded PostgreSQL": ("tests/brokers/postgres/test_plans.py",),
    "a crowded SQLite": ("tests/brokers/sqlite/test_plans.py",),
    "what tests say": ("tests/test_rows.py",),
}
# These start Spark in a process of their own, or not at all.
ALONE = (
    "tests/spark/pipelines/test_marks.py",
    "tests/spark/test_application.py",
    "tests/spark/test_canary.py",
    "tests/spark/test_detached.py",
    "tests/spark/test_examples.py::test_a_program",
    "tests/spark/test_examples.py::test_an_etl",
    "tests/spark/test_fleet.py::test_ctrl_c",
    "tests/spark/test_interrupted.py",
    "tests/spark/test_sink_by_hand.py",
)


class InGroups(LoadScopeScheduling):
    """The groups first, the largest at the very first; then the others, as they were collected."""

    def _split_scope(self, nodeid: str) -> str:
        if not nodeid.startswith(ALONE):
            for shared, places in TOGETHER.items():
                if nodeid.startswith(places):
                    return shared
        return nodeid
