"""The receivers in examples/, as programs that have nothing of Penstock but the contract."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest

from penstock.brokers.sqlite import SqliteBroker
from penstock.job import Job, State
from penstock.manager.access import parse_manager_tokens
from penstock.manager.server import Manager
from penstock.testing.checker import check_store

ROOT = Path(__file__).parents[2]
RECEIVERS = ROOT / "examples" / "receivers"
TOKEN = "7f3a91c0e5d2486bb1f09e7c3a5d8264"
# Node runs where it is found, with the packages that its package.json names.
NODE_MODULES = Path(os.environ.get("PENSTOCK_NODE_MODULES_OF", RECEIVERS / "node"))
NODE = shutil.which("node") and (NODE_MODULES / "node_modules" / "@grpc" / "grpc-js").exists()
LANGUAGES = ["python", *(["node"] if NODE else [])]


@pytest.fixture(params=LANGUAGES)
def command(request, tmp_path) -> list[str]:
    """How the receiver of a language is started, without its address."""
    if request.param == "node":
        proto = ROOT / "proto" / "penstock" / "v1" / "receivers.proto"
        return ["node", str(RECEIVERS / "node" / "receiver.mjs"), str(proto)]
    make = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(ROOT / "proto")]
    made = [f"--python_out={tmp_path}", f"--grpc_python_out={tmp_path}"]
    subprocess.run([*make, *made, "penstock/v1/receivers.proto"], check=True)
    # Without Penstock, which is on the path of this Python by a file that -S does not read.
    start = (
        "import runpy, sys; sys.path[:0] = [sys.argv.pop(1), sys.argv.pop(1)]; "
        "runpy.run_path(sys.argv.pop(1), run_name='__main__')"
    )
    installed = sysconfig.get_path("purelib")
    program = str(RECEIVERS / "plain.py")
    return [sys.executable, "-S", "-c", start, str(tmp_path), installed, program]


@pytest.fixture
def store(tmp_path):
    broker = SqliteBroker(tmp_path / "jobs.db")
    yield broker
    broker.close()


def until(look, seconds: float = 120.0):
    end = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < end
        time.sleep(0.1)
    return seen


def add(a: int, b: int) -> Job:
    return Job(task="example:add", body=b'{"args":{"a":%d,"b":%d}}' % (a, b))


def results(store: SqliteBroker) -> list[bytes | None]:
    return [event.result for event in store.history(limit=100_000) if event.kind == "attempt"]


def test_a_receiver_works_off_what_there_is_and_goes_on_with_the_next_manager(command, store):
    tokens = parse_manager_tokens(f"node:work:*:{TOKEN}", "tokens")
    first = [add(number, 1) for number in range(1000)]
    store.enqueue(first)
    with Manager(store, "127.0.0.1:0", tokens=tokens) as manager:
        port = manager.port
        receiver = subprocess.Popen(
            [*command, f"127.0.0.1:{port}", TOKEN],
            env={**os.environ, "NODE_MODULES_OF": str(NODE_MODULES)},
        )
        until(lambda: len(results(store)) >= 500)
    second = [add(number, 2) for number in range(1000)]
    store.enqueue(second)
    with Manager(store, f"127.0.0.1:{port}", tokens=tokens):
        until(lambda: len(results(store)) >= 2000)
        receiver.kill()
        receiver.wait(60)

    verdict = check_store(store, accepted=[job.id for job in (*first, *second)])
    assert verdict.ok, verdict
    assert sorted(int(result or b"-1") for result in results(store)) == sorted(
        [number + 1 for number in range(1000)] + [number + 2 for number in range(1000)]
    )


def test_a_receiver_says_how_a_job_failed(command, store):
    job = Job(task="example:fail")
    store.enqueue([job])
    with Manager(store, "127.0.0.1:0") as manager:
        receiver = subprocess.Popen(
            [*command, f"127.0.0.1:{manager.port}"],
            env={**os.environ, "NODE_MODULES_OF": str(NODE_MODULES)},
        )
        until(lambda: store.get(job.id).state is State.FAILED)
        receiver.kill()
        receiver.wait(60)

    ended = store.get(job.id)
    assert ended is not None
    assert ended.failures == 4
    assert "this one always fails" in ended.error
