"""What every test may ask for. Asking for `broker` makes a test part of what a broker is."""

from __future__ import annotations

import gc
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from penstock import App
from penstock.broker.protocol import Broker
from penstock.broker.traits import ONE_PLACE
from penstock.brokers import open_broker
from penstock.brokers.memory import MemoryBroker
from penstock.testing.clock import Clock
from penstock.testing.postgres import Server, drop_database
from tests import in_memory, leftovers, quick
from tests.dealing import InGroups
from tests.postgres_store import (
    CopiedServer,
    PostgresStore,
    copy_data,
    copy_database,
    sessions_kept_open,
)
from tests.quick_java import in_common

if TYPE_CHECKING:
    from penstock.testing.conformance.models.agreeing import FreshBroker

# The suite that defines a broker is shipped; the fixtures below bind our stores to it.
pytest_plugins = ["penstock.testing.conformance.plugin"]

# What each of our stores declares, and whether it can be opened again.
CAPABILITIES = {
    "memory": frozenset[str](ONE_PLACE),
    "sqlite": ONE_PLACE | {"joins", "begins", "reopens"},
    "postgres": ONE_PLACE | {"joins", "joins later", "begins", "roles", "reopens"},
}

# Where the tests are that take longest: seconds each, and most of them waiting for processes.
LONG = ("spark", "test_benchmarks.py", "stories", "docs", "trust", "examples", "cli", "testing")


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A script that has these run in its background makes them deaf to Ctrl-C, and all that they
    # start with them.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    for plugin in (in_memory, leftovers, quick):
        config.pluginmanager.register(plugin)
    gc.disable()  # collecting 12,000 tests makes a million objects, and no garbage


def pytest_collection_finish() -> None:
    """The tests that were collected stay until the end: no collection of garbage looks at them."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)  # a run in one process may leave the plugin out
def pytest_xdist_auto_num_workers() -> int:
    """Three for each core: a test that waits for a lease or for a process leaves its core idle."""
    here = getattr(os, "sched_getaffinity", None)  # not on macOS
    return 3 * (len(here(0)) if here else os.cpu_count() or 1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> InGroups:
    return InGroups(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Shuffled as they are, but the long ones first: none of them is alone at the end."""
    items.sort(key=lambda item: _place(item.path))


@cache  # many tests are in one file
def _place(path: Path) -> int:
    here = Path(__file__).parent / "tests"
    folder = path.relative_to(here).parts[0] if path.is_relative_to(here) else ""
    return LONG.index(folder) if folder in LONG else len(LONG)


@pytest.fixture(scope="session")
def quick_java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Whoever starts Spark, here or in a process of a test's own, has a Java that begins soon."""
    with in_common(tmp_path_factory.getbasetemp() / "java"):
        yield


@pytest.fixture
def memory_broker(clock: Clock) -> Iterator[MemoryBroker]:
    broker = MemoryBroker(clock)
    yield broker
    broker.close()


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that nobody uses: a copy of it takes 3 ms of CPU time to open, a new one 9 ms."""
    from penstock.brokers.sqlite import SqliteBroker

    template = tmp_path_factory.mktemp("template") / "jobs.db"
    SqliteBroker(template).close()
    return template


@pytest.fixture
def sqlite_broker(clock: Clock, tmp_path: Path, sqlite_template: Path) -> Iterator[Broker]:
    from penstock.brokers.sqlite import SqliteBroker

    shutil.copyfile(sqlite_template, tmp_path / "jobs.db")
    broker = SqliteBroker(tmp_path / "jobs.db", clock=clock)
    yield broker
    broker.close()


@pytest.fixture(scope="session")
def postgres_server_url() -> Iterator[str]:
    """A PostgreSQL server on which databases can be made.

    Each test process has its own: a transaction that is open anywhere on a server, in whatever
    database, holds back what history may show.
    """
    if url := os.environ.get("PENSTOCK_TEST_POSTGRES_URL"):
        yield url
        return
    # No test of these needs its data after a power failure.
    with Server({"fsync": "off", "full_page_writes": "off", "max_connections": 300}) as server:
        yield server.url()


@pytest.fixture
def postgres_url(postgres_server_url: str) -> Iterator[str]:
    """A fresh, empty database of the test's own."""
    url = copy_database(postgres_server_url)
    yield url
    drop_database(postgres_server_url, url)


