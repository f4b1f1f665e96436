"""Health: what this store promises, and what the doctor finds; looked at only when asked for."""

from __future__ import annotations

from starlette.responses import Response

from penstock.examine import Colour
from penstock.web.asked import Asked

_CLASS = {Colour.GREEN: "succeeded", Colour.YELLOW: "running", Colour.RED: "failed"}
_WORD = {Colour.GREEN: "ok", Colour.YELLOW: "look", Colour.RED: "red"}


def show(asked: Asked) -> Response:
    last, under_way = asked.site.examining.last, asked.site.examining.under_way
    findings = [] if last is None else list(last.findings)
    promise = next((each.says for each in findings if each.name == "promise"), "")
    order = (Colour.RED, Colour.YELLOW, Colour.GREEN)
    findings.sort(key=lambda each: order.index(each.colour))
    return asked.page(
        "health.html",
        title="Health",
        cli="penstock doctor",
        last=last,
        under_way=under_way,
        promise=promise,
        findings=[each for each in findings if each.name != "promise"],
        red=sum(each.colour is Colour.RED for each in findings),
        yellow=sum(each.colour is Colour.YELLOW for each in findings),
        css=_CLASS,
        word=_WORD,
    )


def examine(asked: Asked) -> Response:
    site, verbs = asked.site, asked.verbs
    known = None if site.app is None else site.app.known_tasks()
    site.examining.examine(lambda: verbs.examine(site.url, known), verbs.now)
    return asked.go("/health")
