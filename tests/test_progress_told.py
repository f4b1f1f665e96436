"""Progress reaches the history where it changed enough, and the job's page always."""

from __future__ import annotations

import msgspec
import pytest

from penstock.broker.views import Note
from penstock.job import Job
from penstock.run import job_notes
from penstock.run.job_notes import Notebook, Progress
from penstock.testing.conformance.factories import enqueue_and_claim, history_of


@pytest.fixture
def report(memory_broker, clock, monkeypatch):
    """Reports progress at a time, and gives what the history and the job have of it."""
    monkeypatch.setattr(job_notes, "PROGRESS_SECONDS", 0.0)
    job: Job = enqueue_and_claim(memory_broker, clock)
    notebook = Notebook(lambda: memory_broker, job, lambda question: question())

    def at(*reports: tuple[float, float]) -> tuple[list[float], float]:
        for seconds, fraction in reports:
            notebook.progress(Progress(fraction, f"at {seconds}", seconds))
        rows = [row for row in history_of(memory_broker, job.id) if row.kind == "progress"]
        told = [msgspec.json.decode(row.data)["value"]["fraction"] for row in rows]
        [note] = memory_broker.notes(job.id, "progress")
        assert isinstance(note, Note)
        return told, msgspec.json.decode(note.value)["fraction"]

    return at


def test_small_steps_are_kept_with_the_job_and_told_when_they_add_up(report):
    assert report((0, 0.0), (1, 0.004), (2, 0.008), (3, 0.0125), (4, 0.013)) == (
        [0.0, 0.0125],
        0.013,
    )


def test_a_slow_one_is_told_once_a_minute(report):
    assert report((0, 0.0), (30, 0.0001), (61, 0.0002), (90, 0.0003)) == ([0.0, 0.0002], 0.0003)


def test_the_end_is_told(report):
    assert report((0, 0.995), (1, 1.0)) == ([0.995, 1.0], 1.0)


def test_a_day_of_reports_leaves_no_more_rows_than_minutes(report):
    told, _ = report(*((second, second / 1e9) for second in range(0, 86_400, 10)))

    assert len(told) <= 1441
