"""demo and bench: both run for real, at their smallest."""

from __future__ import annotations

import json

import pytest

from penstock.tools.bench.remote.report import beside_echo


def test_the_demo_proves_that_nothing_is_lost(cli):
    demo = cli.start("demo", "--quick")
    said, errors = demo.communicate(timeout=250)

    assert demo.returncode == 0, said + errors
    assert "kill -9" in said
    assert "Nothing was lost, nothing was settled twice." in said
    assert "unexpected keyword argument 'currency'" in said
    assert "Queue mail is paused by you" in said
    assert "penstock find task:penstock.tools.demo.tasks:unlucky --url sqlite:///" in said
    assert "4242 4242" not in said


def test_the_proof_of_the_demo_as_json(cli):
    demo = cli.start("demo", "--quick", "--json")
    said, errors = demo.communicate(timeout=250)

    proof = json.loads(said)
    assert proof["holds"], said + errors
    assert (proof["enqueued"], proof["lost"], proof["settled_twice"]) == (394, 0, 0)
    assert proof["ended"] == proof["succeeded"] == 394
    # All but one, which waited for a signal, and was run by nobody.
    assert proof["started"] >= 393 + proof["retried"]


def test_the_storm_kills_and_prints_its_verdict(cli):
    storm = cli.start("demo", "--storm", "--seconds", "2", "--seed", "5")
    said, errors = storm.communicate(timeout=250)

    assert storm.returncode == 0, said + errors
    assert "Nothing was lost, nothing ended twice." in said
    assert "holds   every slot of a schedule is decided once" in said
    assert "child killed" in said
    assert "(seed 5)" in said
    assert "penstock verify --url sqlite:///" in said


def test_the_demo_of_shards_splits_a_store_and_prints_its_verdict(cli):
    demo = cli.start("demo", "--shards", "--quick")
    said, errors = demo.communicate(timeout=250)

    assert demo.returncode == 0, said + errors
    assert "b  [################                ]   512 buckets" in said
    assert "jobs: nothing was lost, nothing ended twice." in said
    assert "BROKEN" not in said
    assert "penstock shards status --url shards:///" in said


def test_bench_gives_all_figures(cli):
    bench = cli.start(
        "bench", "--jobs", "1000", "--claim", "--around", "1000", "--folder", ".", "--json"
    )
    said, errors = bench.communicate(timeout=250)

    assert bench.returncode == 0, errors
    figures = json.loads(said)
    for name in (
        "raw_bulk",
        "bulk_enqueue",
        "processing",
        "fan_in",
        "fan_in_plain",
        "fan_in_ratio",
        "raw_single",
        "single_enqueue",
        "call_to_start_p50_ms",
        "return_to_start_p99_ms",
        "due_idle_p50_ms",
        "due_idle_p99_ms",
        "due_busy_p99_ms",
        "due_idle_in_time",
        "claim_ratio",
        "pause_ms",
        "resume_ms",
    ):
        assert figures[name] >= 0
    assert figures["machine"]["synchronous"] == "full"


def test_bench_of_work_is_beside_the_bare_function(cli):
    bench = cli.start(
        *("bench", "--work", "mixed", "--jobs", "1000", "--runs", "1", "--json"),
        *("--threads", "20", "--async-slots", "50", "--folder", "."),
    )
    said, errors = bench.communicate(timeout=250)

    assert bench.returncode == 0, errors
    figures = json.loads(said)
    assert (figures["jobs"], figures["threads"], figures["async_slots"]) == (1000, 20, 50)
    for name in ("bare_seconds", "worker_seconds", "efficiency", "bare_memory"):
        assert figures[name] > 0, name
    assert figures["supervisor_memory"] > 0
    assert figures["child_memory"] > 0


def test_bench_of_shards_gives_the_cost_of_a_job_for_each_number_of_them(cli):
    """V47."""
    bench = cli.start("bench", "--shards", "--jobs", "1000", "--runs", "1", "--json")
    said, errors = bench.communicate(timeout=280)

    assert bench.returncode == 0, errors
    rows = [json.loads(line) for line in said.splitlines()]
    assert [row["shards"] for row in rows] == [1, 2, 4, 8]
    for row in rows:
        for name in ("cpu_per_job", "enqueue_cpu_per_job", "worker_cpu_per_job", "processing"):
            assert row[name] > 0, name
    assert rows[0]["beside_one"] == 1


def test_bench_on_postgres_gives_each_figure_beside_its_limit(cli):
    bench = cli.start(
        "bench",
        *("--broker", "postgres", "--jobs", "1000", "--runs", "1", "--json"),
        *("--claim", "--pending", "10000", "--snapshot", "2"),
    )
    said, errors = bench.communicate(timeout=250)

    assert bench.returncode == 0, errors
    figures = json.loads(said)
    for name in (
        "raw_copy",
        "bulk_enqueue",
        "processing_1",
        "processing_2",
        "processing_singles",
        "fan_in",
        "fan_in_ratio",
        "raw_single",
        "single_enqueue",
        "concurrent_enqueue",
        "processing_1_wal_bytes_per_job",
        "processing_1_transactions_per_job",
        "due_idle_p99_ms",
        "due_busy_p99_ms",
        "claim_crowded_ms",
        "count_ms",
        "load_before",
        "load_held",
    ):
        assert figures[name] > 0, name
    assert figures["machine"]["fsync"] == "on"
    assert figures["ratios"]["fan-in / plain jobs"]["least"] == 0.7
    assert figures["ratios"]["bulk enqueue / COPY"]["least"] == 0.6


def test_bench_of_receivers_is_beside_plain_grpc(tmp_path):
    figures = beside_echo(tmp_path, 5, 0.2, rounds=1)

    assert figures["receivers_5"] > 0
    assert figures["receivers_5_ratio"] > 0
    assert figures["receivers_5_transactions_per_job"] > 0
    assert 0 < figures["receivers_5_connections"] <= 8


@pytest.mark.soak
def test_bench_of_a_manager_is_beside_the_store_and_beside_plain_grpc(cli):
    bench = cli.start("bench", "--broker", "remote", "--jobs", "1000", "--folder", ".", "--json")
    said, errors = bench.communicate(timeout=250)

    assert bench.returncode == 0, errors
    figures = json.loads(said)
    for name in (
        "direct_processing",
        "managed_processing",
        "processing_ratio",
        "direct_call_to_start_p50_ms",
        "managed_call_to_start_p50_ms",
        "due_managed_p99_ms",
        "echo_5",
        "receivers_5_ratio",
        "receivers_5_cpu_us",
    ):
        assert figures[name] > 0
    assert figures["receivers_5_transactions_per_job"] > 0
    assert 0 < figures["receivers_5_connections"] <= 8
    assert figures["idle_receivers"] == 5
