"""Real Spark: one session per test process, and a real cluster for those who ask for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import penstock.spark
from tests.spark.cluster import Cluster
from tests.spark.frames import write
from tests.spark.shared_session import SharedSession, ran_out_of_time

Write = Callable[..., None]
_SHARED = pytest.StashKey[SharedSession]()
# These use verbs whose every store is in the suite of brokers: the one that `make test` takes is
# the one where more can go wrong, or else the quicker one.
ONE_STORE = {
    "test_apply.py": "sqlite",
    "test_export.py": "postgres",
    "test_sink.py": "postgres",
    "test_sink_stream.py": "postgres",
    "test_source.py": "postgres",
    "test_source_options.py": "postgres",
    "test_source_stream.py": "postgres",
}
# That Spark writes to each store and reads from it: all that is in a row, and in a table.
EACH_STORE = (
    "test_each_row_is_one_job_with_the_columns_as_arguments",
    "test_columns_say_what_each_job_is_beside_its_arguments",
    "test_every_column_of_every_table_is_as_the_store_says",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`make test-stores` runs the others, too; a test that has one store alone is left alone."""
    stores: dict[tuple[Any, ...], dict[str, pytest.Item]] = defaultdict(dict)
    for item in items:
        if item.path.name not in ONE_STORE or not isinstance(item, pytest.Function):
            continue
        given = dict(item.callspec.params) if hasattr(item, "callspec") else {}
        store = given.pop("store_url", None)
        if store is not None and item.originalname not in EACH_STORE:
            stores[item.path, item.originalname, repr(given)][store] = item
    for (path, *_), same in stores.items():
        kept = same.pop(ONE_STORE[path.name], None)
        if kept is not None and kept.get_closest_marker("soak") is None:
            for item in same.values():
                item.add_marker("soak")
                item.add_marker("every_store")


@pytest.fixture(scope="session", autouse=True)
def _quick(quick_java: None) -> None:
    """All of these start Spark, or a command that does."""


@pytest.fixture(scope="session")
def event_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the shared session writes its event log, once a test asks for it."""
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="session")
def shared_session(
    event_log: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[SharedSession]:
    settings = {
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    no_store = f"sqlite:///{tmp_path_factory.mktemp('no-store')}/none.db"

    def start(more: dict[str, Any]) -> Any:
        return penstock.spark.session(
            "local[2,4]",  # a task may fail three times, as on a cluster
            app_name="penstock-tests",
            url=no_store,
            config={**settings, **more},
        )

    log_settings = {"spark.eventLog.enabled": True, "spark.eventLog.dir": event_log.as_uri()}
    shared = SharedSession(start, log_settings)
    request.config.stash[_SHARED] = shared
    yield shared
    shared.end()


@pytest.fixture
def shared_spark(shared_session: SharedSession, request: pytest.FixtureRequest) -> Any:
    """The session of this test process: it takes seconds to start, and most tests can share it."""
    return shared_session.get(with_event_log="event_log" in request.fixturenames)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    shared = item.config.stash.get(_SHARED, None)
    if shared is not None and call.excinfo is not None and ran_out_of_time(call.excinfo.value):
        shared.throw_away()
    return report


@pytest.fixture(scope="session")
def sqlite_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the SQLite store of each test is, one after the other.

    The name of the store is in the environment of Spark's Python workers, and for another
    environment Spark starts them anew: seven seconds of CPU time for a write and a read.
    """
    return tmp_path_factory.mktemp("store") / "jobs.db"


@pytest.fixture
def sqlite_url(sqlite_file: Path) -> str:
    """No store yet: the file is made by whoever opens it first."""
    for path in sqlite_file.parent.glob(f"{sqlite_file.name}*"):
        path.unlink()
    return f"sqlite:///{sqlite_file}"


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest) -> str:
    """A store on each kind that other processes can reach, in turn."""
    names = {"sqlite": "sqlite_url", "postgres": "postgres_store_url"}
    return request.getfixturevalue(names[request.param])


@pytest.fixture
def spark(shared_spark: Any, store_url: str) -> Any:
    """The shared session, attached to the test's store."""
    return penstock.spark.attach(shared_spark, url=store_url)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A standalone cluster on this machine: two workers, with room for two applications."""
    with Cluster(tmp_path_factory.mktemp("cluster"), cores=2) as cluster:
        yield cluster


@pytest.fixture
def into(shared_spark: Any, store_url: str) -> Write:
    """Write a frame into the test's store, of the shared session as it is.

    Python workers are started anew for a session that is attached to another store; this way they
    are not.
    """
    del shared_spark
    return partial(write, url=store_url)


# What Spark's side does by itself is the same on every store: on all of them when there is time.
whatever_the_store = pytest.mark.parametrize(
    "store_url",
    ["sqlite", pytest.param("postgres", marks=[pytest.mark.soak, pytest.mark.every_store])],
    indirect=True,
)
