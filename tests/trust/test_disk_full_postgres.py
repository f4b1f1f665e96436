"""PostgreSQL's disk is full: enqueue says so, nothing accepted is lost, and then work goes on.

The disk is a small tmpfs where the test may mount one. Where it may not, the server itself says
what it says on a full disk, from a trigger: the client cannot tell the difference.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Protocol

import psycopg
import pytest

from penstock import StoreFull, StoreUnreachable, UnknownOutcome
from penstock.broker.filter import Filter
from penstock.brokers.postgres import PostgresBroker
from penstock.job import Job, Outcome, State, succeeded
from penstock.testing.conformance.factories import a_job, a_worker, claim, some_jobs
from penstock.testing.postgres import Server
from tests.stories.conftest import Story, eventually

MEGABYTES = 16


class Disk(Protocol):
    url: str

    def make_room(self) -> None: ...


class SmallDisk:
    """A tablespace on a tmpfs of its own; everything else of the server has all the room."""

    def __init__(self, server: Server, mount: Path) -> None:
        self._mount = mount
        user = server.data.stat()
        folder = mount / "tables"
        folder.mkdir()
        os.chown(folder, user.st_uid, user.st_gid)
        url = server.create_database()
        with psycopg.connect(server.url(), autocommit=True) as admin:
            admin.execute(f"create tablespace small location '{folder}'")
            admin.execute(f"alter database {url.rpartition('/')[2]} set tablespace small")
        self.url = url

    def make_room(self) -> None:
        mount(self._mount, 500, "remount,")


class FullWord:
    """A server that says that its disk is full once a table has grown to its size."""

    def __init__(self, server: Server) -> None:
        self.url = server.create_database()
        PostgresBroker(self.url).close()
        with psycopg.connect(self.url, autocommit=True) as admin:
            admin.execute(
                f"""
                create function full_disk() returns trigger language plpgsql as $$
                begin
                    if pg_total_relation_size('penstock.parcel') > {MEGABYTES << 19}
                       or octet_length(coalesce(to_jsonb(new) ->> 'result', '')) > 100000 then
                        raise exception 'could not extend file: No space left on device'
                              using errcode = 'disk_full';
                    end if;
                    return new;
                end $$
                """
            )
            for table in ("parcel", "job", "history"):
                admin.execute(
                    f"create trigger full_disk before insert on penstock.{table} "
                    "for each row execute function full_disk()"
                )

    def make_room(self) -> None:
        with psycopg.connect(self.url, autocommit=True) as admin:
            admin.execute("drop function full_disk cascade")


def mount(folder: Path, megabytes: int, options: str = "") -> bool:
    command = ["mount", "-t", "tmpfs", "-o", f"{options}size={megabytes}m", "tmpfs", str(folder)]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@contextmanager
def mounted(folder: Path, megabytes: int) -> Iterator[bool]:
    """Whether a tmpfs of this size is there now."""
    done = mount(folder, megabytes)
    try:
        yield done
    finally:
        if done:
            subprocess.run(["umount", "--lazy", str(folder)], check=False)


@pytest.fixture
def disk(own_postgres: Server) -> Iterator[Disk]:
    """A store whose disk has little room."""
    folder = own_postgres.data.parent / "small"
    folder.mkdir()
    with mounted(folder, MEGABYTES) as done:
        yield SmallDisk(own_postgres, folder) if done else FullWord(own_postgres)
        own_postgres.stop("immediate")


@pytest.fixture
def small(disk: Disk, clock) -> Iterator[PostgresBroker]:
    broker = PostgresBroker(disk.url, clock=clock)
    yield broker
    broker.close()


def fill(broker: PostgresBroker, clock) -> list[str]:
    """Enqueue until the store refuses; the ids that it accepted."""
    accepted: list[str] = []
    for _ in range(20_000):
        job = a_job(clock, body=b'{"args":{"text":"%s"}}' % (os.urandom(10_000).hex().encode()))
        try:
            broker.enqueue([job])
        except StoreFull:
            return accepted
        accepted.append(job.id)
    pytest.fail("the store was never full")


def test_what_was_accepted_is_kept_and_work_goes_on_when_there_is_room(disk, small, clock):
    early = some_jobs(clock, 10)
    small.enqueue(early)
    held = claim(small, 10)
    accepted = fill(small, clock)
    assert len(accepted) > 50
    many = [a_job(clock, body=b'"%s"' % os.urandom(10_000).hex().encode()) for _ in range(1000)]
    with pytest.raises(StoreFull, match=r"no room left .* nothing of this call was written"):
        small.enqueue(many)
    big = b'"%s"' % os.urandom(2_000_000).hex().encode()
    with pytest.raises(StoreFull):
        small.settle([(job, succeeded(big)) for job in held])
    assert {small.get(job.id).state for job in held} == {State.RUNNING}
    found: list[str] = []
    after = None
    while True:
        page = small.find(Filter(state=(State.READY,)), after=after, limit=1000)
        found += [job.id for job in page.jobs]
        if (after := page.after) is None:
            break
    assert sorted(found) == sorted(accepted)

    disk.make_room()

    assert settled(small, [(job, succeeded(big)) for job in held])
    assert small.enqueue(many).known == frozenset()
    ran: list[str] = []
    while jobs := claim(small, 100):
        assert settled(small, [(job, succeeded()) for job in jobs])
        ran += [job.id for job in jobs]
    assert sorted(ran) == sorted([*accepted, *(job.id for job in many)])


def settled(broker: PostgresBroker, pairs: list[tuple[Job, Outcome]]) -> bool:
    """Whether all were taken: now, or before an answer that came too late, as workers see it."""
    try:
        return all(broker.settle(pairs))
    except StoreUnreachable:  # the disk is busy with all that was written
        return len(set(broker.settle(pairs))) == 1


def test_workers_wait_for_room_and_then_go_on(disk, tmp_path):
    with closing(Story(tmp_path, disk.url)) as story:
        fill_and_make_room(story, disk)


def fill_and_make_room(story: Story, disk: Disk) -> None:
    fleet = story.start(processes=1)
    nap = story.task("nap").options(headers={"pad": os.urandom(2000).hex()})
    accepted: list[str] = []
    refused: list[Job] = []
    for number in range(1000):
        jobs = [nap.job(number) for _ in range(500)]
        try:
            story.app.enqueue(jobs)
        except StoreFull:
            refused = jobs
            break
        accepted += [job.id for job in jobs]
    assert refused, "the store was never full"
    time.sleep(1)  # now the worker has outcomes that nobody takes

    disk.make_room()

    story.app.enqueue(refused)
    accepted += [job.id for job in refused]
    eventually(lambda: sum(count.total for count in story.broker.count()) == 0, timeout=60)
    successes = story.successes()
    assert set(successes) == set(accepted)
    assert set(successes.values()) == {1}
    assert story.counted() == {}
    assert fleet.process.poll() is None


def test_a_server_whose_whole_disk_is_full_loses_nothing_it_accepted(tmp_path, clock):
    """Its log is on that disk, too: it may even stop, and starts again when there is room."""
    with (
        disk_of_its_own(130) as folder,
        Server({"max_wal_size": 64}, folder=folder) as server,
    ):
        disk = FullWord(server) if folder is None else None
        url = disk.url if disk else server.create_database()
        broker = PostgresBroker(url, clock=clock)
        accepted, unsure = flood(broker, clock)
        broker.close()
        if disk:
            disk.make_room()
        else:
            mount(folder, 1000, "remount,")
        server.start()  # if it had to stop; it may have to recover, too
        broker = opened(url, clock)
        broker.enqueue(unsure)

        ran: list[str] = []
        while jobs := claim(broker, 1000):
            assert settled(broker, [(job, succeeded()) for job in jobs])
            ran += [job.id for job in jobs]
        broker.close()
        assert len(ran) == len(set(ran))
        assert set(ran) == {*accepted, *(job.id for job in unsure)}


def opened(url: str, clock) -> PostgresBroker:
    """As soon as the server lets anybody in."""
    found: list[PostgresBroker] = []

    def lets_in() -> bool:
        with suppress(StoreUnreachable):
            found.append(PostgresBroker(url, clock=clock))
        return bool(found)

    eventually(lets_in)
    return found[0]


@contextmanager
def disk_of_its_own(megabytes: int) -> Iterator[Path | None]:
    """A folder that the server's user may enter, on a disk of this size; None if that is denied."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-small-", dir="/tmp"))
    folder.chmod(0o755)
    with mounted(folder, megabytes) as done:
        yield folder if done else None
    folder.rmdir()


def flood(broker: PostgresBroker, clock) -> tuple[list[str], list]:
    """Enqueue until nothing goes any more; what was accepted, and what nobody knows of."""
    accepted: list[str] = []
    for _ in range(20_000):
        jobs = [a_job(clock, body=b'"%s"' % os.urandom(20_000).hex().encode()) for _ in range(10)]
        try:
            broker.enqueue(jobs)
        except UnknownOutcome:
            return accepted, jobs
        except (StoreFull, StoreUnreachable):
            return accepted, []
        accepted += [job.id for job in jobs]
    pytest.fail("the store was never full")


def test_a_client_cannot_tell_the_trigger_from_the_disk(own_postgres, clock):
    """The other way of the tests above, wherever they run."""
    disk = FullWord(own_postgres)
    broker = PostgresBroker(disk.url, clock=clock)
    accepted = fill(broker, clock)

    disk.make_room()

    late = threading.Thread(target=broker.enqueue, args=([a_job(clock)],))
    late.start()
    late.join()
    broker.renew([a_worker()], holding=[])
    assert len(claim(broker, 10_000)) == len(accepted) + 1
    broker.close()
