"""penstock detached: list, log, cancel, run; and `find --detached`."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios

import msgspec
import pytest

from penstock.broker.values import Wanted
from penstock.broker.views import Note, WorkerRow
from penstock.brokers import open_broker
from penstock.job import Outcome, State
from penstock.testing.conformance.factories import claim_for
from penstock.worker.detached.exit_codes import Exit
from penstock.worker.detached.state_folder import RunFile, StateFolder, state_folder

TASKS = """
import time
from pathlib import Path

from penstock import App, current_job

app = App()
app.file_task(Path(__file__).resolve().parent / "etl", name="etl")


@app.task(detached=True)
def travel(stops: int) -> int:
    print(f"attempt {current_job().attempt}")
    return stops


@app.task(detached=True)
def stumble() -> None:
    raise ValueError("a stone")


@app.task(detached=True)
def sit() -> None:
    print("seated")
    time.sleep(1e6)


@app.task
def add(a: int, b: int) -> int:
    return a + b
"""


@pytest.fixture
def trip(cli, monkeypatch):
    """A project with detached tasks, and a state folder in it."""
    monkeypatch.setenv("PENSTOCK_STATE", str(cli.folder / "state"))
    (cli.folder / "trip.py").write_text(TASKS)
    return cli


def enqueued(trip, *words):
    return trip.json("enqueue", *words)["id"]


def files(trip):
    return StateFolder(state_folder(f"sqlite:///{trip.folder / 'penstock.db'}"))


def on_terminal(trip, *words):
    """What a command writes to a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [sys.executable, "-m", "penstock", *words]
    with subprocess.Popen(command, cwd=trip.folder, stdout=theirs, stderr=subprocess.DEVNULL) as it:
        os.close(theirs)
        parts = []
        try:
            while part := os.read(ours, 1 << 16):
                parts.append(part)
        except OSError:  # as the kernel tells of its end
            pass
        os.close(ours)
    assert it.returncode == 0
    return b"".join(parts).decode()


def test_the_list_can_be_read_on_a_narrow_terminal(trip):
    """A46: an id is whole, on one line, so that it can be copied."""
    first, second = (enqueued(trip, "trip:travel", stops) for stops in "12")
    broker = trip.store()
    row = WorkerRow(id="here", tasks={"trip:travel": 1}, host="ant.farm.example", pid=1234567)
    [running] = claim_for(broker, row, limit=1)
    broker.note(running, Note("progress", "", b'{"fraction":0.4,"note":"half of the way"}'))
    broker.close()

    shown = on_terminal(trip, "detached", "list")

    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
    assert max(map(len, lines)) <= 80
    rows = [line.split() for line in lines if line[0] not in "i "]
    assert [(row[0], row[1]) for row in rows] == [(second, "ready"), (first, "running")]
    text = " ".join(" ".join(lines).split())
    for word in ("trip:travel", "attempt 1", "ant.farm.example", "1234567", "40% done"):
        assert word in text
    assert on_terminal(trip, "find", "--detached").count("trip:travel") == 2


def test_the_list_says_what_waits_and_what_runs_where(trip):
    """A15, A17, A21, A24, A46: seen as soon as it is queued, from the store alone."""
    enqueued(trip, "trip:add", "1", "2")
    first = enqueued(trip, "trip:travel", "1")
    second = enqueued(trip, "trip:travel", "2")
    broker = trip.store()
    claim_for(broker, WorkerRow(id="here", tasks={"trip:travel": 1}, host="ant", pid=17), limit=1)

    [waiting, running] = trip.lines("detached", "list")

    assert (waiting["id"], waiting["state"], waiting["locked"]) == (second, "ready", False)
    assert (running["id"], running["state"], running["locked"]) == (first, "running", True)
    assert (running["host"], running["pid"]) == ("ant", 17)
    text = trip("detached").stdout
    assert "ant" in text
    assert first in text
    assert [job["id"] for job in trip.lines("find", "--detached")] == [second, first]
    broker.close()


