"""Memory of each queue: an estimate that is near what the server says."""

from __future__ import annotations

from typer.testing import CliRunner

from penstock.brokers import open_broker
from penstock.cli.root import root
from penstock.job import Job


def test_the_memory_of_a_queue_is_about_what_its_jobs_take(redis_store_url):
    broker = open_broker(redis_store_url)
    body = b'{"args":{"text":"%s"}}' % (b"x" * 500)
    before = broker.server.call("INFO", "memory")
    broker.enqueue([Job(task="t", queue="big", body=body) for _ in range(3000)])
    broker.enqueue([Job(task="t", queue="later", run_at=9e9)])
    after = broker.server.call("INFO", "memory")

    sizes = broker.traits.queue_bytes()
    text = CliRunner().invoke(root, ["count", "--url", redis_store_url]).stdout
    broker.close()

    used = used_memory(after) - used_memory(before)
    assert sizes.keys() == {"big", "later"}
    assert used / 2 < sizes["big"] < used * 2
    assert "memory" in text
    assert "MiB" in text


def used_memory(info):
    [line] = [line for line in info.splitlines() if line.startswith(b"used_memory:")]
    return int(line.partition(b":")[2])
