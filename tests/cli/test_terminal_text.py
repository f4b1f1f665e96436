"""What a terminal obeys never reaches it, whoever wrote the text: escape sequences, and U+202E."""

from __future__ import annotations

import json
import logging

import pytest

from penstock.app.log_lines import JsonLines, TextLines
from penstock.broker.views import WorkerRow
from penstock.job import failed
from penstock.testing.conformance.factories import claim_for, settle

# Shown backwards from here on, then isolated, a mark, and the one-byte form of ESC [.
HOSTILE = "invoice\u202efdp.exe\u202c \u2066x\u2069 \u200f \u061c \x9b31m"
OBEYED = frozenset(HOSTILE) - frozenset("invoicefdp.exe 31m")


@pytest.fixture
def hostile(shop):
    """A project with a job of that key, which failed in the same words; and its id."""
    id = shop.json("enqueue", "shop:add", "1", "2", "--key", HOSTILE, "--tag", f"a={HOSTILE}")["id"]
    broker = shop.store()
    [job] = claim_for(broker, WorkerRow(id="w", tasks={"shop:add": 1}), None, 1)
    settle(broker, job, failed(f"ValueError: {HOSTILE}"))
    broker.close()
    shop("pause", "--key", HOSTILE, "--reason", HOSTILE)
    return shop, id


@pytest.mark.parametrize(
    "words",
    [
        ("find",),
        ("why", "ID"),
        ("history",),
        ("history", "--audit"),
        ("count",),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("form", [(), ("--json",)], ids=["text", "json"])
def test_no_command_prints_what_a_terminal_obeys(hostile, words, form):
    shop, id = hostile

    said = shop(*(id if word == "ID" else word for word in words), *form)

    assert not OBEYED & set(said.stdout + said.stderr)


def test_json_has_the_same_value_for_programs(hostile):
    shop, _ = hostile

    assert shop.json("find")["key"] == HOSTILE


@pytest.mark.parametrize("lines", [TextLines(None), JsonLines()], ids=["text", "json"])
def test_no_log_line_has_what_a_terminal_obeys(lines):
    record = logging.LogRecord("penstock.worker", logging.ERROR, "", 0, "%s", (HOSTILE,), None)

    line = lines.format(record)

    assert not OBEYED & set(line)
    if isinstance(lines, JsonLines):
        assert json.loads(line)["message"] == HOSTILE