def test_a_running_one_tells_how_far_it_is_and_which_spark_application_it_is(trip):
    """Issue 6: as it was noted, by `list` and by `why`."""
    job = enqueued(trip, "trip:travel", "1")
    broker = trip.store()
    [running] = claim_for(broker, WorkerRow(id="here", tasks={"trip:travel": 1}), limit=1)
    broker.note(running, Note("progress", "", b'{"fraction":0.4,"note":"6 Spark jobs ended"}'))
    application = {"id": "app-7", "master": "spark://ant:7077", "attempt": 1, "ui": None}
    value = json.dumps({**application, "pages": ["ant:8080"]}).encode()
    broker.note(running, Note("application", "", value))

    [listed] = trip.lines("detached", "list")

    assert listed["progress"] == {"fraction": 0.4, "note": "6 Spark jobs ended"}
    assert listed["application"] == {**application, "pages": ["ant:8080"]}
    assert "40%" in trip("detached").stdout
    said = trip("why", job).stdout
    assert "40% done: 6 Spark jobs ended." in said
    assert "Attempt 1 is the Spark application app-7 on spark://ant:7077." in said
    why = trip.json("why", job)
    assert (why["progress"], why["application"]) == (listed["progress"], listed["application"])
    broker.close()


def test_ended_ones_are_listed_when_they_are_asked_for(trip):
    """A17: also what has ended, as long as it is kept."""
    job = enqueued(trip, "trip:travel", "1")
    trip("detached", "cancel", job)

    assert trip.lines("detached", "list") == []
    [ended] = trip.lines("detached", "list", "--all")
    assert (ended["id"], ended["state"]) == (job, "cancelled")
    assert "no detached job" in trip("detached").stderr


def test_a_log_is_a_file_of_the_host_and_followed_until_the_job_ends(trip):
    """A43: a log per job."""
    job = enqueued(trip, "trip:travel", "1")
    files(trip).make()
    files(trip).file(job, "log").write_text("one\ntwo\n")

    assert trip("detached", "log", job).stdout == "one\ntwo\n"
    trip("detached", "cancel", job)
    assert trip("detached", "log", job, "--follow").stdout == "one\ntwo\n"


def test_a_log_is_byte_for_byte_what_was_printed_but_gives_no_terminal_orders(trip):
    """A43: piped on it is the file; a title or a colour in it is text to whoever looks."""
    job = enqueued(trip, "trip:travel", "1")
    files(trip).make()
    log = b"\x1b]0;owned\x07 \xff " + "\u00e4".encode() * 100_000 + b"\n\tend\n"
    files(trip).file(job, "log").write_bytes(log)

    assert trip("detached", "log", job).stdout_bytes == log
    shown = on_terminal(trip, "detached", "log", job)
    assert "\x1b" not in shown
    assert "\N{SYMBOL FOR ESCAPE}]0;owned\N{SYMBOL FOR BELL} \ufffd " in shown
    assert shown.count("\u00e4") == 100_000
    assert shown.count("\ufffd") == 1


def test_whoever_asks_for_a_log_that_is_not_here_is_told_why(trip):
    """A43: what to do next is another thing in each case."""
    waiting = enqueued(trip, "trip:travel", "1")
    plain = enqueued(trip, "trip:add", "1", "2")
    unknown = "0190a6c4-5e1f-7000-8000-00000a1b2000"
    broker = trip.store()

    def said(job):
        return trip("detached", "log", job, code=2).stderr

    assert f"there is no job {unknown}" in said(unknown)
    assert "is not detached" in said(plain)
    assert "has not started" in said(waiting)
    claim_for(broker, WorkerRow(id="here", tasks={"trip:travel": 1}, host="ant", pid=17), limit=1)
    assert "it runs on ant" in said(waiting)
    broker.close()


