"""Looks at the store every half minute, and sends what alerts have to say to a webhook.

A message that could not be delivered is due again at the next look. No redirect is followed, and
neither the webhook's address nor its answer is logged: both may hold secrets.
"""

from __future__ import annotations

import http.client
import logging
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from penstock.broker.protocol import Broker
from penstock.errors import PenstockError, Refused
from penstock.operate.alerts import (
    Alert,
    AlertMessage,
    AlertSettings,
    AlertState,
    faults,
    message,
    read_facts,
)
from penstock.operate.refusals import NotFound

logger = logging.getLogger("penstock.alerts")

EVERY_SECONDS = 30.0
_ANSWER_SECONDS = 10.0


class AlertRow(NamedTuple):
    """An alert as pages and commands show it."""

    name: str
    watches: str
    since: float | None  # None: nothing is wrong
    faults: list[str]
    undelivered: str  # why its last message did not arrive


class AlertWatch:
    """The alerts of one store; `check` looks once, `start` keeps a thread looking."""

    def __init__(
        self, settings: AlertSettings, broker: Callable[[], Broker], store: str = ""
    ) -> None:
        self.settings = settings
        self._broker = broker
        self._store = store
        self._states = {alert.name: AlertState(settings.repeat) for alert in settings.alerts}
        self._undelivered: dict[str, str] = {}
        self._closed = threading.Event()
        self._looking = threading.Lock()

    def start(self) -> None:
        threading.Thread(target=self._watch, name="penstock-alerts", daemon=True).start()

    def close(self) -> None:
        self._closed.set()

    def rows(self) -> list[AlertRow]:
        rows: list[AlertRow] = []
        for alert in self.settings.alerts:
            state = self._states[alert.name]
            sentences = [fault.sentence for fault in state.faults]
            undelivered = self._undelivered.get(alert.name, "")
            rows.append(AlertRow(alert.name, alert.text, state.since, sentences, undelivered))
        return rows

    def look(self) -> list[AlertRow]:
        """What is wrong now, and nothing is sent."""
        facts = read_facts(self._broker(), self.settings.alerts)
        return [
            AlertRow(
                alert.name,
                alert.text,
                facts.now if found else None,
                [fault.sentence for fault in found],
                "",
            )
            for alert in self.settings.alerts
            for found in [faults(alert, facts)]
        ]

    def check(self) -> None:
        """Look once, and send what is due."""
        with self._looking:
            facts = read_facts(self._broker(), self.settings.alerts)
            for alert in self.settings.alerts:
                state = self._states[alert.name]
                if kind := state.due(faults(alert, facts), facts.now):
                    self._deliver(alert, kind, state, facts.now)

    def test(self, name: str) -> str:
        """Send a message that says it is a test; why it did not arrive, or nothing."""
        alert = next((each for each in self.settings.alerts if each.name == name), None)
        if alert is None:
            known = ", ".join(each.name for each in self.settings.alerts) or "none"
            raise NotFound(f"no alert is called {name[:100]!r}; there is: {known}")
        now = self._broker().clock.now()
        return post(
            self.settings.webhook,
            message(alert, "test", self._states[name], now, self._store),
        )

    def _deliver(self, alert: Alert, kind: str, state: AlertState, now: float) -> None:
        sent = message(alert, kind, state, now, self._store)
        fault = post(self.settings.webhook, sent)
        if fault and self._undelivered.get(alert.name) != fault:
            logger.error("alert not delivered, it is tried again: %s: %s", sent.text, fault)
        self._undelivered[alert.name] = fault
        if not fault:
            logger.warning("alert: %s", sent.text)
            state.sent(kind, now)

    def _watch(self) -> None:
        failed = ""
        while not self._closed.is_set():
            try:
                self.check()
                failed = ""
            except PenstockError as error:
                if str(error) != failed:  # once for each outage
                    logger.warning("alerts: the store could not be read: %s", error)
                failed = str(error)
            except Exception:
                logger.exception("alerts")
            self._closed.wait(EVERY_SECONDS)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirect)


def post(address: str, sent: AlertMessage) -> str:
    """Send it; why it did not arrive, in a sentence without the address, or nothing."""
    host = urlsplit(address).hostname
    request = urllib.request.Request(  # noqa: S310  its scheme was checked when it was read
        address, msgspec.json.encode(sent), {"content-type": "application/json"}, method="POST"
    )
    try:
        with _opener.open(request, timeout=_ANSWER_SECONDS):
            return ""
    except urllib.error.HTTPError as error:
        error.close()
        return f"the webhook at {host} answered {error.code}"
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or type(error).__name__
        return f"the webhook at {host} cannot be reached: {reason}"


def configured_watch(broker: Callable[[], Broker], store: str = "") -> AlertWatch:
    """The alerts of penstock.toml; refused if it has none."""
    from penstock.app.settings import SETTINGS_FILE, alert_settings
    from penstock.operate.alerts import parse_alerts

    table, file = alert_settings()
    settings = parse_alerts(table, file)
    if not settings.alerts:
        raise Refused(
            f"no alerts are set: write [alerts] and [alerts.NAME] into {file or SETTINGS_FILE}; "
            "docs/how-to/alerts.md shows how"
        )
    return AlertWatch(settings, broker, store)
