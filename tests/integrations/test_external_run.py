"""A job for a run of another orchestrator: asked for twice it is one, and it ends as that one."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import App, Refused
from penstock.integrations.external_run import ExternalRun
from penstock.job import State

NAMES = ("airflow", "trips", "conflate", "run 1")


@pytest.fixture
def there(memory_broker: Any) -> App:
    """The program that has the code; the orchestrator has only the store."""
    app = App(broker=memory_broker)

    @app.task(name="trips:conflate", queue="trips")
    def conflate(day: str, fail: bool = False) -> str:
        if fail:
            raise ValueError("no probes yet")
        return f"conflated {day}"

    return app


@pytest.fixture
def run(there: App) -> ExternalRun:
    return ExternalRun(App(broker=there.broker), *NAMES)


def drained(app: App) -> None:
    from penstock.worker import Worker

    Worker(app, drain=True, threads=1).work()


# REQUIREMENTS S32
def test_begun_again_it_is_the_same_job_and_its_result(there, run):
    run.begin("trips:conflate", {"day": "monday"}, queue="trips")
    assert run.ended() is None
    drained(there)
    again = ExternalRun(App(broker=there.broker), *NAMES)

    again.begin("trips:conflate", {"day": "monday"}, queue="trips")
    drained(there)

    ended = again.ended()
    assert (again.id, ended.state, ended.result) == (run.id, State.SUCCEEDED, "conflated monday")
    assert there.broker.get(run.id).attempt == 1


def test_what_failed_is_said_and_retried_when_it_is_begun_again(there, run):
    run.begin("trips:conflate", {"day": "monday", "fail": True}, queue="trips")
    drained(there)
    failed = run.ended()

    run.begin("trips:conflate", {"day": "monday", "fail": True}, queue="trips")

    assert failed.state is State.FAILED
    assert "ValueError: no probes yet" in failed.says
    assert run.ended() is None
    [event] = [each for each in there.broker.history() if each.kind == "retry"]
    assert b"airflow" in event.data


def test_cancelled_there_it_is_cancelled_here_and_deleted_it_is_no_success(there, run):
    run.begin("trips:conflate", {"day": "monday"}, queue="trips")

    assert run.cancel("stopped there")
    assert run.ended().state is State.CANCELLED
    assert not run.cancel("stopped there")
    there.broker.act("delete", [run.id], "ada", "")
    assert run.ended().says == f"job {run.id} was deleted"


def test_runs_of_other_names_are_other_jobs(there, run):
    other = ExternalRun(there, *NAMES[:-1], "run 2")

    run.begin("trips:conflate", {"day": "monday"}, queue="trips")
    other.begin("trips:conflate", {"day": "tuesday"})  # here the code is known, and checks
    drained(there)

    assert other.ended().result == "conflated tuesday"
    with pytest.raises(Refused, match="an external run needs names"):
        ExternalRun(there)