def test_ctrl_c_ends_the_following_of_a_log_and_not_the_job(trip):
    job = enqueued(trip, "trip:travel", "1")
    files(trip).make()
    files(trip).file(job, "log").write_text("one\n")
    process = trip.start("detached", "log", job, "--follow", start_new_session=True)
    assert process.stdout.readline() == "one\n"

    os.killpg(process.pid, signal.SIGINT)

    _, errors = process.communicate(timeout=100)
    assert process.returncode == 130
    assert "Traceback" not in errors
    broker = trip.store()
    assert broker.get(job).state is State.READY
    broker.close()


def test_ctrl_c_puts_back_one_that_runs_in_the_foreground(trip):
    """A43: nothing of it is left, and nothing was counted."""
    job = enqueued(trip, "trip:sit")
    command = ("detached", "run", job, "--app", "trip:app")
    process = trip.start(*command, start_new_session=True)
    assert process.stdout.readline() == "seated\n"

    os.killpg(process.pid, signal.SIGINT)

    _, errors = process.communicate(timeout=100)
    assert process.returncode == Exit.NO_OUTCOME == 102
    assert "Traceback" not in errors
    broker = trip.store()
    kept = broker.get(job)
    assert (kept.state, kept.failures, kept.lapses) == (State.READY, 0, 0)
    assert broker.workers() == []
    assert not list(files(trip).path.iterdir())
    broker.close()


def test_cancelling_what_has_ended_says_so(trip):
    job = enqueued(trip, "trip:travel", "1")
    unknown = "0190a6c4-5e1f-7000-8000-00000a1b2000"

    assert trip.json("detached", "cancel", job) == {"id": job, "cancelled": True}
    assert trip.json("detached", "cancel", job, code=1) == {"id": job, "cancelled": False}
    for id, why in ((job, "It was cancelled"), (unknown, f"No job {unknown} is in this store")):
        answer = trip("detached", "cancel", id, code=1).stdout
        assert f"{id} was not changed. {why}" in answer


def test_what_a_job_notes_is_not_shown_with_the_error_of_the_attempt_before(trip):
    job = enqueued(trip, "trip:travel", "1")
    broker = trip.store()
    row = WorkerRow(id="here", tasks={"trip:travel": 1})
    [first] = claim_for(broker, row, limit=1)
    stumbled = Outcome(State.READY, "error", error="OSError: no", run_at=0.0, started_at=1.0)
    broker.settle([(first, stumbled)])
    [second] = claim_for(broker, row, limit=1)
    broker.note(second, Note("progress", "", b'{"fraction":0.4,"note":"on the way"}'))
    broker.close()

    lines = trip("history", job).stdout.splitlines()

    [attempt] = [line for line in lines if "attempt 1" in line]
    assert "error: OSError: no" in attempt
    [noted] = [line for line in lines if "on the way" in line]
    assert "error" not in noted


def test_one_runs_in_the_foreground_and_the_others_stay(trip):
    """A43: by its id, although another is before it; what it prints is on the terminal."""
    first = enqueued(trip, "trip:travel", "1")
    second = enqueued(trip, "trip:travel", "2")

    process = trip.start("detached", "run", second, "--app", "trip:app")
    output, errors = process.communicate(timeout=100)

    assert process.returncode == Exit.DONE, errors
    assert "attempt 1" in output
    broker = trip.store()
    assert broker.get(second).state is State.SUCCEEDED
    assert broker.get(first).state is State.READY
    assert broker.get(first).failures == broker.get(first).lapses == 0
    assert broker.workers() == []
    assert not list(files(trip).path.iterdir())
    broker.close()


def test_the_exit_code_of_one_in_the_foreground_says_how_it_ended(trip):
    """A26: raised."""
    job = enqueued(trip, "trip:stumble")

    process = trip.start("detached", "run", job, "--app", "trip:app")
    process.communicate(timeout=100)

    assert process.returncode == Exit.RAISED == 101
    broker = trip.store()
    assert "a stone" in broker.get(job).error
    broker.close()


