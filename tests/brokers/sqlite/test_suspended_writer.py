"""A process that is suspended in the middle of a write keeps SQLite's lock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from penstock import StoreUnreachable
from penstock.brokers import open_broker
from penstock.job import Job

WRITER = """
import sys, time
from penstock.brokers import open_broker

with open_broker(sys.argv[1]).store.writing():
    print("writing", flush=True)
    time.sleep(600)
"""


def test_others_can_read_and_write_once_it_is_gone(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/jobs.db"
    with closing(open_broker(url)) as broker:
        broker.enqueue([Job(task="mail:send")])
        broker.store.busy_seconds = 0.2
        writer = subprocess.Popen([sys.executable, "-c", WRITER, url], stdout=subprocess.PIPE)
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"writing\n"
            os.kill(writer.pid, signal.SIGSTOP)

            assert sum(count.total for count in broker.count()) == 1
            with pytest.raises(StoreUnreachable, match="locked"):
                broker.enqueue([Job(task="mail:send")])
        finally:
            writer.kill()
            writer.communicate()

        broker.enqueue([Job(task="mail:send")])
        assert sum(count.total for count in broker.count()) == 2
