"""What becomes of the Spark application of an earlier attempt, by the word of its master's page."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import pytest

from penstock import App, RetryLater
from penstock.broker.views import WorkerRow
from penstock.run.current import CurrentJob
from penstock.spark import application
from penstock.spark.application import Application, kill_earlier, name_of
from penstock.testing.conformance.factories import claim_for

WORKER = WorkerRow(id="worker", tasks={"etl": 1})
TOKEN = "4e19c084"


class Page(ThreadingHTTPServer):
    """Answers as the page of a standalone master does, with a token as Spark 4.3 asks for it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.applications: dict[str, str] = {}
        self.deaf = False

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Page

    def do_GET(self) -> None:
        listed = [{"id": id, "name": name} for id, name in self.server.applications.items()]
        form = f'<input type="hidden" name="csrfToken" value="{TOKEN}"/>'
        self._answer(200, form if self.path == "/" else json.dumps({"activeapps": listed}))

    def do_POST(self) -> None:
        fields = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        if self.server.deaf or fields.get("csrfToken") != [TOKEN]:
            self._answer(403, "")
            return
        self.server.applications.pop(fields["id"][0], None)
        self._answer(200, "")

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002  as it is called


@pytest.fixture
def page() -> Iterator[Page]:
    with Page() as page:
        thread = threading.Thread(target=page.serve_forever)
        thread.start()
        yield page
        page.shutdown()
        thread.join()


@pytest.fixture
def current() -> Iterator[CurrentJob]:
    """The second attempt at a job."""
    app = App("memory:")
    app.task(name="etl")(lambda: None).enqueue()
    [first] = claim_for(app.broker, WORKER)
    app.broker.recover(dead=WORKER.id, started=[first.id])
    [second] = claim_for(app.broker, WORKER)
    yield CurrentJob(app, second, 0.0)
    app.close()


def former(*pages: str) -> Application:
    return Application(id="app-1", master="spark://ant:7077", attempt=1, pages=pages)


def test_the_applications_of_earlier_attempts_are_ended_and_no_others(
    page: Page, current: CurrentJob
):
    """By the id that was noted, whatever it is called, and by the name, if it was not noted."""
    named = f"etl {current.id} attempt "
    page.applications = {
        "app-1": "of my own name",
        "app-2": f"{named}1",
        "app-3": f"{named}2",
        "app-4": f"{named}3",
        "app-5": "etl 0190a6c4-5e1f-7000-8000-00000a1b2000 attempt 1",
    }

    kill_earlier(former("127.0.0.1:1", page.place), current)

    assert set(page.applications) == {"app-3", "app-4", "app-5"}
    assert name_of(current) == f"{named}2"


def test_a_job_is_put_back_while_a_former_application_does_not_end(
    page: Page, current: CurrentJob, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(application, "_KILL_SECONDS", 0.0)
    page.applications, page.deaf = {"app-1": "etl"}, True

    with pytest.raises(
        RetryLater, match="app-1 of an earlier attempt still runs on spark://ant:7077"
    ):
        kill_earlier(former(page.place), current)


def test_a_master_that_does_not_answer_is_told_of_and_gone_on_without(current: CurrentJob):
    kill_earlier(former("127.0.0.1:1"), current)

    current.close()
    [note] = current._app.broker.notes(current.id, "log")
    assert b"did not answer whether application app-1 of attempt 1 has ended" in note.value
    assert b"set spark.master.ui.port" in note.value