@pytest.fixture(scope="session")
def postgres_template(postgres_server_url: str) -> Iterator[str]:
    """The name of a database with a store in it that nobody uses, to be copied."""
    from penstock.brokers.postgres import PostgresBroker

    url = copy_database(postgres_server_url)
    PostgresBroker(url).close()
    yield urlsplit(url).path.removeprefix("/")
    drop_database(postgres_server_url, url)


@pytest.fixture
def own_store_url(postgres_server_url: str, postgres_template: str) -> Iterator[str]:
    """A database of the test's own with an empty store in it."""
    url = copy_database(postgres_server_url, postgres_template)
    yield url
    drop_database(postgres_server_url, url)


@pytest.fixture(scope="session")
def pristine_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of a server that nobody has used, to be copied."""
    data = tmp_path_factory.mktemp("pristine") / "data"
    with Server() as server:
        server.stop()
        copy_data(server.data, data)
    return data


@pytest.fixture
def own_postgres(pristine_data: Path) -> Iterator[Server]:
    """A server of the test's own, to be stopped, killed and frozen; as durable as by default."""
    with CopiedServer(pristine_data) as server:
        yield server


@pytest.fixture(scope="session")
def migrated_postgres(postgres_server_url: str) -> Iterator[PostgresStore]:
    from penstock.brokers.postgres import PostgresBroker

    url = copy_database(postgres_server_url)
    PostgresBroker(url).close()
    store = PostgresStore(url)
    with sessions_kept_open(url):
        yield store
    store.close()
    drop_database(postgres_server_url, url)


@pytest.fixture
def postgres_store_url(migrated_postgres: PostgresStore) -> str:
    """A store with the schema and nothing in it, quicker to have than a fresh database."""
    migrated_postgres.empty()
    return migrated_postgres.url


@pytest.fixture
def postgres_broker(clock: Clock, postgres_store_url: str) -> Iterator[Broker]:
    from penstock.brokers.postgres import PostgresBroker

    broker = PostgresBroker(postgres_store_url, clock=clock)
    # A worker tries again where these do not, and a machine that they crowd stands still at times.
    broker.store.work_seconds = 60.0
    yield broker
    broker.close()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def broker(request: pytest.FixtureRequest) -> Broker:
    """Each broker in turn, on the test's clock."""
    return request.getfixturevalue(f"{request.param}_broker")


def pytest_penstock_capabilities(item: pytest.Item) -> frozenset[str]:
    """Of the store that a test of the suite runs on."""
    assert isinstance(item, pytest.Function)
    return CAPABILITIES[item.callspec.params["broker"]]


@pytest.fixture
def reopen(request: pytest.FixtureRequest, broker: Broker, clock: Clock) -> Callable[[], Broker]:
    """Opens the store of `broker` once more."""
    tmp_path = request.getfixturevalue("tmp_path")
    if request.node.callspec.params["broker"] == "postgres":
        url = request.getfixturevalue("postgres_store_url")
    else:
        url = f"sqlite:///{tmp_path / 'jobs.db'}"
    return lambda: open_broker(url, clock)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def fresh_broker(request: pytest.FixtureRequest) -> FreshBroker:
    """How to open a new store of each kind in turn, as often as a model asks for one."""
    if request.param == "memory":
        return lambda folder, clock: MemoryBroker(clock)
    if request.param == "sqlite":
        return lambda folder, clock: open_broker(f"sqlite:///{folder / 'jobs.db'}", clock)
    migrated = request.getfixturevalue("migrated_postgres")

    def postgres(folder: Path, clock: Clock) -> Broker:
        migrated.empty()
        return open_broker(migrated.url, clock)

    return postgres


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store_app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    """An app on each store in turn, with the machine's own clock."""
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_store_url")
    else:
        url = "memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 'jobs.db'}"
    broker = open_broker(url)
    app = App(broker=broker)
    yield app
    app.close()
    broker.close()
