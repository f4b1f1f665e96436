"""Health: what this store promises, at once; and what the doctor finds, as soon as it has looked.

The page asks for the findings by itself. However many people look, the doctor does so once a minute
at most, and whenever somebody says so.
"""

from __future__ import annotations

from starlette.responses import Response

from penstock.broker.values import RETENTION_SECONDS
from penstock.broker.views import LEASE_SECONDS
from penstock.operate.doctor import Colour
from penstock.web.request import Asked

FRESH_SECONDS = 60.0
_CLASS = {Colour.GREEN: "succeeded", Colour.YELLOW: "running", Colour.RED: "failed"}
_WORD = {Colour.GREEN: "ok", Colour.YELLOW: "look", Colour.RED: "red"}
_ORDER = (Colour.RED, Colour.YELLOW, Colour.GREEN)


def show(asked: Asked) -> Response:
    relaxed = () if asked.site.app is None else sorted(asked.site.app.queues.relaxed)
    return asked.page(
        "health.html",
        title="Health",
        cli="penstock doctor",
        promise=asked.verbs.promise(asked.site.url),
        relaxed=relaxed,
        lease=LEASE_SECONDS,
        retention=RETENTION_SECONDS,
    )


def findings(asked: Asked) -> Response:
    """What the doctor found, for the page to show; looked for anew if it is older than a minute."""
    last, now = asked.site.examining.last, asked.verbs.now
    if last is None or now - last.at > FRESH_SECONDS:
        _examine(asked)
    last = asked.site.examining.last
    found = (
        [] if last is None else sorted(last.findings, key=lambda each: _ORDER.index(each.colour))
    )
    return asked.page(
        "health_findings.html",
        last=last,
        under_way=asked.site.examining.under_way,
        findings=[each for each in found if each.name != "promise"],
        red=sum(each.colour is Colour.RED for each in found),
        yellow=sum(each.colour is Colour.YELLOW for each in found),
        css=_CLASS,
        word=_WORD,
    )


def examine(asked: Asked) -> Response:
    _examine(asked)
    return asked.go("/health")


def _examine(asked: Asked) -> None:
    site, verbs = asked.site, asked.verbs
    known = None if site.app is None else site.app.known_tasks()
    site.examining.examine(lambda: verbs.examine(site.url, known), verbs.now)
