"""Everything at once: `penstock demo --storm`, with more faults and for longer.

Whatever a storm kills, freezes, cuts or delays: every accepted job ends, once, no limit is
exceeded, and afterwards every worker works. A storm in which no stale settlement was refused, no
lease lapsed or no flow ended fails, too.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from penstock.cli.store_choice import use_store
from penstock.testing.postgres import Server
from penstock.testing.redis import RedisServer
from penstock.tools.demo.storm import tasks
from penstock.tools.demo.storm.storm import Storm, StormVerdict
from tests.stories.proxy import Proxy
from tests.stories.store_size import check_postgres_size, check_sqlite_size

# Before anything of ours is there, which keeps hold of the function.
WRONG_CLOCK = """
import time

right = time.time
time.time = lambda: right() + {ahead}
"""
HOUR = 3600.0
NOTICED_SECONDS = 20.0  # until a server notices a dead line; Penstock's own keepalives take as long
SOAK_SECONDS = float(os.environ.get("SOAK_SECONDS", "1800"))
Rage = Callable[..., StormVerdict]


@pytest.fixture
def rage(tmp_path: Path) -> Iterator[Rage]:
    """Let a storm rage on this store for so long, and check it."""
    storms: list[Storm] = []

    def run(
        url: str,
        seconds: float,
        seed: int,
        add_faults: Callable[[Storm], None],
        **environments: Sequence[Mapping[str, str]],
    ) -> StormVerdict:
        with use_store(url, None):
            storm = Storm(url, tmp_path, seed=seed, **environments)
            storms.append(storm)
            add_faults(storm)
            storm.prepare()
            storm.rage(seconds)
            verdict = storm.calm()
            print(verdict.faults, verdict.history.seen)
            assert verdict.holds, verdict.sentences()
            return verdict

    yield run
    for storm in storms:
        storm.end()
    tasks.app.close()


class Around:
    """What a storm does to a server, to the line to it, and to a dashboard."""

    def __init__(self, server: Server, url: str, proxy: Proxy) -> None:
        self._server = server
        self._url = url
        self._proxy = proxy

    def __call__(self, storm: Storm) -> None:
        storm.add("server killed", 1, self._kill_server)
        storm.add("backend ended", 3, self._end_backend)
        storm.add("line cut at commit", 2, self._cut_commits)
        storm.add("line cut anywhere", 1, self._cut)
        storm.add("line dead", 1, lambda _: self._proxy.half_open(NOTICED_SECONDS))
        storm.add("line slow", 1, self._delay)
        storm.add("no line answers", 1, self._black_hole)
        watch_over(storm)

    def _kill_server(self, chance: random.Random) -> None:
        self._server.kill()
        time.sleep(chance.uniform(0, 2))
        self._server.start()
        # A crash takes the statistics by which the server knows what to vacuum.
        with suppress(psycopg.OperationalError), psycopg.connect(self._url, autocommit=True) as own:
            own.execute("vacuum penstock.tally, penstock.worker, penstock.parcel, penstock.lease")

    def _end_backend(self, chance: random.Random) -> None:
        with (
            suppress(psycopg.OperationalError),  # every place may be taken
            psycopg.connect(self._url, autocommit=True) as connection,
        ):
            pids = connection.execute(
                "select pid from pg_stat_activity where application_name = 'penstock'"
            ).fetchall()
            if pids:
                connection.execute("select pg_terminate_backend(%s)", chance.choice(pids))

    def _cut_commits(self, chance: random.Random) -> None:
        self._proxy.cut_commits(0.3, chance.randrange(1000))
        self._heal_after(chance.uniform(0.2, 1))

    def _cut(self, chance: random.Random) -> None:
        self._proxy.cut_at_random(0.05, chance.randrange(1000))
        self._heal_after(chance.uniform(0.2, 1))

    def _delay(self, chance: random.Random) -> None:
        self._proxy.delay = chance.uniform(0.005, 0.05)
        self._heal_after(1)

    def _black_hole(self, chance: random.Random) -> None:
        """Nothing passes, on new lines either; none of them ends before somebody notices."""
        self._proxy.black_hole()
        self._heal_after(chance.uniform(1, 8))
        self._proxy.half_open(NOTICED_SECONDS)

    def _heal_after(self, seconds: float) -> None:
        time.sleep(seconds)
        self._proxy.heal()


def watch_over(storm: Storm) -> None:
    """A dashboard, which is killed and frozen like the rest."""
    dashboard = storm.start("dashboard", "penstock", "dashboard", "--port", "0")
    storm.add("dashboard killed", 1, lambda _: dashboard.kill_all())
    storm.add("dashboard frozen", 1, lambda _: dashboard.freeze(2))


def storm_on_sqlite(rage: Rage, folder: Path, seconds: float, seed: int) -> None:
    path = folder / "jobs.db"
    verdict = rage(f"sqlite:///{path}", seconds, seed, watch_over)
    check_sqlite_size(path, verdict.history.seen["jobs ended"])


def storm_on_postgres(rage: Rage, server: Server, folder: Path, seconds: float, seed: int) -> None:
    """The first worker goes through a bad line; the clock of the second is an hour ahead."""
    url = server.create_database()
    ahead, behind = folder / "ahead", folder / "behind"
    for path, seconds_ahead in ((ahead, HOUR), (behind, -HOUR)):
        path.mkdir()
        (path / "sitecustomize.py").write_text(WRONG_CLOCK.format(ahead=seconds_ahead))
    with Proxy(url) as proxy:
        verdict = rage(
            url,
            seconds,
            seed,
            Around(server, url, proxy),
            worker_environments=[{"PENSTOCK_URL": proxy.url}, first_on_path(ahead)],
            producer_environments=[{"PENSTOCK_URL": proxy.url}, first_on_path(behind)],
        )
    check_postgres_size(url, verdict.history.seen["jobs ended"])


def first_on_path(folder: Path) -> dict[str, str]:
    """Variables for a Python that finds modules of this folder first."""
    others = os.environ.get("PYTHONPATH", "")
    return {"PYTHONPATH": f"{folder}{os.pathsep}{others}".rstrip(os.pathsep)}


def test_nothing_is_lost_and_nothing_ends_twice_in_a_storm_on_sqlite(rage: Rage, tmp_path: Path):
    storm_on_sqlite(rage, tmp_path, seconds=5, seed=7)


def test_nothing_is_lost_and_nothing_ends_twice_in_a_storm_on_postgres(
    rage: Rage, own_postgres: Server, tmp_path: Path
):
    storm_on_postgres(rage, own_postgres, tmp_path, seconds=6, seed=7)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_half_an_hour_of_storm_on_sqlite(rage: Rage, tmp_path: Path):
    storm_on_sqlite(rage, tmp_path, seconds=SOAK_SECONDS, seed=11)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_half_an_hour_of_storm_on_postgres(rage: Rage, own_postgres: Server, tmp_path: Path):
    storm_on_postgres(rage, own_postgres, tmp_path, seconds=SOAK_SECONDS, seed=11)


def storm_on_redis(rage: Rage, seconds: float, seed: int) -> None:
    """The server is killed as well, and forgets its scripts; it flushes every write."""
    with RedisServer(kind="valkey") as server:

        def add_faults(storm: Storm) -> None:
            storm.add("server killed", 3, lambda chance: kill_redis(server, chance))
            storm.add("scripts forgotten", 1, lambda _: server.command("SCRIPT", "FLUSH"))
            watch_over(storm)

        rage(server.url(), seconds, seed, add_faults)


def kill_redis(server: RedisServer, chance: random.Random) -> None:
    server.kill()
    time.sleep(chance.uniform(0, 2))
    server.start()


def test_nothing_is_lost_and_nothing_ends_twice_in_a_storm_on_redis(rage: Rage):
    storm_on_redis(rage, seconds=8, seed=7)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_half_an_hour_of_storm_on_redis(rage: Rage):
    storm_on_redis(rage, seconds=SOAK_SECONDS, seed=11)
