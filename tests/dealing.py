"""How tests are dealt out to test processes: one by one, but for those that share something.

What takes seconds to make, such as a Spark session, is made in one process, and the tests that use
it follow each other there. The others go to whichever process is free.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

# Where the tests that share something are: their files, or their names as far as needed. The
# first that fits counts.
TOGETHER = {
    "a cluster": (
        "tests/spark/test_dynamic_allocation.py",
        "tests/spark/test_fleet.py::test_killing",
        "tests/spark/test_package.py",
        "tests/spark/test_sink_kills.py",
        "tests/spark/test_skew.py::test_another_penstock",
    ),
    "a Connect server": ("tests/spark/test_connect.py",),
    # Two sessions: with one alone, its tests would be what all others have to wait for.
    "a Spark session that reads": ("tests/spark/pipelines/", "tests/spark/test_source"),
    "a Spark session": ("tests/spark/",),
    "Django": ("tests/integrations/test_django.py",),
    "a crowded PostgreSQL": ("tests/brokers/postgres/test_plans.py",),
    "a crowded SQLite": ("tests/brokers/sqlite/test_plans.py",),
    "what tests say": ("tests/docs/test_requirements.py",),
}
# These start Spark in a process of their own, or not at all.
ALONE = (
    "tests/spark/pipelines/test_marks.py",
    "tests/spark/test_application.py",
    "tests/spark/test_canary.py",
    "tests/spark/test_demo.py::test_ctrl_c",
    "tests/spark/test_demo.py::test_the_demo",
    "tests/spark/test_detached.py",
    "tests/spark/test_examples.py::test_a_program",
    "tests/spark/test_examples.py::test_an_etl",
    "tests/spark/test_fleet.py::test_ctrl_c",
    "tests/spark/test_interrupted.py",
    "tests/spark/test_one_sentence.py",
    "tests/spark/test_sink_by_hand.py",
)


class Collected(list[str]):
    """The tests of a process, each found without a look at those before it."""

    def __init__(self, tests: Sequence[str]) -> None:
        super().__init__(tests)
        self._places = {test: place for place, test in enumerate(tests)}

    def index(self, test: str, /, *_: object) -> int:
        return self._places[test]


class InGroups(LoadScopeScheduling):
    """The groups first, the largest at the very first; then the others, as they were collected.

    What is done for each test takes the same time for the last of 14,000 as for the first.
    """

    def add_node_collection(self, node: WorkerController, collection: Sequence[str]) -> None:
        super().add_node_collection(node, collection)
        if node in self.registered_collections:
            self.registered_collections[node] = Collected(collection)

    def _assign_work_unit(self, node: WorkerController) -> None:
        # What is done is forgotten: how much a process still has to do is counted for each test.
        self.assigned_work[node] = {
            shared: tests
            for shared, tests in self.assigned_work.get(node, {}).items()
            if not all(tests.values())
        }
        super()._assign_work_unit(node)

    def _split_scope(self, nodeid: str) -> str:
        if not nodeid.startswith(ALONE):
            for shared, places in TOGETHER.items():
                if nodeid.startswith(places):
                    return shared
        return nodeid
