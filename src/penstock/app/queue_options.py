"""Queues as a program declares them, and as they hold.

What a program declares is kept in the store, as `QueueOptions`: workers of programs that do not
declare it must follow it, too. What holds may be another release's declaration, or an operator's
override; each process keeps a copy, which it reads again when the store's rules changed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.broker.protocol import Broker
from penstock.broker.queue_options import (
    NOTHING,
    OF_JOBS,
    OPTION_NAMES,
    Options,
    QueueOptions,
    check_queue_options,
)
from penstock.broker.views import LEASE_SECONDS
from penstock.enqueue.codec import retry_numbers
from penstock.errors import PenstockError, Refused
from penstock.rules.key_order import policy_named
from penstock.rules.limits import parse_rate
from penstock.task.option_checks import (
    check_crash_budget,
    check_identifier,
    check_keep,
    check_seconds,
    check_strategy,
    check_timeout,
)
from penstock.task.option_types import QueueDeclaration, check_options, names_of
from penstock.task.retry import NO_RETRY, Retry

if TYPE_CHECKING:
    from penstock.app.app import App

_NAMES = names_of(QueueDeclaration)
READ_AGAIN_SECONDS = 60.0  # of a process that has no worker to tell it that something changed
SECONDS_BETWEEN = 0.5  # two reads, where the version of the rules changes with every look at it

log = logging.getLogger("penstock")


def options_of(what: str, given: QueueDeclaration) -> Options:
    """Options as they are kept, of what a program writes; `what` opens a refusal."""
    check_options(what, _NAMES, given)
    values: dict[str, Any] = dict(given)
    values.pop("require", None)
    fair = bool(values.pop("fair", False))
    order = policy_named(what, values.pop("ordered", None), fair=fair)
    checks: Mapping[str, Callable[[Any], Any]] = {
        "lease": lambda value: check_seconds("lease", value),
        "keep": check_keep,
        "timeout": check_timeout,
        "retry": lambda value: _numbers(what, value),
        "on_success": lambda value: check_strategy("on_success", value),
        "on_error": lambda value: check_strategy("on_error", value),
        "on_timeout": lambda value: check_strategy("on_timeout", value),
        "crash_budget": check_crash_budget,
        "rate": lambda value: parse_rate(value) if isinstance(value, str) else value,
    }
    checked = {name: checks.get(name, _as_it_is)(value) for name, value in values.items()}
    said: dict[str, Any] = {
        name: value for name, value in checked.items() if value is not None and value is not False
    }
    return msgspec.convert({**said, "order": order} if order else said, Options)


def required_of(what: str, given: QueueDeclaration) -> frozenset[str]:
    """The options that must be said, of what a program writes."""
    names = given.get("require", ())
    if isinstance(names, str):
        names = (names,)
    required = frozenset("order" if name == "ordered" else name for name in names)
    if unknown := sorted(required.difference(OPTION_NAMES)):
        raise Refused(
            f"{what}: require={unknown[0]!r} is no option of a queue; there are "
            f"{', '.join(OPTION_NAMES)}"
        )
    return required


def _as_it_is(value: Any) -> Any:
    return value


def _numbers(what: str, retry: Retry | None) -> Any:
    if retry is None:
        return None
    if not isinstance(retry, Retry):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without a checker
        raise Refused(f"{what}: retry={retry!r}: write Retry(limit=3, delay=10)")
    for name in ("on", "never"):
        if getattr(retry, name) != getattr(NO_RETRY, name):
            raise Refused(
                f"{what}: Retry({name}=...): exception classes are code and stay with the task;"
                f" set {name} there, and the numbers here"
            )
    return retry_numbers(retry)


class DeclaredQueues:
    """The queues that a program registered, and the options that hold for every queue."""

    def __init__(self, defaults: Options = NOTHING, required: frozenset[str] = frozenset()) -> None:
        self.defaults = defaults
        self._required = required  # of every queue
        self._required_of: dict[str, frozenset[str]] = {}
        self._known: dict[str, Options] = {}
        self._kept: dict[str, QueueOptions] = {}  # as the store had them
        self._effective: dict[str, Options] = {}
        self.undeclared = True  # what the store has was not read yet, or has to be told
        self._version: int | None = None
        self._refreshed_at = self._look_at = 0.0

    def register(self, name: str, options: Options, required: frozenset[str] = frozenset()) -> None:
        """Keep a queue's options; other ones than before are refused."""
        check_identifier("queue", name)
        registered = self._known.setdefault(name, options)
        if registered != options:
            raise Refused(
                f"queue {name} is registered with {registered.text}, and now with {options.text}"
            )
        options = options.over(self.defaults)
        check_queue_options(QueueOptions(queue=name, declared=options))
        self._required_of[name] = self._required_of.get(name, frozenset()) | required
        self._effective[name] = options
        self.declare_anew()

    @property
    def registered(self) -> frozenset[str]:
        """The names of queues that the code registers."""
        return frozenset(self._known)

    def of(self, queue: str) -> Options:
        """The options that hold for a queue."""
        return self._effective.get(queue, self.defaults)

    def check_said(self, queue: str, task: str, said: Collection[str]) -> None:
        """Refuse a job that lacks an option which its queue requires; `said` by it or its task."""
        required = self._required | self._required_of.get(queue, frozenset())
        if missing := sorted(required.difference(said, _told(self.of(queue)))):
            name = missing[0]
            word = "ordered" if name == "order" else name
            where = (
                f'@app.task({word}=...), app.queue("{queue}", {word}=...) or options({word}=...)'
                if name in OF_JOBS
                else f'app.queue("{queue}", {word}=...)'
            )
            raise Refused(
                f"queue {queue} requires {' and '.join(missing)}, and nobody says so for jobs of "
                f"{task}: write {where}"
            )

    @property
    def relaxed(self) -> frozenset[str]:
        return frozenset(
            name for name, options in self._effective.items() if options.relaxed is True
        )

    def lease(self, queues: Collection[str] | None) -> float:
        """How long the lease of a worker of these queues lasts: as the strictest of them says."""
        leases = [
            options.lease
            for name, options in self._effective.items()
            if (queues is None or name in queues) and isinstance(options.lease, float)
        ]
        default = self.defaults.lease
        own = default if isinstance(default, float) else LEASE_SECONDS
        return min(leases, default=own)

    def declare_anew(self) -> None:
        """Have the queues declared again at the next use of the store."""
        self.undeclared = True

    def refresh(self, broker: Broker, app: str, version: int) -> None:
        """Read the options again if the version of the rules is not that of the last read.

        Called by workers, every second or two.
        """
        now = time.monotonic()
        self._look_at = now + READ_AGAIN_SECONDS
        if version != self._version and now >= self._refreshed_at + SECONDS_BETWEEN:
            self._refreshed_at = now
            self._take(broker, self._read(broker, app))
            self._version = version

    def prepare(self, broker: Broker, app: App) -> None:
        """Before a use of the store: declare what is not, and look at what holds, once a minute."""
        if self.undeclared:
            self.declare(broker, app.name, lambda: app.code)
        elif time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + READ_AGAIN_SECONDS
            with suppress(PenstockError, OSError):  # the call that follows says what is wrong
                self._take(broker, self._read(broker, app.name))

    def declare(self, broker: Broker, app: str, code: Callable[[], str]) -> None:
        """Tell the store what this program declares, if it does not know, and read what holds."""
        kept = self._read(broker, app)
        for queue, own in self._known.items():
            options, record = own.over(self.defaults), kept.get(queue)
            if record is not None and record.declared == options:
                continue
            if record is not None and _is_older(broker, record, code()):
                log.info(
                    "queue %s: the options that a newer release declared stand, as it is running",
                    queue,
                )
                continue
            own_record = QueueOptions(queue=queue, app=app, declared=options, code=code())
            try:
                kept[queue] = broker.put(own_record)
            except Refused as error:  # a login that may enqueue, and change nothing else
                log.warning("queue %s: its options are not in the store: %s", queue, error)
        self._take(broker, kept)
        self.undeclared = False

    def _read(self, broker: Broker, app: str) -> dict[str, QueueOptions]:
        return {
            record.queue: record for record in broker.records(QueueOptions) if record.app == app
        }

    def _take(self, broker: Broker, kept: dict[str, QueueOptions]) -> None:
        self._kept = kept
        effective = {name: own.over(self.defaults) for name, own in self._known.items()}
        for queue, record in kept.items():
            known = self._effective.get(queue)
            options = record.effective.over(self.defaults)
            # The same object while nothing changed: others keep what they made of it.
            effective[queue] = known if known is not None and known == options else options
        self._effective = effective
        broker.traits.relaxed = self.relaxed


def _told(options: Options) -> set[str]:
    return {name for name, value in options.said.items() if value is not None}


def _is_older(broker: Broker, record: QueueOptions, code: str) -> bool:
    """Whether this code is that of an earlier release, and the later one is running."""
    if code not in record.replaced:
        return False
    try:
        workers = broker.workers()
    except Refused:
        return True  # a client of a manager that may not look may not declare either
    return any(worker.alive and worker.code == record.code for worker in workers)
