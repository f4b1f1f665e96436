"""The Spark application of a detached job: its name, what is noted of it, the end of a former one.

Its name holds the job and the attempt, its id is noted with the job. Whoever resumes a job asks the
master of the attempt before whether that application still runs, and ends it first: a host that has
lost the store may still have the cluster. Only a standalone master can be asked. An application on
a master of its own, `local`, ends with its process, and of other masters nothing is known.
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
_PAGE_PORT = "spark.master.ui.port"  # Spark's own name for it
_NAME = re.compile(r" (?P<job>[0-9a-f-]{36}) attempt (?P<attempt>\d+)$")
_TOKEN = re.compile(r'name="csrfToken" value="([^"]+)"')  # Spark 4.3 asks for it
_ANSWER_SECONDS = 5.0
_LOOK_SECONDS = 0.5
_END_SECONDS = 30.0
_AGAIN_SECONDS = 60.0

_SILENCE = (OSError, HTTPException, msgspec.MsgspecError)

# What a session that is made now is called, where it is the application of one job.
NAME: ContextVar[str | None] = ContextVar("penstock_spark_name", default=None)

log = logging.getLogger("penstock.spark")


class Application(msgspec.Struct, frozen=True, kw_only=True):
    """The Spark application in which one attempt at a job runs."""

    id: str
    master: str
    attempt: int
    ui: str | None = None
    pages: tuple[str, ...] = ()  # host and port, where its master can be asked

    def __str__(self) -> str:
        ui = "" if self.ui is None else f", {self.ui}"
        return f"{self.id} on {self.master}{ui}"


class _Listed(msgspec.Struct):
    id: str
    name: str


class _Page(msgspec.Struct):
    activeapps: list[_Listed]


def name_of(current: CurrentJob) -> str:
    """What the application of this attempt is called, where people and the master list it."""
    return f"{current.task} {current.id} attempt {current.attempt}"


def described(spark: Any, attempt: int) -> Application:
    """The application of a session."""
    context = spark.sparkContext
    pages: tuple[str, ...] = ()
    if context.master.startswith(_STANDALONE):
        port = context.getConf().get(_PAGE_PORT, "8080")
        hosts = context.master.removeprefix(_STANDALONE).split(",")
        pages = tuple(f"{host.rpartition(':')[0] or host}:{port}" for host in hosts)
    return Application(
        id=context.applicationId,
        master=context.master,
        attempt=attempt,
        ui=context.uiWebUrl,
        pages=pages,
    )


def noted(broker: Broker, job: str) -> Application | None:
    """The application that was noted last with a job, of this attempt or one before."""
    notes = broker.notes(job, KIND)
    return msgspec.json.decode(notes[-1].value, type=Application) if notes else None


def end_former(former: Application, current: CurrentJob) -> None:
    """Return when no application of an earlier attempt runs on this master, as far as it says.

    One that does is ended there. If it does not end, the job is put back: two must not run.
    """
    if not former.pages:
        return
    until = time.monotonic() + _END_SECONDS
    told: set[str] = set()
    try:
        while others := _others(former, current):
            for page, id in others:
                if id not in told:
                    log.warning("application %s of an earlier attempt still runs: it is ended", id)
                    told.add(id)
                with suppress(HTTPException):  # the next look tells whether it went
                    _kill(page, id)
            if time.monotonic() > until:
                raise _still_there(others[0][1], former)
            time.sleep(_LOOK_SECONDS)
    except _SILENCE as error:
        if told:
            raise _still_there(min(told), former) from error
        current.log.warning(
            "%s does not say whether application %s of attempt %d has ended (%s); if its page is at"
            " another port, set %s",
            former.master,
            former.id,
            former.attempt,
            error,
            _PAGE_PORT,
        )


def _still_there(id: str, former: Application) -> RetryLater:
    note = f"application {id} of an earlier attempt runs on {former.master}, and is not seen to end"
    return RetryLater(after=_AGAIN_SECONDS, note=f"{note}: end it there")


def _others(former: Application, current: CurrentJob) -> list[tuple[str, str]]:
    """The applications of earlier attempts, each with the page that lists it.

    Of several masters one leads, and the others know nothing or are down: one has to answer.
    """
    found: list[tuple[str, str]] = []
    silence: list[Exception] = []
    for page in former.pages:
        try:
            listed = msgspec.json.decode(_asked(page, "GET", "/json/"), type=_Page).activeapps
        except _SILENCE as error:
            silence.append(error)
            continue
        found += [(page, each.id) for each in listed if _is_earlier(each, former, current)]
    if len(silence) == len(former.pages):
        raise silence[0]
    return found


def _is_earlier(listed: _Listed, former: Application, current: CurrentJob) -> bool:
    name = _NAME.search(listed.name)
    if name is not None and name["job"] == current.id:
        return int(name["attempt"]) < current.attempt
    return listed.id == former.id and former.attempt < current.attempt


def _kill(page: str, id: str) -> None:
    """Send the form by which people kill an application, with the token that the page gives it."""
    fields = {"id": id, "terminate": "true"}
    if found := _TOKEN.search(_asked(page, "GET", "/").decode("utf-8", "replace")):
        fields["csrfToken"] = found[1]
    _asked(page, "POST", "/app/kill/", urlencode(fields))


def _asked(page: str, verb: str, path: str, body: str | None = None) -> bytes:
    at = urlsplit(f"//{page}")
    connection = HTTPConnection(at.hostname or "", at.port, timeout=_ANSWER_SECONDS)
    try:
        headers = {"Content-Type": "application/x-www-form-urlencoded"} if body else {}
        connection.request(verb, path, body, headers)
        answer = connection.getresponse()
        if answer.status >= HTTPStatus.BAD_REQUEST:
            raise HTTPException(f"{verb} {path}: {answer.status} {answer.reason}")
        return answer.read()
    finally:
        connection.close()