def test_one_whose_lock_is_held_is_put_back_uncounted(trip):
    """A5, A26: somebody of this host has it at this moment; nothing was begun."""
    job = enqueued(trip, "trip:travel", "1")
    files(trip).make()
    lock = files(trip).lock(job)

    process = trip.start("detached", "run", job, "--app", "trip:app")
    process.communicate(timeout=100)

    files(trip).unlock(job, lock)
    assert process.returncode == Exit.LOCKED == 100
    broker = trip.store()
    kept = broker.get(job)
    assert (kept.state, kept.failures, kept.lapses) == (State.READY, 0, 0)
    broker.close()


def test_what_cannot_be_run_by_hand_is_refused_with_the_reason(trip):
    plain = enqueued(trip, "trip:add", "1", "2")
    ended = enqueued(trip, "trip:travel", "1")
    trip("detached", "cancel", ended)

    assert (
        "not a detached task" in trip("detached", "run", plain, "--app", "trip:app", code=2).stderr
    )
    assert "cannot be run now" in trip("detached", "run", ended, "--app", "trip:app", code=2).stderr
    assert "--app" in trip("detached", "run", ended, code=2).stderr
    assert "takes no id" in trip("detached", "log", code=2).stderr


def test_the_doctor_says_what_a_detached_process_outlives(trip):
    enqueued(trip, "trip:travel", "1")

    found = trip.json("doctor", "--app", "trip:app", code=1)["findings"]

    [finding] = [each for each in found if each["name"] == "detached"]
    assert "detached jobs" in finding["says"]


def test_a_detached_task_can_be_tried_without_a_worker(trip):
    """A43: `penstock run` works on it here, as on any other."""
    assert trip("run", "trip:travel", "3").stdout.splitlines()[-1] == "3"


def test_a_process_that_only_holds_a_job_is_no_worker_for_others(trip):
    """A24: in a deploy, when nothing but detached jobs runs."""
    first = enqueued(trip, "trip:travel", "1")
    second = enqueued(trip, "trip:add", "1", "2")
    broker = trip.store()
    row = WorkerRow(id="here", tasks={"trip:travel": 1}, host="ant", pid=17)
    assert [job.id for job in claim_for(broker, row)] == [first]
    broker.renew([WorkerRow(id="here", queues=(), host="ant", pid=17)])
    broker.close()

    assert trip.json("why", first)["cause"] == "running"
    assert trip.json("why", second)["cause"] == "no_worker"
    found = trip.json("doctor", code=1)["findings"]
    says = [finding["says"] for finding in found if finding["name"] in {"workers", "detached"}]
    assert says == [
        "no worker is alive; ready to run: 1",
        "1 running, each in a process of its own",
    ]


@pytest.mark.parametrize("how", ["link", "hard link"])
def test_a_log_that_is_laid_there_is_neither_written_nor_shown(trip, how):
    """Whoever could write to the folder must not have a worker empty what a link leads to."""
    job = enqueued(trip, "trip:travel", "3")
    folder, victim = files(trip), trip.folder / "victim"
    folder.make()
    text = b"of root, and nobody else\n" * (1 << 20)  # larger than a log may be
    victim.write_bytes(text)
    log = folder.file(job, "log")
    if how == "link":
        log.symlink_to(victim)
    else:
        log.hardlink_to(victim)

    worker = trip.start("worker", "trip", "--processes", "1")
    said = ""
    while "no process could be started" not in said:
        said = worker.stderr.readline()
        assert worker.poll() is None
    worker.terminate()
    worker.communicate()
    shown = trip("detached", "log", job, code=2)

    assert f"{job}.log is" in said
    assert "link" in said
    assert "of root" not in shown.output
    assert "link" in shown.stderr
    assert victim.read_bytes() == text


