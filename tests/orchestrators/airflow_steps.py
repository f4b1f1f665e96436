"""Run in an environment with a real Airflow: what the operator does there, as answers in JSON.

python airflow_steps.py FOLDER ANSWERS
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from penstock import App
from penstock.broker.filter import Filter
from penstock.integrations.airflow import PenstockJobLink, PenstockTrigger
from penstock.worker import Worker

FOLDER, ANSWERS = Path(sys.argv[1]), Path(sys.argv[2])
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)

DAGS = """
from datetime import timedelta
from airflow.sdk import DAG
from penstock.integrations.airflow import PenstockOperator

def dag_of(name, **options):
    with DAG(name, schedule=None) as dag:
        PenstockOperator(
            task_id="conflate",
            task="trips:conflate",
            arguments={"day": "{{ ds }}"},
            queue_name="trips",
            dashboard="https://penstock.example.org/",
            poll_seconds=0.1,
            retries=1,
            retry_delay=timedelta(0),
            **options,
        )
    return dag

trips = dag_of("trips")
in_place = dag_of("in_place", deferrable=False)
"""

jobs = App(f"sqlite:///{FOLDER}/jobs.db")
calls: list[str] = []


@jobs.task(name="trips:conflate", queue="trips")
def conflate(day: str) -> str:
    calls.append(day)
    if len(calls) == 1:
        raise ValueError("no probes yet")
    return f"conflated {day}"


def dags() -> tuple[Any, ...]:
    """From a file in the folder of DAGs: Airflow runs no others."""
    file = FOLDER / "dags" / "trips.py"
    file.write_text(DAGS, encoding="utf-8")
    sys.path.insert(0, str(file.parent))
    module: Any = import_module("trips")
    return module.trips, module.in_place


def ran(dag: Any) -> dict[str, Any]:
    """A whole run in Airflow, triggers among it, with a worker of Penstock beside it."""
    worker = Worker(jobs, threads=1)
    thread = threading.Thread(target=worker.work)
    thread.start()
    try:
        run = dag.test(logical_date=NOON)
    finally:
        worker.stop()
        thread.join()
    [instance] = run.get_task_instances()
    return {
        "state": str(instance.state),
        "tries": instance.try_number,
        "result": instance.xcom_pull(task_ids="conflate"),
        "link": PenstockJobLink().get_link(dag.get_task("conflate"), ti_key=instance.key),
    }


def jobs_of_store() -> list[list[Any]]:
    return [[job.id, str(job.state), job.attempt] for job in jobs.broker.find(Filter()).jobs]


async def killed() -> list[list[Any]]:
    """A trigger serialized, made again, and killed by a user."""
    names = {"dag_id": "d", "task_id": "t", "run_id": "r", "map_index": -1}
    import penstock.integrations.airflow as module

    run = module._run(names)
    run.begin("trips:conflate", {"day": "never"}, queue="trips")
    path, given = PenstockTrigger(names, 0.1).serialize()
    found: Any = getattr(import_module(path.rpartition(".")[0]), path.rpartition(".")[2])
    trigger = found(**given)
    await trigger.on_kill()
    event = await anext(trigger.run())
    return [event.payload["state"], run.id, path]


answers: dict[str, Any] = {}
deferred, in_place = dags()
answers["deferred"] = ran(deferred)
answers["in place"] = ran(in_place)
answers["jobs"] = jobs_of_store()
answers["calls"] = calls
answers["killed"] = asyncio.run(killed())
jobs.close()
ANSWERS.write_text(json.dumps(answers), encoding="utf-8")
