"""What every test may ask for. Asking for `broker` makes a test part of what a broker is."""

from __future__ import annotations

import gc
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from hypothesis import settings

from penstock import App
from penstock.broker.protocol import Broker
from penstock.broker.traits import ONE_PLACE
from penstock.brokers import open_broker
from penstock.brokers.memory import MemoryBroker
from penstock.brokers.sharded import open_sharded
from penstock.manager.server import Manager
from penstock.testing.clock import Clock
from penstock.testing.postgres import Server, drop_database
from penstock.testing.redis import RedisServer
from tests import cpu_time, in_memory, leftovers, quick, variants
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

# How long an example takes says how busy the machine is.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# The suite that defines a broker is shipped; the fixtures below bind our stores to it.
pytest_plugins = ["penstock.testing.conformance.plugin"]

REDIS = ONE_PLACE - {"scan as one look"} | {"reopens"}
SHARDED = frozenset({"bulk", "scan as one look", "limits across buckets"})
# What each of our stores declares, and whether it can be opened again.
CAPABILITIES = {
    "memory": ONE_PLACE | {"moves", "quotas"},
    "sqlite": ONE_PLACE | {"joins", "begins", "moves", "quotas", "reopens"},
    "postgres": ONE_PLACE
    | {"joins", "joins later", "begins", "moves", "quotas", "roles", "reopens"},
    # A manager in the test's own process, over each of the stores above.
    "remote": ONE_PLACE | {"reopens"},
    "remote-redis": REDIS,
    "remote-sqlite": ONE_PLACE | {"reopens"},
    "remote-postgres": ONE_PLACE | {"reopens"},
    "redis": REDIS | {"quotas"},
    "redis62": REDIS | {"quotas"},
    # Two stores of a kind as shards.
    "sharded": SHARDED,
    "sharded-sqlite": SHARDED | {"reopens"},
    "sharded-postgres": SHARDED | {"reopens"},
}
_EVERY_STORE = [pytest.mark.soak, pytest.mark.every_store]
_REDIS_62 = pytest.param("redis62", marks=_EVERY_STORE)
STORES = [
    *("memory", "sqlite", "postgres", "redis", "remote", "sharded"),
    _REDIS_62,
    pytest.param("remote-redis", marks=_EVERY_STORE),
    pytest.param("remote-sqlite", marks=_EVERY_STORE),
    pytest.param("remote-postgres", marks=_EVERY_STORE),
    pytest.param("sharded-sqlite", marks=_EVERY_STORE),
    pytest.param("sharded-postgres", marks=_EVERY_STORE),
]

LOOPBACK = "127.0.0.1:0"  # a free port
_SUITE = Path(__file__).parent / "src" / "penstock" / "testing" / "conformance"

# A fork copies what an ended manager in this process left for the garbage collector. In the child,
# where the thread that polls for gRPC does not exist, collecting that would wait for it for ever.
os.register_at_fork(before=gc.collect)

# Where the tests are that take longest: seconds each, and most of them waiting for processes.
LONG = ("spark", "test_benchmarks.py", "stories", "docs", "trust", "examples", "cli", "testing")


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A script that has these run in its background makes them deaf to Ctrl-C, and all that they
    # start with them.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.register(cpu_time)  # with its option


def pytest_configure(config: pytest.Config) -> None:
    for plugin in (in_memory, leftovers, quick, variants):
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
    """Shuffled as they are, but the long ones first: none of them is alone at the end.

    On shards the suite alone is run: it knows what they do not promise.
    """
    items[:] = [item for item in items if not _on_shards(item) or item.path.is_relative_to(_SUITE)]
    items.sort(key=lambda item: _place(item.path))


