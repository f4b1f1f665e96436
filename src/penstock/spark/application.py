"""The Spark application of a detached job: its name, its note, and killing that of an old attempt.

Its name holds the job's id and attempt; its application id is kept as a note of the job. Before a
job is resumed, the master of the previous attempt is asked whether that application still runs, and
kills it: a host that has lost the store may still reach the cluster. Only a standalone master can
be asked. A `local` application ends with its process; of other masters nothing is known.
"""

from __future__ import annotations

import logging
import re
import time
from contextlib import suppress
from contextvars import ContextVar
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

import msgspec

from penstock.errors import RetryLater

if TYPE_CHECKING:
    from penstock.broker.protocol import Broker
    from penstock.run.current import CurrentJob

KIND = "application"
_STANDALONE = "spark://"
_UI_PORT = "spark.master.ui.port"
_NAME = re.compile(r" (?P<job>[0-9a-f-]{36}) attempt (?P<attempt>\d+)$")
_TOKEN = re.compile(r'name="csrfToken" value="([^"]+)"')  # required by Spark 4.3
_REQUEST_SECONDS = 5.0
_POLL_SECONDS = 0.5
_KILL_SECONDS = 30.0
_RETRY_SECONDS = 60.0

_NO_ANSWER = (OSError, HTTPException, msgspec.MsgspecError)

# The application name for a session that is made for one detached job.
NAME: ContextVar[str | None] = ContextVar("penstock_spark_name", default=None)

log = logging.getLogger("penstock.spark")


class Application(msgspec.Struct, frozen=True, kw_only=True):
    """The Spark application in which one attempt at a job runs."""

    id: str
    master: str
    attempt: int
    ui: str | None = None
    pages: tuple[str, ...] = ()  # host:port of the web UI of each standalone master

    def __str__(self) -> str:
        ui = "" if self.ui is None else f", {self.ui}"
        return f"{self.id} on {self.master}{ui}"


class _ActiveApp(msgspec.Struct):
    id: str
    name: str


class _MasterState(msgspec.Struct):
    activeapps: list[_ActiveApp]


def name_of(current: CurrentJob) -> str:
    """The application name of this attempt, as the master lists it."""
    return f"{current.task} {current.id} attempt {current.attempt}"


def application_of(spark: Any, attempt: int) -> Application:
    """The application of a session."""
    context = spark.sparkContext
    pages: tuple[str, ...] = ()
    if context.master.startswith(_STANDALONE):
        port = context.getConf().get(_UI_PORT, "8080")
        hosts = context.master.removeprefix(_STANDALONE).split(",")
        pages = tuple(f"{host.rpartition(':')[0] or host}:{port}" for host in hosts)
    return Application(
        id=context.applicationId,
        master=context.master,
        attempt=attempt,
        ui=context.uiWebUrl,
        pages=pages,
    )


def last_application(broker: Broker, job: str) -> Application | None:
    """The application that was last noted with a job, of this attempt or an earlier one."""
    notes = broker.notes(job, KIND)
    return msgspec.json.decode(notes[-1].value, type=Application) if notes else None


def kill_earlier(former: Application, current: CurrentJob) -> None:
    """Kill applications of earlier attempts on this master, and wait until they have ended.

    If one does not end, the job is put back: two attempts must not run at a time.
    """
    if not former.pages:
        return
    until = time.monotonic() + _KILL_SECONDS
    killed: set[str] = set()
    try:
        while running := _running_earlier(former, current):
            for page, id in running:
                if id not in killed:
                    log.warning("application %s of an earlier attempt still runs: killing it", id)
                    killed.add(id)
                with suppress(HTTPException):  # the next poll shows whether it worked
                    _kill(page, id)
            if time.monotonic() > until:
                raise _still_running(running[0][1], former)
            time.sleep(_POLL_SECONDS)
    except _NO_ANSWER as error:
        if killed:
            raise _still_running(min(killed), former) from error
        current.log.warning(
            "%s did not answer whether application %s of attempt %d has ended (%s); if its web UI"
            " has another port, set %s",
            former.master,
            former.id,
            former.attempt,
            error,
            _UI_PORT,
        )


def _still_running(id: str, former: Application) -> RetryLater:
    note = f"application {id} of an earlier attempt still runs on {former.master}: kill it there"
    return RetryLater(after=_RETRY_SECONDS, note=note)


def _running_earlier(former: Application, current: CurrentJob) -> list[tuple[str, str]]:
    """Running applications of earlier attempts, each with the master that lists it.

    With standby masters only the leader knows applications: one master has to answer.
    """
    running: list[tuple[str, str]] = []
    failures: list[Exception] = []
    for page in former.pages:
        try:
            listed = msgspec.json.decode(
                _request(page, "GET", "/json/"), type=_MasterState
            ).activeapps
        except _NO_ANSWER as error:
            failures.append(error)
            continue
        running += [(page, app.id) for app in listed if _is_earlier(app, former, current)]
    if len(failures) == len(former.pages):
        raise failures[0]
    return running


def _is_earlier(listed: _ActiveApp, former: Application, current: CurrentJob) -> bool:
    name = _NAME.search(listed.name)
    if name is not None and name["job"] == current.id:
        return int(name["attempt"]) < current.attempt
    return listed.id == former.id and former.attempt < current.attempt


def _kill(page: str, id: str) -> None:
    """Submit the web UI's form that kills an application, with its CSRF token."""
    fields = {"id": id, "terminate": "true"}
    if token := _TOKEN.search(_request(page, "GET", "/").decode("utf-8", "replace")):
        fields["csrfToken"] = token[1]
    _request(page, "POST", "/app/kill/", urlencode(fields))


def _request(page: str, verb: str, path: str, body: str | None = None) -> bytes:
    address = urlsplit(f"//{page}")
    connection = HTTPConnection(address.hostname or "", address.port, timeout=_REQUEST_SECONDS)
    try:
        headers = {"Content-Type": "application/x-www-form-urlencoded"} if body else {}
        connection.request(verb, path, body, headers)
        answer = connection.getresponse()
        if answer.status >= HTTPStatus.BAD_REQUEST:
            raise HTTPException(f"{verb} {path}: {answer.status} {answer.reason}")
        return answer.read()
    finally:
        connection.close()
