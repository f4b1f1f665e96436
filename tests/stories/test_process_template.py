"""After a crash many jobs need a process of their own: they are forked from one, the template.

So twenty that were killed together run again after one import of the app, and not after twenty.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import State
from penstock.broker.views import WorkerRow
from penstock.job import Job
from penstock.testing.conformance.factories import claim_for
from penstock.worker import idle_processes
from penstock.worker.idle_processes import IdleProcesses
from penstock.worker.job_process import JobProcess, ProcessGone, receive
from penstock.worker.last_words import LastWords
from tests.stories.conftest import TASKS_FILE, Story, alive, eventually, whatever_the_store
from tests.stories.test_killed_groups import LEASE, kill_at_once

TOGETHER = 20
STREAM_AND_PACKETS = (socket.SOCK_STREAM, socket.SOCK_SEQPACKET)
APP = f"""
import sys

sys.path.insert(0, {str(TASKS_FILE.parent)!r})
from story_tasks import ledger, make_app

ledger("imported", "shop")
app = make_app()
"""


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def app_file(folder: Path, further: str = "") -> str:
    file = folder / "shop.py"
    file.write_text(APP + textwrap.dedent(further))
    return f"{file}:app"


@pytest.fixture
def sqlite_story(
    tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Story]:
    """In this process as in a worker."""
    story = Story(tmp_path, sqlite_url)
    for name, value in story.environment().items():
        monkeypatch.setenv(name, value)
    yield story
    story.close()


@pytest.fixture
def processes() -> Iterator[IdleProcesses]:
    idle = IdleProcesses()
    yield idle
    idle.close()


def claimed(story: Story, name: str, count: int = 1) -> list[Job]:
    """So many jobs of this task, held by a worker."""
    for number in range(count):
        story.task(name).enqueue(number) if name == "nap" else story.task(name).enqueue()
    return claim_for(story.broker, WorkerRow(id="worker-1", tasks={name: 1}), limit=count)


def pid_of(story: Story, process: JobProcess) -> int:
    """The number of this process, by what a job of its own wrote down."""
    [job] = claimed(story, "nap")
    outcome = process.run(job, lambda _: None)
    assert outcome is not None
    assert outcome.state is State.SUCCEEDED
    return int(story.ledger("nap")[-1][-2])


@whatever_the_store
def test_twenty_that_were_killed_together_run_again_after_one_import(story: Story):
    target = app_file(story.folder)
    for number in range(TOGETHER):
        story.task("nap").enqueue(number, 300.0)
    options = {"target": target, "processes": 2, "threads": TOGETHER // 2, "lease": LEASE}
    fleet = story.start(**options)
    eventually(lambda: len(story.ledger("nap")) == TOGETHER)
    before = len(story.ledger("imported"))

    kill_at_once(fleet)
    again = story.start(**options)
    eventually(lambda: len(story.ledger("nap")) == 2 * TOGETHER)

    started = story.ledger("nap")[TOGETHER:]
    assert {line[1] for line in started} == set(map(str, range(TOGETHER)))
    pids = {int(line[-2]) for line in started}
    assert len(pids) == TOGETHER, "each in a process of its own"
    children = again.children()
    assert {parent_of(parent_of(pid)) for pid in pids} == set(children)
    # The supervisor, each child, and its template.
    assert len(story.ledger("imported")) - before == 1 + 2 * len(children)

    kill_at_once(again)
    eventually(lambda: not any(map(alive, pids)), what="what was forked ends with the worker")


def test_a_process_that_was_forked_leaves_evidence_and_harms_no_other(
    sqlite_story: Story, processes: IdleProcesses
):
    target = f"{TASKS_FILE}:app"
    bad, good = (processes.start(target, suspect=True) for _ in range(2))
    [fall] = claimed(sqlite_story, "fall")

    with pytest.raises(ProcessGone, match="SIGSEGV") as caught:
        bad.run(fall, lambda _: None)

    evidence = caught.value.evidence or ""
    assert "; it used " in evidence
    assert f"about to fall over {fall.attempt}" in evidence
    assert " in fall" in evidence
    assert good.alive
    pid = pid_of(sqlite_story, good)
    good.close()
    eventually(lambda: not Path(f"/proc/{pid}").exists())


def test_a_process_of_a_job_that_did_not_crash_imports_the_app_itself(processes: IdleProcesses):
    process = processes.start(f"{TASKS_FILE}:app", suspect=False)

    assert not process.forked
    process.close()


@pytest.mark.parametrize(
    "further",
    [
        "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()",
        "import socket; line = socket.socketpair()",
        "file = open('written', 'w')",
    ],
)
def test_an_app_whose_import_leaves_what_cannot_be_shared_is_not_forked(
    sqlite_story: Story, processes: IdleProcesses, further: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(sqlite_story.folder)
    target = app_file(sqlite_story.folder, further)

    first, second = (processes.start(target, suspect=True) for _ in range(2))

    assert (first.forked, second.forked) == (False, False)
    assert parent_of(pid_of(sqlite_story, first)) == os.getpid()
    # Of the template, and of each process: it is not asked a second time.
    assert len(sqlite_story.ledger("imported")) == 3
    for process in (first, second):
        process.close()


def test_an_app_that_appends_to_a_log_is_forked(
    sqlite_story: Story, processes: IdleProcesses, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(sqlite_story.folder)
    target = app_file(sqlite_story.folder, "log = open('log', 'a'); text = open('/etc/passwd')")

    process = processes.start(target, suspect=True)

    assert process.forked
    process.close()


def test_when_a_job_kills_the_template_no_other_is_made(
    sqlite_story: Story, processes: IdleProcesses, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(idle_processes, "IDLE_SECONDS", 0.0)
    target = f"{TASKS_FILE}:app"
    process = processes.start(target, suspect=True)
    template = parent_of(pid_of(sqlite_story, process))
    [job] = claimed(sqlite_story, "nap")

    os.kill(template, signal.SIGKILL)
    eventually(lambda: not process.alive)
    with pytest.raises(ProcessGone):
        process.run(job, lambda _: None)

    for _ in range(2):
        other = processes.start(target, suspect=True)
        assert not other.forked
        other.close()
        processes.trim()  # the dead one is forgotten


def test_it_ends_with_the_worker_and_so_does_what_it_forked(sqlite_story: Story):
    """Also if a job has forked a process that lives on, with the worker's end of each socket."""
    program = f"""
import os, signal
from penstock.worker.idle_processes import IdleProcesses

process = IdleProcesses().start({f"{TASKS_FILE}:app"!r}, suspect=True)
lives_on = os.fork()
if not lives_on:
    signal.pause()
print(process._process.pid, process._process._template._process.pid, lives_on, flush=True)
os.kill(os.getpid(), 9)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        *pids, lives_on = map(int, worker.stdout.readline().split())

        try:
            eventually(lambda: not any(map(alive, pids)))
        finally:
            os.kill(lives_on, signal.SIGKILL)


def test_a_worker_that_dies_while_it_asks_leaves_no_traceback(sqlite_story: Story):
    control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-m", "penstock.worker", "template", str(theirs.fileno())]
    template = subprocess.Popen(
        [*command, str(os.getpid()), f"{TASKS_FILE}:app"],
        pass_fds=[theirs.fileno()],
        stderr=subprocess.PIPE,
    )
    theirs.close()
    for listens in (False, True):
        jobs, status = (socket.socketpair(socket.AF_UNIX, kind) for kind in STREAM_AND_PACKETS)
        words = LastWords()
        socket.send_fds(control, [b"1"], [jobs[1].fileno(), words.descriptor, status[1].fileno()])
        for end in (*jobs[1:], *status[1:], *([] if listens else [jobs[0], status[0]])):
            end.close()
        words.close()
        if listens:
            assert status[0].recv(32), "the second one has started, so the first one has, too"
            assert receive(jobs[0]) == b""
            jobs[0].close()
            assert status[0].recv(32) == b"0"
            status[0].close()

    control.close()
    _, stderr = template.communicate(timeout=60)

    assert (template.returncode, stderr) == (0, b"")


def test_neither_is_kept_when_there_is_no_more_to_do(
    sqlite_story: Story, processes: IdleProcesses, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(idle_processes, "IDLE_SECONDS", 0.2)
    target = f"{TASKS_FILE}:app"
    process = processes.start(target, suspect=True)
    pid = pid_of(sqlite_story, process)
    template = parent_of(pid)
    processes.put(process)

    def over() -> bool:
        processes.trim()
        return not alive(pid) and not alive(template)

    eventually(over)
    another = processes.start(target, suspect=True)
    assert another.forked, "another template is made when it is needed"
    another.close()
