"""Paths that others can predict, with something of theirs laid there first: left as it is."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.app.private_files import open_below
from penstock.app.settings import project_root, resolve_url
from penstock.broker.protocol import Broker
from penstock.brokers import open_broker
from penstock.brokers.sqlite.wake import Waiter, WakeSender
from penstock.cli.report import write_page
from penstock.errors import PenstockError, Refused
from penstock.job import Job
from penstock.spark.java import shim
from penstock.spark.pipelines.lake.data_files import DataFile
from penstock.spark.pipelines.lake.lake import Lake
from penstock.spark.pipelines.lake.raw_tables import create_raw_tables
from penstock.web.serve import load_or_make_tokens
from penstock.worker.detached.log_file import cut_to_size
from penstock.worker.detached.state_folder import RunFile, StateFolder

SOMEBODY = 65534
SECRET = b"postgresql://ada:hunter2@db/shop\n" * 1000


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file of ours that nobody else may read."""
    path = tmp_path / "victim"
    path.write_bytes(SECRET)
    path.chmod(0o600)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> StateFolder:
    folder = StateFolder(tmp_path / "state" / "store")
    folder.make()
    return folder


def given_away(path: Path) -> bool:
    """Make it somebody else's, where we may; who is not root cannot."""
    if os.geteuid() == 0:
        os.chown(path, SOMEBODY, SOMEBODY, follow_symlinks=False)
        return True
    return False


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def unharmed(victim: Path) -> bool:
    return victim.read_bytes() == SECRET and victim.stat().st_mode & 0o777 == 0o600


def planted(place: Path, victim: Path, how: str) -> None:
    if how == "link":
        place.symlink_to(victim)
    elif how == "hard link":
        place.hardlink_to(victim)
    elif how == "lost link":
        place.symlink_to(victim.with_name("made by us"))
    else:
        os.mkfifo(place)


PLANTED = pytest.mark.parametrize("how", ["link", "hard link", "lost link", "pipe"])


# The state folder of detached jobs


@PLANTED
def test_a_trial_writes_to_no_other_file(folder, victim, how):
    planted(folder.path / ".trial", victim, how)

    with pytest.raises(Refused, match=r"\.trial"):
        folder.check_writable()

    assert unharmed(victim)
    assert not victim.with_name("made by us").exists()


@PLANTED
def test_a_lock_is_no_other_file(folder, victim, how):
    job = Job(task="travel").id
    planted(folder.file(job, "lock"), victim, how)

    with pytest.raises((Refused, OSError)):
        folder.lock(job)

    assert unharmed(victim)
    assert not victim.with_name("made by us").exists()


@PLANTED
def test_who_runs_a_job_is_written_to_no_other_file(folder, victim, how):
    job = Job(task="travel").id
    run = RunFile.of_this_process(job, 1, "row")
    planted(folder.path / f"{job}.1.draft", victim, how)
    planted(folder.path / f"{job}.1.json", victim, how)

    folder.write(run)

    assert folder.runs() == [run]
    assert unharmed(victim)
    assert not victim.with_name("made by us").exists()


@PLANTED
def test_who_runs_a_job_is_read_from_no_other_file(folder, tmp_path, how):
    job = Job(task="travel").id
    victim = tmp_path / "elsewhere"
    folder.write(RunFile.of_this_process(job, 1, "row"))
    (folder.path / f"{job}.1.json").rename(victim)
    planted(folder.path / f"{job}.1.json", victim, how)

    assert folder.runs() == []


@pytest.mark.parametrize("how", ["link", "hard link", "pipe"])
def test_a_log_is_cut_in_no_other_file(folder, victim, how):
    log = folder.path / "log"
    planted(log, victim, how)

    assert not cut_to_size(log, most=1000, kept=400)

    assert unharmed(victim)


def test_forgetting_a_job_removes_links_and_not_what_they_lead_to(folder, victim):
    job = Job(task="travel").id
    (folder.path / f"{job}.log").symlink_to(victim)

    assert folder.remove_job(job)

    assert names_in(folder.path) == []
    assert unharmed(victim)


def test_a_state_folder_that_is_a_link_is_refused_and_nothing_is_written(tmp_path):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "store").symlink_to(tmp_path / "theirs")

    with pytest.raises(Refused, match=r"store is a link.*PENSTOCK_STATE"):
        StateFolder(tmp_path / "store").check_writable()

    assert names_in(tmp_path / "theirs") == []


def test_a_state_folder_that_somebody_else_made_first_is_refused(tmp_path):
    store = tmp_path / "state" / "store"
    store.mkdir(parents=True)
    store.chmod(0o777)
    if given_away(store):
        with pytest.raises(Refused, match=rf"store belongs to the user {SOMEBODY}.*PENSTOCK_STATE"):
            StateFolder(store).check_writable()
        assert names_in(store) == []
        store.rmdir()
        store.mkdir(0o700)

    StateFolder(store).check_writable()


