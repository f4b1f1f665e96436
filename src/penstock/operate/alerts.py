"""Alerts: what somebody wants to be told of, and when to tell it without flooding anybody.

    # penstock.toml
    [alerts]
    webhook = "https://hooks.example.org/T0/B0"   # or webhook_file, or PENSTOCK_ALERT_WEBHOOK

    [alerts.mail-is-late]
    queue = "mail"
    wait = "5m"

What decides is pure: `AlertFacts` are read once for all alerts, `faults` says what is wrong, and
`AlertState` which message is due. It forgets with its process, so a restart tells again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

import msgspec

from penstock.app.token_text import read_token_file
from penstock.broker.gauge import Gauge, last_gauges
from penstock.broker.protocol import Broker
from penstock.broker.views import Count, WorkerRow, by_queue
from penstock.errors import Refused
from penstock.operate.parse_input import parse_duration
from penstock.operate.sentences import jobs_text
from penstock.operate.time_text import duration_text
from penstock.operate.trends import Trend, TrendFilter, read_trend

WEBHOOK = "PENSTOCK_ALERT_WEBHOOK"
REPEAT_SECONDS = 3600.0  # while it lasts
FINE_SECONDS = 120.0  # so long nothing must be wrong before it is over
RATE_STEPS = 10  # minutes that a failure rate is taken of
LEAST_ATTEMPTS = 20  # in them, or there is no rate
STALE_SECONDS = 180.0  # a worker writes gauges every minute
_GENERAL = ("webhook", "webhook_file", "repeat")


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """What to watch: one queue, or without its name each queue. Any of its conditions counts."""

    name: str
    queue: str | None = None
    wait: float | None = None  # seconds; the oldest due job waits longer
    depth: int | None = None  # more jobs are ready
    failure_rate: float | None = None  # a larger share of the last minutes' attempts failed
    no_worker: bool = False  # jobs are ready that no live worker serves

    @property
    def text(self) -> str:
        """What it watches, in words."""
        conditions = [
            *([f"the oldest due job waits for {duration_text(self.wait)}"] if self.wait else []),
            *([f"more than {self.depth:,} jobs are ready"] if self.depth is not None else []),
            *(
                [f"more than {self.failure_rate:.0%} of the attempts fail"]
                if self.failure_rate is not None
                else []
            ),
            *(["jobs are ready and no worker is there"] if self.no_worker else []),
        ]
        where = "in any queue" if self.queue is None else f"in {self.queue}"
        return f"{where}: {' or '.join(conditions)}"


class AlertSettings(NamedTuple):
    """All that [alerts] says. The webhook's address may hold a secret: it is never shown."""

    alerts: tuple[Alert, ...]
    webhook: str
    repeat: float = REPEAT_SECONDS


class AlertFacts(NamedTuple):
    """What alerts are decided by, read from the store at one time."""

    now: float
    counts: Mapping[str, Count]  # by queue
    workers: Sequence[WorkerRow]
    gauges: Mapping[str, tuple[float, Gauge]]
    trend: Mapping[str, Trend]  # by queue; only of those whose rate is watched


