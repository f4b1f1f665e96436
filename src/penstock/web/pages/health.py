"""The page Health: what the store promises, the alerts, and the doctor's findings.

The page loads the findings by itself. The doctor runs at most once a minute, however many people
look, and when somebody asks for it.
"""

from __future__ import annotations

from starlette.responses import Response

from penstock.broker.values import RETENTION_SECONDS
from penstock.broker.views import LEASE_SECONDS
from penstock.errors import Refused
from penstock.operate.doctor import Colour
from penstock.web.request import WebRequest

FRESH_SECONDS = 60.0
_CLASS = {Colour.GREEN: "succeeded", Colour.YELLOW: "running", Colour.RED: "failed"}
_WORD = {Colour.GREEN: "ok", Colour.YELLOW: "yellow", Colour.RED: "red"}
_ORDER = (Colour.RED, Colour.YELLOW, Colour.GREEN)


def show(request: WebRequest) -> Response:
    relaxed = () if request.site.app is None else sorted(request.site.app.queues.relaxed)
    return request.page(
        "health.html",
        title="Health",
        cli="penstock doctor",
        promise=request.store.promise(request.site.url),
        relaxed=relaxed,
        lease=LEASE_SECONDS,
        retention=RETENTION_SECONDS,
        alerts=[] if request.site.alerts is None else request.site.alerts.rows(),
        tested=request.word("tested"),
        fault=request.word("fault"),
    )


def test_alert(request: WebRequest) -> Response:
    """Send a test message of one alert; the page says whether it arrived."""
    if request.site.alerts is None:
        raise Refused("this dashboard watches no alerts: write them into penstock.toml")
    name = request.form().get("name", "")
    fault = request.site.alerts.test(name)
    return request.go("/health", tested=name, fault=fault or None)


def findings(request: WebRequest) -> Response:
    """The findings, for the page to load; examined again if they are older than a minute."""
    last, now = request.site.doctor_runs.last, request.store.now
    if last is None or now - last.at > FRESH_SECONDS:
        request.site.run_doctor(request.store)
    last = request.site.doctor_runs.last
    found = (
        [] if last is None else sorted(last.findings, key=lambda each: _ORDER.index(each.colour))
    )
    return request.page(
        "health_findings.html",
        last=last,
        under_way=request.site.doctor_runs.under_way,
        findings=[each for each in found if each.name != "promise"],
        red=sum(each.colour is Colour.RED for each in found),
        yellow=sum(each.colour is Colour.YELLOW for each in found),
        css=_CLASS,
        word=_WORD,
    )


def examine(request: WebRequest) -> Response:
    request.site.run_doctor(request.store)
    return request.go("/health")