def test_one_below_a_folder_that_somebody_else_made_in_a_shared_one_is_refused(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "penstock").mkdir()
    if given_away(shared / "penstock"):
        with pytest.raises(Refused, match=rf"shared/penstock belongs to the user {SOMEBODY}"):
            StateFolder(shared / "penstock" / "store").make()
        assert names_in(shared / "penstock") == []

    StateFolder(shared / "ours" / "store").make()


def test_a_state_folder_of_ours_that_others_may_write_to_is_closed_to_them(tmp_path):
    store = tmp_path / "store"
    store.mkdir()
    store.chmod(0o775)

    StateFolder(store).make()

    assert store.stat().st_mode & 0o777 == 0o755


# The tokens of a dashboard


@PLANTED
def test_kept_tokens_are_of_no_other_file(tmp_path, victim, monkeypatch, how):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    kept = load_or_make_tokens("sqlite:///jobs.db", "ada", file=None, anew=False).kept
    victim.write_bytes(kept.read_bytes())
    kept.unlink()
    planted(kept, victim, how)

    with pytest.raises(Refused, match=r"dashboard-.*--new-token"):
        load_or_make_tokens("sqlite:///jobs.db", "ada", file=None, anew=False)
    assert load_or_make_tokens("sqlite:///jobs.db", "ada", file=None, anew=True).text
    assert kept.is_file()
    assert not kept.is_symlink()


def test_a_folder_of_tokens_that_somebody_else_made_first_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "penstock").mkdir()
    if given_away(tmp_path / "penstock"):
        with pytest.raises(Refused, match=rf"belongs to the user {SOMEBODY}.*--token-file"):
            load_or_make_tokens("sqlite:///jobs.db", "ada", file=None, anew=False)
        assert names_in(tmp_path / "penstock") == []


# Beside a store in a file


@pytest.fixture
def shared_tmp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of temporary files, which everybody may write to."""
    # A socket's path is limited to about 100 characters.
    with tempfile.TemporaryDirectory(prefix="p", dir="/tmp") as made:
        Path(made).chmod(0o1777)
        monkeypatch.setattr("tempfile.tempdir", made)
        yield Path(made)


def dead_socket(path: Path) -> None:
    """What a process that was killed leaves behind."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
        dead.bind(str(path))


@pytest.mark.parametrize("where", ["the store's", "all stores'"])
def test_waking_removes_nothing_behind_a_link(tmp_path, shared_tmp, where):
    sender = WakeSender(tmp_path / "jobs.db")
    aim = shared_tmp / "x" / sender.folder.name
    aim.mkdir(parents=True)
    (aim / "passwd").write_text("root")
    dead_socket(aim / "dead")
    if where == "the store's":
        sender.folder.parent.mkdir(mode=0o700)
        sender.folder.symlink_to(aim)
        assert not Waiter(sender.folder, lambda: 0).listens
    else:
        sender.folder.parent.symlink_to(aim.parent)

    sender.send()
    sender.close()

    assert (aim / "passwd").read_text() == "root"
    assert (aim / "dead").exists() or where == "all stores'"  # a folder of ours, and a socket


def test_waking_uses_no_folder_that_somebody_else_made_first(tmp_path, shared_tmp):
    sender = WakeSender(tmp_path / "jobs.db")
    sender.folder.mkdir(parents=True)
    dead_socket(sender.folder / "dead")
    if given_away(sender.folder.parent):
        given_away(sender.folder)
        waiter = Waiter(sender.folder, lambda: 0)
        sender.send()
        waiter.close()
        assert not waiter.listens
        assert names_in(sender.folder) == ["dead"]
    sender.close()


def test_waking_removes_the_sockets_of_the_dead_and_no_file(tmp_path, shared_tmp):
    sender = WakeSender(tmp_path / "jobs.db")
    sender.folder.mkdir(parents=True, mode=0o700)
    (sender.folder / "a file").touch()
    dead_socket(sender.folder / "dead")

    sender.send()
    sender.close()

    assert names_in(sender.folder) == ["a file"]


@PLANTED
def test_the_rules_beside_a_store_are_no_other_file(tmp_path, victim, how):
    planted(tmp_path / "jobs.db-rules", victim, how)

    broker: Broker = open_broker(f"sqlite:///{tmp_path / 'jobs.db'}")
    broker.enqueue([Job(task="mail:send", body=b'{"args":{}}')])
    broker.close()

    assert unharmed(victim)
    assert not victim.with_name("made by us").exists()


# Settings