@pytest.mark.parametrize(
    ("changed", "locked"),
    [
        ({}, False),
        ({"host": "elsewhere"}, True),  # only its lease can tell
        ({"boot": "earlier"}, True),  # perhaps another machine of this name
        ({"attempt": 7}, True),  # of another attempt than the one that runs
        ({"worker": "another"}, True),
    ],
)
def test_no_process_holds_one_whose_keeper_on_this_host_has_ended(trip, changed, locked):
    id = enqueued(trip, "trip:travel", "3")
    broker = open_broker(f"sqlite:///{trip.folder / 'penstock.db'}")
    try:
        row = WorkerRow(id="w-1", tasks={"trip:travel": 1}, host="here", pid=1, lease=3600.0)
        [job] = broker.claim([Wanted(row)]).jobs[0]
        ended = subprocess.Popen([sys.executable, "-c", ""])
        ended.wait()
        run = RunFile.of_this_process(job.id, job.attempt, "w-1")
        folder = files(trip)
        folder.make()
        folder.write(msgspec.structs.replace(run, pid=ended.pid, **changed))

        [line] = trip.lines("detached")

        assert (line["id"], line["locked"]) == (id, locked)
        assert ("its process has ended" in trip("detached").stdout.replace("\n", " ")) != locked
    finally:
        broker.close()


LOAD = """
import os
from pathlib import Path

from penstock import current_job


def main(year, leave=False):
    print("the year", year, "attempt", current_job().attempt, flush=True)
    Path("scratch").write_text("here")
    if leave:
        os._exit(0)
    return year + 1
"""


@pytest.fixture
def load(trip):
    """A file that may be run, in the folder that the app names."""
    (trip.folder / "etl").mkdir()
    file = trip.folder / "etl" / "load.py"
    file.write_text(LOAD)
    return str(file)


def test_run_of_a_file_enqueues_a_job_that_calls_it(trip, load):
    """A27: by its path; a worker runs it detached, in a folder that goes with the job."""
    said = trip.json("detached", "run", load, "year=2026", "--app", "trip:app")
    assert (said["task"], said["file"]) == ("etl", load)

    trip("worker", "trip:app", "--drain")

    [shown] = trip.lines("find", "--detached")
    assert (shown["id"], shown["state"], shown["result"]) == (said["id"], "succeeded", 2027)
    assert "the year 2026 attempt 1" in trip("detached", "log", said["id"]).stdout
    scratch = files(trip).file(said["id"], "work") / "scratch"
    assert scratch.read_text() == "here"
    assert files(trip).remove_job(said["id"])
    assert not scratch.parent.exists()


def test_a_file_that_leaves_without_an_outcome_is_not_done(trip, load):
    """A27: exit code 0 of its process is none; its keeper's is 102."""
    job = trip.json("detached", "run", load, "year=1", "leave=true", "--app", "trip:app")["id"]

    trip("worker", "trip:app", "--drain")

    assert [job["state"] for job in trip.lines("find", "--detached")] == ["failed"]
    assert "exit code 102" in trip("detached", "log", job).stdout


def test_run_refuses_a_file_that_the_app_does_not_allow(trip, load):
    """A27: when it is queued: relative, missing, outside, or no folder is named at all."""
    outside = trip.folder / "outside.py"
    outside.write_text(LOAD)
    (trip.folder / "bare.py").write_text("from penstock import App\n\napp = App()\n")

    def said(*words, app="trip:app"):
        return " ".join(trip("detached", "run", *words, "--app", app, code=2).stderr.split())

    assert "absolute path" in said("./etl/load.py")
    assert "absolute path" in said("load.py", "year=2026")
    assert "there is no such file" in said(f"{trip.folder}/etl/gone.py")
    assert "is in no folder" in said(str(outside))
    assert "app.file_task(" in said(load, app="bare:app")
    assert "name=value" in said(load, "2026")
    assert "with the path of a file takes arguments" in " ".join(
        trip("detached", "log", load, "a=1", code=2).stderr.split()
    )
    assert not (trip.folder / "penstock.db").exists()
