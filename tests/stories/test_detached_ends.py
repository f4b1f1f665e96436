"""How detached jobs end: raised, cancelled, out of time, drained; and nothing is left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from penstock import State
from penstock.broker.views import WorkerRow
from penstock.testing.conformance.factories import claim_for
from penstock.worker.detached.exit_codes import Exit
from penstock.worker.detached.keeper import KeeperConfig
from penstock.worker.detached.log_file import MOST_BYTES
from tests.stories.conftest import alive, eventually
from tests.stories.detached_story import PATIENCE, TASKS_FILE, DetachedStory


@pytest.fixture
def story(sqlite_url: str, tmp_path: Path) -> Iterator[DetachedStory]:
    story = DetachedStory(tmp_path, sqlite_url)
    yield story
    story.close()


def start_again(
    story: DetachedStory, job: str, stderr: int = subprocess.DEVNULL, **told: object
) -> subprocess.Popen[bytes]:
    """Start a keeper by hand, as a second starter would."""
    fields: dict[str, object] = {
        "target": f"{TASKS_FILE}:app",
        "job": job,
        "attempt": 1,
        "worker": "another",
        "rules": 0,
        "folder": str(story.files.path),
        "lease": 5.0,
        "grace": 1.0,
        **told,
    }
    config = msgspec.json.encode(msgspec.convert(fields, KeeperConfig)).decode()
    command = [sys.executable, "-m", "penstock.worker", "keep", config]
    return subprocess.Popen(command, env=story.environment(), stderr=stderr)


def nothing_left(story: DetachedStory) -> bool:
    """No process, no lock and no row of a detached job."""
    rows = [row for row in story.broker.workers() if row.running]
    files = [path for path in story.files.path.glob("*.*") if path.suffix != ".log"]
    return not (story.marked() or rows or files)


def test_a_second_starter_of_a_job_does_nothing_and_says_so(story: DetachedStory):
    """A4, A5, A12, A26: exit code 100, and no effect."""
    handle = story.task("travel").enqueue(1)
    story.start()
    run = story.run_of(handle.id)
    story.wait_for("travel", 1)

    second = start_again(story, handle.id)

    assert second.wait(PATIENCE) == Exit.LOCKED == 100
    assert story.files.runs(handle.id) == [run]
    story.tell("go-0")
    assert handle.result(timeout=PATIENCE) == 1
    assert len(story.ledger("travel")) == 1


def test_a_job_that_has_ended_is_not_run_again_by_a_late_starter(story: DetachedStory):
    """A14, A29: done before it begins: exit code 0, and no work."""
    handle = story.task("travel").enqueue(0)
    story.start()
    assert handle.result(timeout=PATIENCE) == 0
    eventually(lambda: nothing_left(story), PATIENCE)

    assert start_again(story, handle.id).wait(PATIENCE) == Exit.DONE == 0

    assert len(story.ledger("travel")) == 1


def test_a_job_or_code_that_is_not_there_has_an_exit_code_of_its_own(story: DetachedStory):
    """A27, A37: missing metadata is told apart from a lock that is held."""
    unknown = story.task("travel").job(1).id
    story.broker.count()

    assert start_again(story, unknown).wait(PATIENCE) == Exit.MISSING == 103
    assert start_again(story, unknown, target="nowhere:app").wait(PATIENCE) == Exit.MISSING


def test_one_that_another_row_holds_is_left_alone(story: DetachedStory):
    """A12: the row in the store decides, also where the lock of this host is free."""
    handle = story.task("travel").enqueue(1)
    story.start()
    story.wait_for("travel", 1)
    story.files.file(handle.id, "lock").unlink()

    assert start_again(story, handle.id).wait(PATIENCE) == Exit.LOCKED

    assert len(story.ledger("travel")) == 1


def test_one_that_is_cancelled_while_its_code_is_loaded_never_begins(story: DetachedStory):
    """A46: and its log tells of no error."""
    handle = story.task("sit").enqueue("never")
    [held] = claim_for(story.broker, WorkerRow(id="row", tasks={"sit": 1}), limit=1)
    handle.cancel()

    keeper = start_again(story, handle.id, subprocess.PIPE, worker="row", attempt=held.attempt)
    _, log = keeper.communicate(timeout=PATIENCE)

    assert keeper.returncode == Exit.NO_OUTCOME
    assert handle.state() is State.CANCELLED
    assert b"Traceback" not in log, log.decode()
    assert nothing_left(story)


def test_neither_its_command_nor_its_files_tell_where_the_store_is(story: DetachedStory):
    """TRUST 7: a URL may hold a password, and everybody here can read a command."""
    handle = story.task("travel").enqueue(1)
    story.start()
    run = story.run_of(handle.id)
    [line] = story.wait_for("travel")

    commands = [Path(f"/proc/{pid}/cmdline").read_text() for pid in (run.pid, line[-1])]
    files = [path.read_text() for path in story.files.path.glob("*.*")]

    assert len(files) == 3
    assert not [text for text in (*commands, *files) if "jobs.db" in text]


def test_nothing_is_claimed_while_the_folder_has_no_room(story: DetachedStory):
    """TRUST 5, full disk: it is said, and the job begins when there is room again."""
    handle = story.task("travel").enqueue(0)
    story.files.make()
    in_the_way = story.files.path / ".trial"
    in_the_way.mkdir()

    fleet = story.start()
    eventually(lambda: "PENSTOCK_STATE" in fleet.output(), PATIENCE)
    assert story.broker.get(handle.id).attempt == 0
    in_the_way.rmdir()

    assert handle.result(timeout=PATIENCE) == 0
    assert "the store does not answer" not in fleet.output()


def test_a_start_that_cannot_write_its_files_is_not_counted(story: DetachedStory):
    """TRUST 5: a job that has not begun has not failed, however often that is so.

    A full disk is one reason; here a folder stands where its file is to be.
    """
    handle = story.task("travel").enqueue(0)
    story.files.make()
    for attempt in range(1, 4):
        (story.files.path / f"{handle.id}.{attempt}.draft").mkdir()

    story.start()

    assert handle.result(timeout=PATIENCE) == 0
    [end] = story.attempts(handle.id)
    assert (end.attempt, end.failures, end.lapses) == (4, 0, 0)


def test_jobs_that_raise_have_their_error_stored(story: DetachedStory):
    """A10, A26, A30, A45: every one of them, of whichever queue."""
    fail = story.task("fail")
    handles = [fail.options(queue=f"queue-{n % 2}").enqueue(n) for n in range(4)]
    fleet = story.start(drain=True, detached=2)

    assert fleet.wait(PATIENCE * 2) == 0, fleet.output()
    for n, handle in enumerate(handles):
        job = story.broker.get(handle.id)
        assert job.state is State.FAILED
        assert job.error.startswith(f"ValueError: number {n}\n\nTraceback")
        line = f"failed: ValueError: number {n} (job {handle.id}, attempt 1; not tried again)"
        assert f"{line}\nTraceback (most" in fleet.output()
        assert f"{line}\nTraceback (most" in story.log(handle.id)
    assert fleet.output().count("the function raised") == 4


def test_a_process_that_leaves_without_an_outcome_is_not_done(story: DetachedStory):
    """A26, A27: exit code 0 of the function's process says nothing; the keeper's is 102."""
    handle = story.task("leave").enqueue()
    fleet = story.start(drain=True)

    assert fleet.wait(PATIENCE) == 0, fleet.output()
    job = story.broker.get(handle.id)
    assert (job.state, job.reason) == (State.FAILED, "lost")
    assert "exit code 102" in story.log(handle.id)
    assert len(story.ledger("leave")) == 1


def test_a_job_that_prints_without_end_fills_no_disk(story: DetachedStory):
    """A43: its log has a most; the beginning and the end of it are there."""
    handle = story.task("chatter").enqueue(40_000)
    fleet = story.start(drain=True)

    assert fleet.wait(PATIENCE) == 0, fleet.output()
    assert handle.state() is State.SUCCEEDED
    assert story.files.file(handle.id, "log").stat().st_size <= MOST_BYTES
    text = story.log(handle.id)
    assert "the first word\n00000000" in text
    assert "00039999" in text
    assert "the last word" in text
    assert text.count("bytes were left out here") == 1


@pytest.mark.parametrize("name", ["sit", "sit_async"])
def test_a_cancelled_job_is_interrupted_and_may_tidy_up(story: DetachedStory, name: str):
    """A46: graceful first; then nothing is left of it."""
    handle = story.task(name).enqueue("never")
    fleet = story.start()
    story.wait_for("sit")

    handle.cancel()

    story.wait_for("rose")
    eventually(lambda: handle.state() is State.CANCELLED, PATIENCE)
    eventually(lambda: nothing_left(story), PATIENCE, fleet.output())


def test_a_process_that_is_told_to_stop_hands_its_job_back(story: DetachedStory):
    """A52: the function sees it, nothing is counted, and the job runs again."""
    handle = story.task("sit").enqueue("rise")
    story.start()
    story.wait_for("sit")

    os.kill(story.run_of(handle.id).pid, signal.SIGTERM)

    story.wait_for("rose")
    story.wait_for("sit", 2)
    story.tell("rise")
    assert handle.result(timeout=PATIENCE) is None
    ends = [(event.state, event.reason) for event in story.attempts(handle.id)]
    assert ends == [(State.READY, "shutdown"), (State.SUCCEEDED, None)]
    assert story.attempts(handle.id)[-1].lapses == story.attempts(handle.id)[-1].failures == 0


def test_one_that_listens_to_nothing_is_killed_with_all_that_it_started(story: DetachedStory):
    """A46, I14: also a grandchild in a session of its own whose parent is gone."""
    handle = story.task("deaf").enqueue()
    story.start(grace=0.5)
    story.wait_for("deaf")
    assert len(story.marked()) >= 2

    handle.cancel()

    eventually(lambda: handle.state() is State.CANCELLED, PATIENCE)
    eventually(lambda: nothing_left(story), PATIENCE)


def test_what_a_killed_keeper_leaves_behind_is_ended_before_the_job_is_resumed(
    story: DetachedStory,
):
    """A6, I14: the function dies with its keeper, and the worker ends what outlived both."""
    handle = story.task("deaf").enqueue()
    story.start()
    story.wait_for("deaf")
    before = story.marked()

    os.kill(story.run_of(handle.id).pid, signal.SIGKILL)

    story.wait_for("deaf", 2)
    assert not any(alive(pid) for pid in before)


def test_a_detached_job_has_a_timeout_like_any_other(story: DetachedStory):
    """A10: exceeds its time, and ends as timed out; also in a sleep."""
    handle = story.task("oversleep").enqueue()
    fleet = story.start(drain=True)

    assert fleet.wait(PATIENCE) == 0, fleet.output()
    job = story.broker.get(handle.id)
    assert (job.state, job.reason) == (State.FAILED, "timeout")


@pytest.mark.parametrize("name", ["grow", "burn"])
def test_one_that_uses_more_than_it_may_is_killed_and_says_of_what(story: DetachedStory, name: str):
    """TRUST 5: memory and processor time, of the whole tree."""
    handle = story.task(name).enqueue()
    fleet = story.start(drain=True)

    assert fleet.wait(PATIENCE) == 0, fleet.output()
    job = story.broker.get(handle.id)
    assert (job.state, job.reason) == (State.FAILED, "lost")
    assert {"grow": "max_memory of 200", "burn": "max_cpu of 0.2"}[name] in job.error


def test_a_worker_that_is_stopped_waits_for_no_detached_job_and_one_that_drains_for_all(
    story: DetachedStory,
):
    """A2, C11: adopted ones count, too."""
    handle = story.task("travel").enqueue(1)
    first = story.start()
    run = story.run_of(handle.id)

    first.signal(signal.SIGTERM)
    assert first.wait(PATIENCE) == 0
    assert alive(run.pid)
    second = story.start(drain=True)
    eventually(lambda: "is adopted" in second.output(), PATIENCE)
    assert second.process.poll() is None
    story.tell("go-0")

    assert second.wait(PATIENCE) == 0, second.output()
    assert handle.state() is State.SUCCEEDED
    assert len(story.ledger("travel")) == 1


def test_steps_that_die_at_random_come_to_the_right_total(story: DetachedStory):
    """A26, A33, A35: each step is counted, whatever happened after it; each end has its code."""
    handle = story.task("stumble_on").enqueue(
        3, 6
    )  # raises, is killed, leaves, is killed, and ends
    story.start(drain=True)

    assert handle.result(timeout=2 * PATIENCE) == sum(range(3))
    counted = Counter(line[2] for line in story.ledger("counted"))
    assert counted == {str(stop): 1 for stop in range(3)}

    def codes() -> list[str]:
        return re.findall(r"has ended, exit code (\d+)", story.log(handle.id))

    eventually(lambda: len(codes()) == 5, PATIENCE)
    assert Counter(codes()) == {"0": 1, "101": 1, "102": 3}


def test_what_a_step_enqueues_is_queued_once_though_it_is_killed_before_it_is_noted(
    story: DetachedStory,
):
    """A33, A34: killed between queueing and noting, at each of the parts."""
    handle = story.task("hand_out").enqueue(2)
    fleet = story.start(drain=True)

    assert fleet.wait(2 * PATIENCE) == 0, fleet.output()
    assert handle.state() is State.SUCCEEDED
    assert Counter(line[1] for line in story.ledger("handed")) == {"0": 2, "1": 2}
    assert Counter(line[1] for line in story.ledger("echo")) == {"0": 1, "1": 1}


def test_a_parent_that_waits_holds_no_process_and_queues_each_part_once(story: DetachedStory):
    """A33, C17: one slot for the parent and its detached parts; killed at each of its stages."""
    handle = story.task("gather").enqueue(2)
    first = story.start(detached=1)
    story.wait_for("counted-up")  # in the one slot that there is

    parent = story.broker.get(handle.id)
    assert (parent.state, parent.reason, parent.attempt) == (State.WAITING, "jobs", 3)
    assert [run.job for run in story.files.runs() if run.alive] != [handle.id]
    assert not story.files.runs(handle.id)
    story.kill_group(first)
    second = story.start(detached=1, drain=True)
    story.tell("count-0")
    story.tell("count-1")

    assert second.wait(2 * PATIENCE) == 0, second.output()
    assert handle.result(timeout=0) == 2
    assert [line[1] for line in story.ledger("gather")] == [*"12345678"]
    assert Counter(line[1] for line in story.ledger("counted-up")) == {"0": 1, "1": 1}
    assert Counter(line[1] for line in story.ledger("echo")) == {"0": 1, "1": 1}
    assert len(story.ledger("added")) == 1
    [*before, last] = story.attempts(handle.id)
    assert [(event.state, event.reason) for event in before if event.reason == "jobs"] == [
        (State.READY, "jobs")
    ] * 2
    assert (last.state, last.attempt, last.lapses) == (State.SUCCEEDED, 8, 2)
    codes = Counter(re.findall(r"has ended, exit code (\d+)", story.log(handle.id)))
    assert codes == {"102": 3, "104": 2, "0": 1}  # and two keepers were killed


def test_the_files_of_a_job_go_when_the_store_forgets_it(story: DetachedStory):
    """A43, I14: its log is kept with the job, and pruned with it."""
    handle = story.task("travel").enqueue(0)
    first = story.start(drain=True)
    assert first.wait(PATIENCE) == 0, first.output()
    assert story.files.file(handle.id, "log").exists()

    story.broker.act("delete", [handle.id])
    second = story.start()

    eventually(lambda: not list(story.files.path.glob("*.*")), PATIENCE, second.output())