def test_settings_that_somebody_else_laid_into_a_shared_folder_do_not_count(tmp_path):
    shared = tmp_path / "shared"
    (shared / "work").mkdir(parents=True)
    shared.chmod(0o1777)
    program = shared / "work" / "program.py"
    program.touch()
    laid = shared / "penstock.toml"
    laid.write_text('[profiles.default]\nurl = "sqlite:////tmp/theirs.db"\n')
    assert resolve_url(None, program).url == "sqlite:////tmp/theirs.db"  # our own counts

    if given_away(laid):
        assert resolve_url(None, program).url == f"sqlite:///{shared}/work/penstock.db"
        assert project_root(program) == shared / "work"
        shared.chmod(0o755)  # only who may write here could have put it there
        assert project_root(program) == shared


# The lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path / "lake")
    create_raw_tables(lake)
    return lake


@PLANTED
def test_a_lake_is_written_to_no_other_file(lake, victim, how):
    """The name of the next commit can be guessed."""
    table = lake.table("attempts")
    planted(lake.folder / "attempts" / "_delta_log" / f"{1:020d}.json", victim, how)

    with pytest.raises(PenstockError):
        table.commit([], marks={"store a": 1})

    assert unharmed(victim)
    assert not victim.with_name("made by us").exists()


@pytest.mark.parametrize("how", ["link", "pipe"])
def test_the_log_of_a_lake_is_no_other_file(tmp_path, lake, how):
    log = lake.folder / "attempts" / "_delta_log" / f"{0:020d}.json"
    other = tmp_path / "other"
    log.rename(other)
    planted(log, other, how)

    with pytest.raises(Refused, match=r"0\.json .*is a link or a pipe"):
        lake.table("attempts")


@pytest.mark.parametrize("path", ["/{}", "../victim", "day=1/../../../victim"])
def test_a_log_names_no_file_outside_of_its_lake(lake, victim, path):
    path = path.replace("/{}", str(victim))
    lake.table("attempts").commit([DataFile(path=path, day="2026-11-15", rows=1, bytes=1)])

    with pytest.raises(Refused, match="outside of the lake"):
        lake.table("attempts").files()

    assert unharmed(victim)


def test_a_file_of_a_lake_that_is_a_link_is_not_read(lake, victim):
    file = DataFile(path="day=2026-11-15/1.parquet", day="2026-11-15", rows=1, bytes=1)
    (lake.folder / "attempts" / "day=2026-11-15").mkdir()
    (lake.folder / "attempts" / file.path).symlink_to(victim)
    lake.table("attempts").commit([file])

    with pytest.raises(Refused, match="is a link"):
        lake.table("attempts").files()


@pytest.mark.parametrize("name", ["attempts", "attempts/day=2026-11-15", "attempts/_delta_log"])
def test_a_folder_of_a_lake_that_is_a_link_is_refused(tmp_path, name):
    lake = Lake(tmp_path / "lake")
    (lake.folder / name).parent.mkdir(parents=True)
    theirs = tmp_path / "theirs"
    (theirs / "day=2026-11-15").mkdir(parents=True)
    kept = theirs / "day=2026-11-15" / "kept.txt"
    kept.write_bytes(b"PAR1")
    (lake.folder / name).symlink_to(theirs)

    with pytest.raises(Refused, match=rf"{name} .*is a link"):
        create_raw_tables(lake)

    assert kept.exists()


@PLANTED
def test_a_page_is_written_to_no_other_file(tmp_path, victim, how):
    planted(tmp_path / ".report.html.new", victim, how)
    planted(tmp_path / "report.html", victim, how)

    write_page(tmp_path / "report.html", "<p>new</p>")

    assert (tmp_path / "report.html").read_text() == "<p>new</p>"
    assert not (tmp_path / "report.html").is_symlink()
    assert unharmed(victim)
    assert not victim.with_name("made by us").exists()


# What is opened below a folder, whatever it is for


def test_no_link_on_the_way_below_a_folder_is_followed(tmp_path, victim):
    root = tmp_path / "root"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "file").write_text("ours")
    (root / "a" / "link").symlink_to("b")
    (root / "out").symlink_to(tmp_path)

    with os.fdopen(open_below(root, "a", "b", "file")) as file:
        assert file.read() == "ours"
    for parts in (["a", "link", "file"], ["out", "victim"]):
        with pytest.raises(Refused, match=f"{parts[-2]} is no folder, or a link"):
            open_below(root, *parts)


def test_a_java_that_somebody_else_may_change_is_not_run(tmp_path, monkeypatch):
    """The folder of the cache is known, and what is in it is run."""
    runtime = tmp_path / "runtime" / "bin"
    runtime.mkdir(parents=True)
    (runtime / "java").touch()
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "runtime"))
    home = shim(runtime.parent, cache)
    assert home.is_relative_to(tmp_path / "cache")
    assert shim(runtime.parent, cache) == home

    if given_away(home / "bin"):
        assert not shim(runtime.parent, cache).is_relative_to(tmp_path / "cache")
    (home / "bin").rename(tmp_path / "theirs")
    (home / "bin").symlink_to(tmp_path / "theirs")
    assert not shim(runtime.parent, cache).is_relative_to(tmp_path / "cache")
