"""Detached tasks, the parts without processes: what marks them, files, exit codes, decisions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock import App, Refused, Retry
from penstock.broker.filter import Filter
from penstock.broker.views import Event, Note
from penstock.job import Job, Outcome, State, failed, lapsed, put_back, succeeded
from penstock.worker.detached.after_crash import made_progress, outcome_after_crash
from penstock.worker.detached.exit_codes import Exit, code_of, describe_keeper_exit
from penstock.worker.detached.log_file import cut_to_size
from penstock.worker.detached.state_folder import RunFile, StateFolder, state_folder


@pytest.fixture
def app() -> App:
    return App("memory:")


@pytest.fixture
def folder(tmp_path: Path) -> StateFolder:
    folder = StateFolder(tmp_path / "state")
    folder.make()
    return folder


def job_id() -> str:
    return Job(task="travel").id


def this_process(job: str, attempt: int = 1) -> RunFile:
    return RunFile.of_this_process(job, attempt, "row")


def test_its_jobs_carry_a_tag_that_every_store_finds_them_by(app):
    """A15, A17: whatever tags a caller gives."""

    @app.task(name="travel", detached=True, tags={"tenant": "a"})
    def travel() -> None: ...

    @app.task(name="walk")
    def walk() -> None: ...

    job = travel.options(tags={"detached": "no"}).job()
    app.enqueue([job, walk.job()])

    assert job.tags == {"tenant": "a", "detached": "yes"}
    found = app.broker.find(Filter(tags={"detached": ("yes",)})).jobs
    assert [each.id for each in found] == [job.id]


def test_a_task_that_is_declared_can_be_detached_elsewhere(app):
    @app.declare("media:render", detached=True)
    def render() -> None: ...

    assert render.job().tags == {"detached": "yes"}
    assert app.known_tasks(detached=True) == {}


def test_ordinary_workers_do_not_know_detached_tasks(app):
    """A12: so they are never handed one."""

    @app.task(name="travel", detached=True, aliases=("journey",), version=2)
    def travel() -> None: ...

    @app.task(name="walk")
    def walk() -> None: ...

    assert app.known_tasks(detached=False) == {"walk": 1}
    assert app.known_tasks(detached=True) == {"travel": 2, "journey": 2}
    assert app.known_tasks().keys() == {"walk", "travel", "journey"}


def test_in_tests_they_run_like_any_other(app):
    @app.task(name="travel", detached=True)
    def travel(stops: int) -> int:
        return stops

    with app.testing() as t:
        handle = travel.enqueue(3)
        t.drain()
        assert handle.result(timeout=0) == 3


@pytest.mark.parametrize("options", [{"max_memory": 1 << 30}, {"max_cpu": 60}])
def test_limits_are_for_tasks_with_a_process_of_their_own(app, options):
    with pytest.raises(Refused, match="detached=True"):
        app.task(**options)(job_id)
    with pytest.raises(Refused, match="max_memory=0: bytes"):
        app.task(detached=True, max_memory=0)(job_id)


def test_a_lock_is_held_by_one_and_leaves_no_file(folder):
    """A4, A6."""
    job = job_id()
    held = folder.lock(job)
    assert held is not None
    assert folder.lock(job) is None

    folder.unlock(job, held)

    again = folder.lock(job)
    assert again is not None
    folder.unlock(job, again)
    assert list(folder.path.iterdir()) == []


def test_a_lock_whose_file_was_removed_is_nobodys(folder):
    """A40: two that are not kept apart by one file would both go on."""
    job = job_id()
    held = folder.lock(job)
    assert held is not None
    folder.file(job, "lock").unlink()

    second = folder.lock(job)

    assert second is not None
    assert folder.file(job, "lock").stat().st_ino == os.fstat(second).st_ino
    os.close(held)
    folder.unlock(job, second)


def test_a_process_is_told_by_more_than_its_number(folder):
    """TRUST 5: numbers are given out again; hosts and boots have their own."""
    run = this_process(job_id())

    assert run.alive
    for other in ({"started": run.started + 1}, {"boot": "another"}):
        gone = msgspec.structs.replace(run, **other)
        assert (gone.on_this_host, gone.alive) == (True, False)
    for other in ({"host": "another"}, {"namespace": "another"}):
        assert not msgspec.structs.replace(run, **other).on_this_host  # nobody's to judge


def test_who_runs_an_attempt_is_written_apart_for_each(folder):
    job, other = job_id(), job_id()
    first, second, third = this_process(job), this_process(job, 2), this_process(other)
    for run in (second, third, first):
        folder.write(run)
    folder.file(other, "3.json").write_text("{")  # cut off

    assert folder.runs(job) == [first, second]
    assert set(folder.jobs()) == {job, other}
    folder.remove_run(second)
    assert folder.runs(job) == [first]


def test_files_of_a_job_are_forgotten_unless_a_process_has_it(folder):
    job = job_id()
    folder.write(this_process(job))
    folder.file(job, "log").write_text("line")
    held = folder.lock(job)
    assert held is not None

    assert not folder.remove_job(job)
    os.close(held)
    assert folder.remove_job(job)
    assert list(folder.path.iterdir()) == []


def test_what_cannot_be_removed_is_logged_and_in_nobodys_way(folder, caplog):
    job = job_id()
    (folder.path / f"{job}.odd").mkdir()

    assert not folder.remove_job(job)

    assert f"job {job}: not all of its files can be removed" in caplog.text
    (folder.path / f"{job}.odd").rmdir()
    assert folder.remove_job(job)


def test_the_files_are_the_users_alone_and_say_nothing_of_the_store(folder, monkeypatch):
    """A23: two stores do not meet in them, though their jobs had one id."""
    monkeypatch.setenv("PENSTOCK_STATE", "/var/lib/shop")
    url = "postgresql://ada:secret@db/shop"

    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert state_folder(url) == state_folder("postgresql://ada:other@db/shop")
    assert state_folder(url) != state_folder("postgresql://ada:secret@db/other")
    assert "secret" not in str(state_folder(url))
    job, other = job_id(), StateFolder(folder.path / "another store")
    other.make()
    held = [each.lock(job) for each in (folder, other)]
    assert None not in held
    for each, lock in zip((folder, other), held, strict=True):
        each.unlock(job, lock)
    with pytest.raises(Refused, match="PENSTOCK_STATE"):
        StateFolder(Path("/proc/none")).make()


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (succeeded(), Exit.DONE),
        (Outcome(State.READY, "repeat", started_at=1.0), Exit.DONE),
        (msgspec.structs.replace(failed("ValueError"), started_at=1.0), Exit.RAISED),
        (Outcome(State.READY, "timeout", started_at=1.0), Exit.RAISED),
        (Outcome(State.CANCELLED, "cancelled", started_at=1.0), Exit.NO_OUTCOME),
        (msgspec.structs.replace(lapsed(), started_at=1.0), Exit.NO_OUTCOME),
        (put_back("paused"), Exit.NO_OUTCOME),
        (Outcome(State.WAITING, "jobs", started_at=1.0), Exit.WAITS),
    ],
)
def test_an_outcome_has_its_exit_code(outcome, code):
    """A26."""
    assert code_of(outcome) is code


def test_exit_codes_are_promised():
    """A26, A37."""
    assert [code.value for code in Exit] == [0, 100, 101, 102, 103, 104]
    assert describe_keeper_exit(100) == "another process runs the job"
    assert (describe_keeper_exit(-9), describe_keeper_exit(7)) == ("SIGKILL", "exit code 7")


def died(app: App, **fields: Any) -> Outcome:
    @app.task(name="travel", detached=True, retry=fields.pop("retry", None))
    def travel() -> None: ...

    job = msgspec.structs.replace(travel.job(), **fields)
    return outcome_after_crash(travel, job, "SIGKILL", 100.0, 90.0)


def test_a_death_is_an_error_that_the_retry_rule_answers(app):
    """A8, A35: as often as it says."""
    outcome = died(app, retry=Retry(limit=2, delay=7), failures=1)

    assert (outcome.state, outcome.reason, outcome.run_at) == (State.READY, "error", 107.0)
    assert (outcome.failures, outcome.lapses) == (1, 0)
    assert outcome.error == "ProcessDied: its process ended without an outcome: SIGKILL"


@pytest.mark.parametrize(
    "fields",
    [{}, {"retry": Retry(limit=2), "failures": 2}, {"retry": Retry(on=(OSError,))}],
)
def test_what_the_rule_does_not_answer_is_a_lapse(app, fields):
    """A8, A13: so that one without a rule is resumed as well."""
    outcome = died(app, **fields)

    assert (outcome.state, outcome.failures, outcome.lapses) == (State.READY, 0, 1)
    assert "SIGKILL" in (outcome.error or "")


def lost_at(*times: float) -> list[Event]:
    return [Event(position="1", kind="attempt", at=at, reason="crashed") for at in times]


@pytest.mark.parametrize(
    ("lost", "kept", "spared"),
    [
        ([2000.0], [("snapshot", 1700.0)], True),
        ([2000.0], [("step", 1700.0), ("log", 1900.0)], True),
        ([2000.0], [("log", 1900.0)], False),
        ([1100.0], [("snapshot", 1090.0)], False),
        ([2000.0, 2030.0], [("snapshot", 2020.0)], False),
        ([2000.0, 9000.0], [("snapshot", 8000.0)], True),
        ([], [("snapshot", 1700.0)], False),
    ],
)
def test_what_gets_on_before_its_host_is_lost_keeps_its_crash_budget(lost, kept, spared):
    """A13: weeks of work on hosts that are replaced; but what dies at once is not spared."""
    notes = [Note(kind, at=at) for kind, at in kept]

    assert made_progress(notes, lost_at(*lost), enqueued_at=1000.0) is spared


def test_one_that_runs_at_most_once_is_not_retried_after_its_death(app):
    outcome = died(app, retry=Retry(limit=2), at_most_once=True)

    assert outcome.lapses == 1


def test_on_a_schedule_it_is_there_when_its_time_has_come(app):
    """A16, A42, C23: enqueued by hand it is seen at once, by a schedule at its slot."""

    @app.schedule(every=3600.0)
    @app.task(name="nightly", detached=True)
    def nightly() -> None: ...

    with app.testing() as t:
        t.drain()
        assert list(t.broker.find(Filter()).jobs) == []
        t.clock.advance(seconds=3601)
        t.drain()
        [job] = t.broker.find(Filter(tags={"detached": ("yes",)})).jobs
    assert job.task == "nightly"


def test_a_log_that_grows_too_large_keeps_its_beginning_and_its_end(tmp_path):
    """A43: and says how much is missing, however often it was cut."""
    path = tmp_path / "log"
    lines = [f"line {number:06d}\n".encode() for number in range(3000)]
    path.write_bytes(b"".join(lines[:1000]))
    assert not cut_to_size(path, most=12_000, kept=4_800)

    for first in range(1000, 3000, 500):
        with path.open("ab") as file:
            file.writelines(lines[first : first + 500])
        assert cut_to_size(path, most=12_000, kept=4_800)

    text = path.read_bytes()
    assert len(text) < 12_000
    beginning, cut, end = text.partition(b"\n[")
    assert beginning == b"".join(lines[:400])
    assert text.endswith(b"".join(lines[2600:]))
    assert cut
    assert int(end.partition(b" ")[0]) == sum(map(len, lines)) - 2 * 4_800


def test_what_is_appended_while_a_log_is_cut_goes_on_behind_it(tmp_path):
    path = tmp_path / "log"
    with path.open("ab", buffering=0) as writer:
        writer.write(b"a" * 20_000)
        assert cut_to_size(path, most=12_000, kept=4_800)
        writer.write(b"the end")

    text = path.read_bytes()
    assert text.endswith(b"athe end")
    assert b"\0" not in text


def test_a_log_that_is_not_there_is_not_cut(tmp_path):
    assert not cut_to_size(tmp_path / "log")


_TAKES_IN_A_STRAY = """
import os, subprocess, sys, time
from penstock.worker.detached.process_limits import ProcessLimits
from penstock.worker.detached.processes import become_subreaper, reap_orphans

become_subreaper()
burn = "import time\\nwhile time.process_time() < 0.3: pass"
start = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {burn!r}])"
subprocess.run([sys.executable, "-c", start], check=True)
os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
reap_orphans(own=0)
print(ProcessLimits(cpu=0.25).exceeded(os.getpid()))
print(ProcessLimits(cpu=60).exceeded(os.getpid()))
"""


def test_processor_time_of_what_outlived_its_parents_counts():
    """TRUST 5: it is in nobody's count but that of the process which took it in."""
    command = [sys.executable, "-c", _TAKES_IN_A_STRAY]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout

    first, second = printed.splitlines()
    assert "more than its max_cpu of 0.25" in first
    assert second == "None"
