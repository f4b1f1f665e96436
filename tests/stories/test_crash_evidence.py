"""A job that ends its process leaves evidence: how it ended, its last log lines, its memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from penstock import JobFailed, State
from penstock.web.access import Role
from tests.stories.conftest import TASKS_FILE, Story, eventually, whatever_the_store
from tests.web.conftest import served
from tests.web.test_pages import text_of

HOOKED = f"""
import sys

sys.path.insert(0, {str(TASKS_FILE.parent)!r})
from story_tasks import ledger, make_app

app = make_app()


def hear(kind):
    def hook(job, outcome):
        ledger(f"hook-{{kind}}", job.id, outcome.state, outcome.reason)
        raise SystemExit(3)

    app.hook(kind)(hook)


for kind in ("failed", "crashed", "expired", "cancelled", "timed_out"):
    hear(kind)
"""


@pytest.fixture
def hooked(tmp_path: Path) -> str:
    """The app of the stories with hooks that write down what they hear, and then raise."""
    file = tmp_path / "hooked_tasks.py"
    file.write_text(HOOKED)
    return f"{file}:app"


def test_a_crash_leaves_its_signal_memory_log_lines_and_stack(story: Story):
    handle = story.task("fall").enqueue()
    story.start()

    with pytest.raises(JobFailed, match=r"failed \(crashed\).*SIGSEGV"):
        handle.result(timeout=90)

    attempts = story.attempts(handle.id)
    assert [event.reason for event in attempts] == ["crashed"] * 3
    for number, event in enumerate(attempts, 1):  # the first in a child, the others on their own
        assert event.error is not None
        first, _, rest = event.error.partition("\n")
        assert first.startswith("ProcessDied: the process that ran it died: SIGSEGV; it used ")
        assert int(first.partition("it used ")[2].partition(" MB")[0]) > 10
        assert f"WARNING about to fall over {number}" in rest
        assert "story_tasks.py" in rest, rest
        assert " in fall" in rest
    job = story.broker.get(handle.id)
    assert job.error == attempts[-1].error
    assert "SIGSEGV" in story.broker.why(handle.id).sentence
    for command in ("why", "history"):
        said = subprocess.run(
            [sys.executable, "-m", "penstock", command, handle.id, "--url", story.url],
            env=story.environment(),
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert "SIGSEGV" in said.replace("\n", ""), (command, said)
    with served(story.broker) as web:
        page: httpx.Response = web.browser(Role.VIEW).get(f"/jobs/{handle.id}")
    assert "about to fall over 3" in text_of(page.text)


@whatever_the_store
def test_an_exit_code_is_evidence_too(story: Story):
    handle = story.task("fall").enqueue("7")
    story.start()

    with pytest.raises(JobFailed, match="exit code 7"):
        handle.result(timeout=90)

    assert {("exit code 7" in (event.error or "")) for event in story.attempts(handle.id)} == {True}


@whatever_the_store
def test_what_a_job_with_secrets_logged_is_not_kept(story: Story):
    handle = story.task("fall_with_a_secret").enqueue("canary-4711")
    story.start()

    with pytest.raises(JobFailed, match="SIGSEGV"):
        handle.result(timeout=90)

    for event in story.attempts(handle.id):
        assert "canary" not in (event.error or "")
        assert "Last log lines" not in (event.error or "")


@whatever_the_store
def test_jobs_beside_it_do_not_show_what_another_job_logged(story: Story):
    beside = story.task("sleep_at_first").enqueue()
    fleet = story.start(threads=4)
    eventually(lambda: story.ledger("sleep_at_first"))
    story.task("fall").enqueue()
    assert beside.result(timeout=90) == 2

    [crashed, succeeded] = story.attempts(beside.id)
    assert succeeded.state is State.SUCCEEDED
    assert "SIGSEGV" in (crashed.error or ""), fleet.output()
    assert "about to fall" not in (crashed.error or "")


@whatever_the_store
def test_a_worker_that_vanished_with_its_supervisor_is_named(story: Story):
    handle = story.task("nap").enqueue(1, seconds=60.0)
    fleet = story.start(lease=3.0)
    eventually(lambda: story.ledger("nap"))
    [child] = fleet.children()

    os.kill(fleet.pid, signal.SIGKILL)
    os.kill(child, signal.SIGKILL)
    story.start(lease=3.0)
    [event] = eventually(lambda: story.attempts(handle.id))

    assert event.reason == "crashed"
    assert (event.error or "").startswith("ProcessDied: ")


@whatever_the_store
def test_hooks_hear_of_crashed_expired_and_cancelled_ends_and_their_exit_changes_nothing(
    story: Story, hooked: str
):
    expired = story.task("nap").options(expires=0.5).enqueue(1)
    early = story.task("nap").options(delay=300).enqueue(2)
    fall = story.task("fall").enqueue()
    fleet = story.start(target=hooked, threads=2)
    running = story.task("nap").enqueue(3, seconds=60.0)
    with pytest.raises(JobFailed):
        fall.result(timeout=90)
    eventually(lambda: len(story.ledger("nap")) >= 1 and running.state() is State.RUNNING)
    running.cancel()
    early.cancel()

    eventually(lambda: story.ledger("hook-cancelled"))
    eventually(lambda: len(story.ledger("hook-crashed")) >= 3)

    crashed = [line[1:4] for line in story.ledger("hook-crashed") if line[1] == fall.id]
    assert crashed == [
        [fall.id, "ready", "crashed"],
        [fall.id, "ready", "crashed"],
        [fall.id, "failed", "crashed"],
    ]
    if expired.state() is State.CANCELLED:  # else a worker was quick enough
        [line] = eventually(lambda: story.ledger("hook-expired"))
        assert line[1:4] == [expired.id, "cancelled", "expired"]
    assert [line[1:4] for line in story.ledger("hook-cancelled")] == [
        [running.id, "cancelled", "cancelled"]
    ]
    assert fleet.process.poll() is None
    assert story.task("nap").enqueue(4).result(timeout=30) == 4


@whatever_the_store
def test_hooks_hear_of_the_ends_of_jobs_in_processes_of_their_own(story: Story, hooked: str):
    """No call of the task returns there: the worker makes the outcome."""
    endless = story.task("meet_apart").enqueue(99)
    late = story.task("warned_process").enqueue()
    story.start(target=hooked, threads=2)
    eventually(lambda: story.ledger("meet_apart"))

    endless.cancel()

    [cancelled] = eventually(lambda: story.ledger("hook-cancelled"))
    assert cancelled[1:4] == [endless.id, "cancelled", "cancelled"]
    [timed_out] = eventually(lambda: story.ledger("hook-timed_out"))
    assert timed_out[1:4] == [late.id, "failed", "timeout"]
    eventually(lambda: endless.state() is State.CANCELLED)
