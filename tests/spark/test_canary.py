"""A canary password: it opens the store for every process of a cluster, and is written nowhere."""

from __future__ import annotations

import gzip
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pyarrow as pa
import pytest
from pyarrow import parquet

from penstock.brokers import open_broker
from penstock.job import State
from penstock.testing.postgres import Server
from tests.spark.canary import holds, leaks, watched_arguments
from tests.spark.cluster import Cluster
from tests.spark.drivers import Driver
from tests.spark.frames import jobs_in

CANARY = "canary-9c41-never-written"
WHOLE = Path(__file__).with_name("canary_steps.py")
TASKS = str(Path(__file__).parent)


@pytest.fixture(scope="module")
def guarded_url() -> Iterator[str]:
    """A store that asks for the password."""
    with Server({"fsync": "off"}) as server:
        url = server.create_database()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"create role ada superuser login password '{CANARY}'")
            asked = "host all ada all scram-sha-256\nhost all all all trust\nlocal all all trust\n"
            (server.data / "pg_hba.conf").write_text(asked)
            connection.execute("select pg_reload_conf()")
        place = urlsplit(url)
        yield f"postgresql://ada:{CANARY}@{place.hostname}:{place.port}{place.path}"


@pytest.fixture(params=["here", pytest.param("cluster", marks=pytest.mark.soak)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """The master, and the folder in which executors leave their files."""
    if request.param == "here":
        return "local[2]", tmp_path
    cluster: Cluster = request.getfixturevalue("cluster")
    return cluster.url, cluster.folder


# REQUIREMENTS S28
@pytest.mark.timeout(1500)
def test_a_password_is_written_nowhere(place: tuple[str, Path], guarded_url: str, tmp_path: Path):
    """S28: no plan, event log, exception, checkpoint, lake file, page, log or command line."""
    master, executors = place
    open_broker(guarded_url).close()
    folder = tmp_path / "run"
    (folder / "events").mkdir(parents=True)
    config = {
        "spark.eventLog.enabled": True,
        "spark.eventLog.dir": (folder / "events").as_uri(),
        "spark.eventLog.compress": False,
        "spark.ui.enabled": True,
        "spark.local.dir": str(folder / "local"),
        "spark.log.level": "INFO",
        "spark.task.maxFailures": 1,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }

    with (
        watched_arguments(CANARY) as seen,
        Driver(master, guarded_url, folder, WHOLE, TASKS, **config) as driver,
    ):
        driver.run("write")
        assert driver.run("work") == 0
        assert driver.run("read") > 150
        assert set(driver.run("pipeline", whole=executors != tmp_path)) == {0}
        assert driver.run("jobs") == [0, 5, [200, 201, 202]]
        said = driver.run("fail")
        driver.run("show")
        # While it runs: at its end Spark takes away what it kept on the disk.
        found = leaks(folder, CANARY) + leaks(executors, CANARY)
        driver.run("stop")
    found += leaks(folder, CANARY)

    assert {job.state for job in jobs_in(guarded_url)} == {State.SUCCEEDED}
    assert not [text[:300] for text in said if CANARY in text or "nothing was wrong" in text]
    assert found == []
    assert not seen
    made = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    assert {
        "sunk/offsets",
        "followed/offsets",
        "rejects",
        "applied/_SUCCESS",
        "lake/attempts/_delta_log",
        "page.html",
    } <= made
    assert [path for path in made if path.startswith("events/") and "/events_" in path]
    assert executors == tmp_path or list(executors.rglob("stderr"))


def test_a_canary_that_is_somewhere_is_found(tmp_path: Path):
    """What the test above asserts is no mistake of its search."""
    (tmp_path / "plain").write_text(f"url=postgresql://ada:{CANARY}@host/x")
    with gzip.open(tmp_path / "log.gz", "wb") as packed:
        packed.write(CANARY.encode() * 3)
    with zipfile.ZipFile(tmp_path / "code.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("settings.py", f"URL = '{CANARY}'" * 9)
    table = pa.table({"error": [f"row {n}: {CANARY}" for n in range(50)]})
    parquet.write_table(table, tmp_path / "part.parquet", compression="zstd")
    (tmp_path / "clean").write_text("postgresql://ada:***@host/x")

    assert sorted(leaks(tmp_path, CANARY)) == ["code.zip", "log.gz", "part.parquet", "plain"]
    assert not holds(tmp_path / "gone", CANARY)
