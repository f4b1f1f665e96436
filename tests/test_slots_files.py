"""The files that outlive a group of workers: who is dead, what had begun, and who is left alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from penstock.job import Job
from penstock.worker.detached.processes import ProcessId
from penstock.worker.running_slots import RunningSlots, SlotsOwner
from penstock.worker.slots_files import SlotsFiles

JOB = Job(task="send", attempt=2)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlotsFiles:
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path))
    return SlotsFiles("sqlite:///jobs.db")


@pytest.fixture
def ended() -> ProcessId:
    """A process of this host that has ended."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    me = ProcessId.own()
    stat = Path(f"/proc/{process.pid}/stat").read_bytes().rpartition(b")")[2].split()
    process.communicate(b"\n")
    return msgspec.structs.replace(me, pid=process.pid, started=int(stat[19]))


@pytest.fixture
def running() -> ProcessId:
    return ProcessId.own()


def left(files: SlotsFiles, worker: str, *processes: ProcessId) -> None:
    """Slots with one job in them, as these processes leave them: supervisor, then child."""
    slots = files.make(worker, 3)
    for owner, process in zip(SlotsOwner, processes, strict=False):
        slots.sign(owner, process)
    slots.hold(1, JOB, 0.0)
    slots.close()


def found(files: SlotsFiles) -> list[tuple[str, list[str]]]:
    return [(worker, [job.id for job in held]) for worker, held in files.left_behind(())]


def test_a_worker_whose_child_and_supervisor_have_ended_is_found_with_what_had_begun(files, ended):
    left(files, "worker-1", ended, ended)

    assert found(files) == [("worker-1", [JOB.id])]
    assert files.left_behind({"worker-1"}) == []

    files.remove("worker-1")
    assert found(files) == []


def test_a_supervisor_that_is_there_reports_its_children_itself(files, ended, running):
    left(files, "worker-1", running, ended)

    assert found(files) == []


def test_a_child_that_outlives_its_supervisor_is_left_to_finish(files, ended, running):
    left(files, "worker-1", ended, running)

    assert found(files) == []


@pytest.mark.parametrize("field", ["host", "boot", "namespace"])
def test_a_process_that_cannot_be_looked_at_from_here_is_not_declared_dead(files, ended, field):
    elsewhere = msgspec.structs.replace(ended, **{field: "another"})
    left(files, "worker-1", elsewhere, elsewhere)

    assert found(files) == []

    old = files.path / "worker-1"
    os.utime(old, (0, 0))
    assert found(files) == []
    assert not old.exists()


def test_a_later_process_with_the_same_number_is_another_one(files, running):
    earlier = msgspec.structs.replace(running, started=running.started - 1)
    left(files, "worker-1", earlier, earlier)

    assert found(files) == [("worker-1", [JOB.id])]


def test_what_is_no_file_of_slots_is_left_alone(files, ended):
    left(files, "worker-1", ended)
    (files.path / "notes").write_text("something else")
    (files.path / "unsigned").symlink_to(files.path / "worker-1")
    files.make("unsigned-2", 3).close()

    assert [worker for worker, _ in found(files)] == ["worker-1"]
    assert (files.path / "notes").exists()


def test_slots_are_in_memory_where_no_file_can_be_written(files, tmp_path, caplog):
    (tmp_path / files.path.parent.name).write_text("a file, and no folder")

    for worker in ("worker-1", "worker-2"):
        slots = files.make(worker, 3)
        slots.hold(0, JOB, 0.0)
        assert [job.id for job in slots.held()] == [JOB.id]
        slots.close()

    assert found(files) == []
    assert caplog.text.count("the state folder cannot be used") == 1


def test_slots_in_a_file_have_all_their_blocks(files):
    """A hole would be filled when a job starts, and on a full disk that kills the child."""
    slots = files.make("worker-1", 3)

    status = os.fstat(slots.descriptor)
    assert status.st_blocks * 512 >= status.st_size
    read = RunningSlots.read(os.dup(slots.descriptor))
    assert read is not None
    assert read.count == 3
    read.close()
    slots.close()
