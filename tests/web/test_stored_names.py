"""Pages about a job whose row names a file: the file is not opened, and nothing is imported."""

from __future__ import annotations

import sqlite3

import pytest

from penstock import App
from penstock.brokers import open_broker
from penstock.testing.conformance.factories import a_job
from penstock.web.access import Role


@pytest.mark.parametrize("spelt", ["{}/canary.py:f", "{}/canary.py", "canary:f", "canary.py:f"])
def test_pages_and_rest_run_nothing_that_a_row_names(serve, tmp_path, monkeypatch, clock, spelt):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    mark, name = tmp_path / "mark", spelt.format(tmp_path)
    (tmp_path / "canary.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    job = a_job(clock, key="k", body=b'{"args":{}}')
    broker = open_broker(url, clock)
    broker.enqueue([job])
    broker.close()
    with sqlite3.connect(tmp_path / "jobs.db") as connection:
        connection.execute("update penstock_lane set task = ?", (name,))
    connection.close()
    web = serve(App(url))
    viewer, admin = web.client(Role.VIEW), web.client(Role.ADMIN)

    for place in ("/", "/jobs", f"/jobs/{job.id}", "/queues", "/reports", "/workers", "/flows"):
        assert viewer.get(place).status_code == 200, place
    assert viewer.get(f"/api/v1/jobs/{job.id}").json()["task"] == name
    refused = admin.post("/api/v1/jobs", json={"task": name})
    assert admin.post("/api/v1/cancel", json={"ids": [job.id]}).json()["done"] == [job.id]
    copied = admin.post(f"/api/v1/jobs/{job.id}/copy", json={})

    assert refused.status_code == 422
    assert not mark.exists()
    if name != "canary:f":
        assert "is a path" in copied.text