def _on_shards(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    return callspec is not None and str(callspec.params.get("broker", "")).startswith("sharded")


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
    with _migrated(postgres_server_url) as store:
        yield store


@pytest.fixture(scope="session")
def second_postgres(postgres_server_url: str) -> Iterator[PostgresStore]:
    """Another database of the same server."""
    with _migrated(postgres_server_url) as store:
        yield store


@contextmanager
def _migrated(postgres_server_url: str) -> Iterator[PostgresStore]:
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


@pytest.fixture
def manager(request: pytest.FixtureRequest) -> Iterator[Manager]:
    """A manager in this process, over the store that the test's parameter names."""
    parameters = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    _, _, store = str(parameters.get("broker", "")).partition("-")
    with Manager(request.getfixturevalue(f"{store or 'memory'}_broker"), LOOPBACK) as manager:
        yield manager


@pytest.fixture
def remote_broker(manager: Manager, clock: Clock) -> Iterator[Broker]:
    broker = open_broker(manager.url, clock)
    yield broker
    broker.close()


@pytest.fixture
def sharded_broker(request: pytest.FixtureRequest, clock: Clock) -> Iterator[Broker]:
    """Two stores as shards, of the kind that the test's parameter names."""
    parameters = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    _, _, kind = str(parameters.get("broker", "")).partition("-")
    if kind:
        broker = open_broker(request.getfixturevalue(f"{kind}_shards"), clock)
    else:
        broker = shards_in_memory(clock)
    yield broker
    broker.close()


def shards_in_memory(clock: Clock) -> Broker:
    return open_sharded({name: lambda _: MemoryBroker(clock) for name in "ab"}, clock)


@pytest.fixture
def sqlite_shards(tmp_path: Path, sqlite_template: Path) -> str:
    """The URL of two files as shards."""
    for name in "ab":
        shutil.copyfile(sqlite_template, tmp_path / f"{name}.db")
    return shards_of(tmp_path, {name: f"sqlite:///{name}.db" for name in "ab"})


@pytest.fixture
def postgres_shards(
    tmp_path: Path, migrated_postgres: PostgresStore, second_postgres: PostgresStore
) -> str:
    """The URL of two databases as shards."""
    for store in (migrated_postgres, second_postgres):
        store.empty()
    return shards_of(tmp_path, {"a": migrated_postgres.url, "b": second_postgres.url})


def shards_of(folder: Path, urls: Mapping[str, str]) -> str:
    """The URL of a file that names these shards."""
    lines = [f'{name} = "{url}"' for name, url in urls.items()]
    (folder / "shards.toml").write_text("\n".join(["[shards]", *lines, ""]))
    return f"shards:///{folder / 'shards.toml'}"


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """A Valkey server that a test process has to itself; no test needs its data after a crash."""
    with RedisServer({"appendonly": "no"}, kind="valkey") as server:
        yield server


@pytest.fixture(scope="session")
def redis62_server() -> Iterator[RedisServer]:
    """The same of Redis 6.2, the oldest that there is a promise for."""
    with RedisServer({"appendonly": "no"}, kind="redis") as server:
        yield server


@pytest.fixture
def redis_store_url(redis_server: RedisServer) -> str:
    """An empty store; a test may use it as long as it likes."""
    return emptied(redis_server)


@pytest.fixture
def redis_broker(clock: Clock, redis_store_url: str) -> Iterator[Broker]:
    broker = open_broker(redis_store_url, clock)
    yield broker
    broker.close()


@pytest.fixture
def redis62_store_url(redis62_server: RedisServer) -> str:
    return emptied(redis62_server)


@pytest.fixture
def redis62_broker(clock: Clock, redis62_store_url: str) -> Iterator[Broker]:
    broker = open_broker(redis62_store_url, clock)
    yield broker
    broker.close()


def emptied(server: RedisServer) -> str:
    """The URL of a store in this server, with nothing in it."""
    server.command("FLUSHALL")
    return server.url(durability="none", retention="14d")


@pytest.fixture(params=STORES)
def broker(request: pytest.FixtureRequest) -> Broker:
    """Each broker in turn, on the test's clock."""
    return request.getfixturevalue(f"{request.param.partition('-')[0]}_broker")


def pytest_penstock_capabilities(item: pytest.Item) -> frozenset[str]:
    """Of the store that a test of the suite runs on."""
    assert isinstance(item, pytest.Function)
    callspec = getattr(item, "callspec", None)  # a test may need no store at all
    return CAPABILITIES["memory" if callspec is None else callspec.params.get("broker", "memory")]


@pytest.fixture
def reopen(request: pytest.FixtureRequest, broker: Broker, clock: Clock) -> Callable[[], Broker]:
    """Opens the store of `broker` once more."""
    tmp_path = request.getfixturevalue("tmp_path")
    name = request.node.callspec.params["broker"]
    if name.startswith("remote"):
        url = request.getfixturevalue("manager").url
    elif name.startswith("sharded"):
        url = f"shards:///{tmp_path / 'shards.toml'}"
    elif name == "sqlite":
        url = f"sqlite:///{tmp_path / 'jobs.db'}"
    else:
        url = request.getfixturevalue(f"{name}_store_url")
    return lambda: open_broker(url, clock)


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis", "remote", _REDIS_62])
def fresh_broker(request: pytest.FixtureRequest) -> Iterator[FreshBroker]:
    """How to open a new store of each kind in turn, as often as a model asks for one."""
    with ExitStack() as managers:
        yield _fresh(request, managers)


def _fresh(request: pytest.FixtureRequest, managers: ExitStack) -> FreshBroker:
    if request.param == "remote":

        def remote(folder: Path, clock: Clock) -> Broker:
            managers.close()  # of the model's last example
            manager = managers.enter_context(Manager(MemoryBroker(clock), LOOPBACK))
            return open_broker(manager.url, clock)

        return remote
    if request.param == "memory":
        return lambda folder, clock: MemoryBroker(clock)
    if request.param == "sqlite":
        return lambda folder, clock: open_broker(f"sqlite:///{folder / 'jobs.db'}", clock)
    if request.param != "postgres":
        server = request.getfixturevalue(f"{request.param}_server")
        return lambda folder, clock: open_broker(emptied(server), clock)
    migrated = request.getfixturevalue("migrated_postgres")

    def postgres(folder: Path, clock: Clock) -> Broker:
        migrated.empty()
        return open_broker(migrated.url, clock)

    return postgres


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis", _REDIS_62])
def store_app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    """An app on each store in turn, with the machine's own clock."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'jobs.db'}"
    elif request.param == "memory":
        url = "memory:"
    else:
        url = request.getfixturevalue(f"{request.param}_store_url")
    broker = open_broker(url)
    app = App(broker=broker)
    yield app
    app.close()
    broker.close()
