"""Without an extra: one sentence that names it, exit code 2, no traceback."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

# The program as it starts, where these modules are not installed.
PROGRAM = """
import json, sys

sys.modules.update(dict.fromkeys(json.loads(sys.argv.pop(1))))
from penstock.cli import main

main()
"""
SPARK = ("pyspark", "pyarrow", "deltalake")
PIPELINE = (
    "plan",
    "run",
    "run rides",
    "graph",
    "why rides 2026-01-31",
    "report",
    "compact",
    "forget --lake lake",
    "forget-rows --key ada",
    "replay --where true",
)


@pytest.mark.parametrize(
    ("extra", "modules", "words"),
    [
        ("postgres", ("psycopg",), "count --url postgresql://127.0.0.1/shop"),
        ("redis", ("hiredis",), "count --url redis://127.0.0.1/0"),
        ("redis", ("hiredis",), "import rq --from redis://127.0.0.1/0 --app shop --dry-run"),
        ("remote", ("grpc",), "count --url penstock://127.0.0.1"),
        ("remote", ("grpc",), "manager"),
        ("web", ("starlette",), "dashboard"),
        ("spark", ("pyspark",), "spark-worker shop --slots 1"),
        *(("spark", SPARK, f"pipeline {words}") for words in PIPELINE),
        ("spark", ("deltalake",), "pipeline report"),
    ],
)
def test_one_sentence_says_what_to_install(shop, extra, modules, words):
    command = [sys.executable, "-c", PROGRAM, json.dumps(modules), *words.split()]

    done = subprocess.run(
        command, cwd=shop.folder, capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 2, done.stderr
    assert f"pip install 'penstock-queue[{extra}]'" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