class AlertMessage(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent, as JSON. `text` alone says it all: chat programs show that field."""

    text: str
    alert: str
    state: str  # firing, still, over or test
    faults: list[str]
    commands: list[str]
    at: float
    store: str


class AlertFault(NamedTuple):
    """What is wrong with a queue, in a sentence."""

    queue: str
    sentence: str


def parse_alerts(table: Mapping[str, Any], file: Path | None) -> AlertSettings:
    """The settings; refused whole if one cannot be understood."""
    where = f"{file}: [alerts]"
    alerts = tuple(
        _parse_alert(name, fields, f"{file}: [alerts.{name}]")
        for name, fields in table.items()
        if name not in _GENERAL
    )
    repeat = table.get("repeat")
    if repeat is not None and not isinstance(repeat, str):
        raise Refused(f'{where} repeat = {repeat!r}: a duration, as repeat = "1h"')
    return AlertSettings(
        alerts,
        _webhook(table, file, where) if alerts else "",
        REPEAT_SECONDS if repeat is None else parse_duration(repeat, f"{where} repeat"),
    )


def _parse_alert(name: str, table: Any, where: str) -> Alert:
    if not isinstance(table, dict):
        raise Refused(f'{where}: write a table [alerts.{name}], and wait = "5m" below it')
    fields = dict(cast("dict[str, Any]", table))
    wait = fields.pop("wait", None)
    if wait is not None and not isinstance(wait, str):
        raise Refused(f'{where} wait = {wait!r}: a duration, as wait = "5m"')
    seconds = None if wait is None else parse_duration(wait, f"{where} wait")
    known = {*Alert.__struct_fields__} - {"name"}
    if unknown := sorted({*fields} - known):
        raise Refused(f"{where}: there is no {unknown[0]!r}; there are {', '.join(sorted(known))}")
    try:
        alert = msgspec.convert({**fields, "name": name, "wait": seconds}, Alert)
    except msgspec.ValidationError as error:
        raise Refused(f"{where}: {error}") from None
    if alert.failure_rate is not None and not 0 < alert.failure_rate < 1:
        raise Refused(f"{where} failure_rate = {alert.failure_rate}: a share, as 0.2 for 20 %")
    if alert == Alert(name=name, queue=alert.queue):
        raise Refused(
            f"{where} watches nothing: give wait, depth, failure_rate or no_worker = true"
        )
    return alert


def _webhook(table: Mapping[str, Any], file: Path | None, where: str) -> str:
    given = os.environ.get(WEBHOOK) or table.get("webhook")
    if given is None and (named := table.get("webhook_file")) is not None:
        beside = Path() if file is None else file.parent
        given = read_token_file(beside / str(named)).strip()
    if given is None:
        raise Refused(f'{where} has no webhook = "https://…", no webhook_file, and no {WEBHOOK}')
    try:
        parts = urlsplit(given) if isinstance(given, str) else None
        usable = parts is not None and parts.scheme in {"http", "https"} and parts.hostname
    except ValueError:
        usable = False
    if not usable:  # not quoted: an address may hold a secret
        raise Refused(f"{where}: the webhook is no address that begins with https:// or http://")
    return str(given)


def read_facts(broker: Broker, alerts: Sequence[Alert]) -> AlertFacts:
    """One look at the store for all alerts."""
    now = broker.clock.now()
    counts = {count.queue: count for count in by_queue(broker.count())}
    gauges = last_gauges(broker.history(None, 1000, kind="gauge"))
    rated = {
        queue
        for alert in alerts
        if alert.failure_rate is not None
        for queue in ([*counts, *gauges] if alert.queue is None else [alert.queue])
    }
    trend = {
        queue: read_trend(broker.history, now, "hour", TrendFilter(queue=queue))
        for queue in sorted(rated)
    }
    return AlertFacts(now, counts, broker.workers(), gauges, trend)


def faults(alert: Alert, facts: AlertFacts) -> list[AlertFault]:
    """What is wrong now, queue by queue."""
    queues = sorted({*facts.counts, *facts.trend}) if alert.queue is None else [alert.queue]
    found: list[AlertFault] = []
    for queue in queues:
        count = facts.counts.get(queue, Count(queue, ""))
        sentences = [
            _late(alert, facts, count),
            _deep(alert, count),
            _failing(alert, facts.trend.get(queue)),
            _unserved(alert, facts, count),
        ]
        found += [AlertFault(queue, f"{queue}: {sentence}") for sentence in sentences if sentence]
    return found


def _late(alert: Alert, facts: AlertFacts, count: Count) -> str:
    at, gauge = facts.gauges.get(count.queue, (0.0, None))
    if alert.wait is None or gauge is None or gauge.oldest is None or not count.ready:
        return ""
    # Without a worker nobody writes gauges: the job has been waiting since the last one.
    age = facts.now - at
    waited = gauge.oldest + (age if age > STALE_SECONDS else 0.0)
    return f"the oldest due job waits for {duration_text(waited)}" if waited > alert.wait else ""


def _deep(alert: Alert, count: Count) -> str:
    if alert.depth is None or count.ready <= alert.depth:
        return ""
    return f"{_ready(count)}, more than {alert.depth:,}"


def _failing(alert: Alert, trend: Trend | None) -> str:
    if alert.failure_rate is None or trend is None:
        return ""
    failed, others = (
        sum(rate or 0.0 for rate in rates) * trend.step
        for rates in (
            trend.failed[-RATE_STEPS:],
            [*trend.succeeded[-RATE_STEPS:], *trend.again[-RATE_STEPS:]],
        )
    )
    ended = failed + others
    if round(ended) < LEAST_ATTEMPTS or failed / ended <= alert.failure_rate:
        return ""
    since = duration_text(RATE_STEPS * trend.step)
    return f"{failed / ended:.0%} of {round(ended):,} attempts failed within {since}"


def _unserved(alert: Alert, facts: AlertFacts, count: Count) -> str:
    if not alert.no_worker or not count.ready:
        return ""
    alive = [row for row in facts.workers if row.alive and row.queues != ()]
    if any(row.queues is None or count.queue in row.queues for row in alive):
        return ""
    return f"{_ready(count)}, and no live worker serves the queue"


def _ready(count: Count) -> str:
    return f"{jobs_text(count.ready)} {'is' if count.ready == 1 else 'are'} ready"


class AlertState:
    """Whether an alert fires, and which message is due. `sent` is called once it has arrived."""

    def __init__(self, repeat: float = REPEAT_SECONDS) -> None:
        self.since: float | None = None
        self.faults: list[AlertFault] = []
        self._repeat = repeat
        self._told = False
        self._last = 0.0
        self._fine: float | None = None

    def due(self, found: list[AlertFault], now: float) -> str:
        """What is to be told now: firing, still, over, or nothing.

        Something that comes and goes within two minutes is one alert.
        """
        if found:
            self.faults, self._fine = found, None
            self.since = now if self.since is None else self.since
            if not self._told:
                return "firing"
            return "still" if now - self._last >= self._repeat else ""
        if self.since is None:
            return ""
        self._fine = now if self._fine is None else self._fine
        if now - self._fine < FINE_SECONDS:
            return ""
        if self._told:
            return "over"
        self._clear()  # nobody heard of it
        return ""

    def sent(self, kind: str, now: float) -> None:
        self._told, self._last = True, now
        if kind == "over":
            self._clear()

    def _clear(self) -> None:
        self.since, self.faults, self._told, self._fine = None, [], False, None


_OPENING = {
    "firing": "{name}: {what}",
    "still": "{name}, for {span} now: {what}",
    "over": "{name} is over, after {span}",
    "test": "{name}: a test; nothing is wrong. It watches {watches}",
}
MOST_TOLD = 5


def message(alert: Alert, kind: str, state: AlertState, now: float, store: str) -> AlertMessage:
    """The message of this kind; it names the command that says more."""
    told = [] if kind in {"over", "test"} else state.faults
    sentences = [fault.sentence for fault in told]
    what = "; ".join(sentences[:MOST_TOLD])
    if len(sentences) > MOST_TOLD:
        what += f"; and {len(sentences) - MOST_TOLD:,} more"
    text = _OPENING[kind].format(
        name=alert.name,
        what=what,
        span=duration_text(now - (now if state.since is None else state.since)),
        watches=alert.text,
    )
    queues = list(dict.fromkeys(fault.queue for fault in told))[:MOST_TOLD]
    return AlertMessage(
        text=f"{text} ({store})" if store else text,
        alert=alert.name,
        state=kind,
        faults=sentences,
        commands=[f"penstock why queue:{queue}" for queue in queues],
        at=now,
        store=store,
    )
