"""The operator in a real Airflow, the recipe in a real Dagster: `make test-airflow`.

Both have an environment of their own in `.venv`, which make makes.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

HOUSE = Path(__file__).parents[2]
PYTHON = HOUSE / ".venv" / "airflow" / "bin" / "python"
OURS = ("PENSTOCK_", "AIRFLOW_", "DAGSTER_")

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(900)]


def run(folder: Path, *words: object) -> str:
    assert PYTHON.exists(), "no Airflow here: make test-airflow"
    variables = {name: text for name, text in os.environ.items() if not name.startswith(OURS)}
    variables |= {
        "PENSTOCK_URL": f"sqlite:///{folder}/jobs.db",
        "AIRFLOW_HOME": str(folder / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
        "DAGSTER_HOME": "",
    }
    done = subprocess.run(
        [str(word) for word in words],
        env=variables,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    return done.stdout


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("airflow")
    (folder / "dags").mkdir()
    answers = folder / "answers.json"
    run(folder, PYTHON.parent / "airflow", "db", "migrate")
    run(folder, PYTHON, Path(__file__).with_name("airflow_steps.py"), folder, answers)
    return json.loads(answers.read_text("utf-8"))


# REQUIREMENTS S32
def test_a_run_in_airflow_is_one_job_however_often_it_is_tried(answers):
    deferred, in_place = answers["deferred"], answers["in place"]

    assert (deferred["state"], deferred["result"]) == ("success", "conflated 2026-01-31")
    assert deferred["tries"] == 2  # the first time there were no probes
    assert (in_place["state"], in_place["result"]) == ("success", "conflated 2026-01-31")
    assert sorted(attempt for _, _, attempt in answers["jobs"]) == [1, 2]  # one of each dag
    assert answers["calls"] == ["2026-01-31"] * 3


def test_the_link_leads_to_the_job(answers):
    ids = {id for id, _, _ in answers["jobs"]}
    links = {answers[name]["link"] for name in ("deferred", "in place")}

    assert links == {f"https://penstock.example.org/jobs/{id}" for id in ids}


def test_killed_while_deferred_the_job_is_cancelled(answers):
    state, _, path = answers["killed"]

    assert (state, path) == ("cancelled", "penstock.integrations.airflow.PenstockTrigger")


def test_the_recipe_for_dagster(tmp_path):
    page = (HOUSE / "docs" / "how-to" / "airflow-and-dagster.md").read_text("utf-8")
    program = page.split("## Dagster")[1].split("```py\n")[1].split("```")[0]
    (tmp_path / "assets.py").write_text(program, encoding="utf-8")

    said = run(tmp_path, PYTHON, Path(__file__).with_name("dagster_steps.py"))

    assert json.loads(said.splitlines()[-1]) == {
        "success": True,
        "result": "conflated 2026-01-31",
        "again": True,
        "calls": ["2026-01-31"],
    }
