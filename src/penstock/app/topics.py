"""Topics of an App: the subscriptions in its code, and what it publishes.

    receipt.subscribe("order.*")            in the code: stored when a worker starts
    app.publish("order.paid", order)        one job per subscription that fits, all or none

The store's subscriptions decide who receives a publication, at the moment that it is published.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from penstock.broker.filter import words_of
from penstock.enqueue.codec import encode_value
from penstock.enqueue.handle import Handle
from penstock.enqueue.subscription import (
    TOPIC,
    Publication,
    Subscription,
    check_pattern,
    check_subscription,
    check_topic,
    placed,
    receivers,
)
from penstock.errors import Refused
from penstock.task.option_checks import (
    check_identifier,
    check_short_text,
    check_tags,
    check_texts,
)

if TYPE_CHECKING:
    from penstock.app.app import App
    from penstock.broker.protocol import Broker
    from penstock.job import Job
    from penstock.task.options import Prepared


class Topics:
    """`app.topics`: the subscriptions of the code, and those of the store."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._in_code: dict[str, tuple[Prepared[..., Any], dict[str, Any]]] = {}
        self._undeclared = False

    def add(self, task: Prepared[..., Any], pattern: str, **options: Any) -> None:
        """Declare a subscription of the code."""
        given: dict[str, Any] = {**options, "pattern": check_pattern(pattern)}
        _check_takes(task)
        if options["name"] is not None:
            check_identifier("subscription", options["name"])
        name = options["name"] or task.task.name
        other = self._in_code.get(name)
        if other is not None and not _same(other, (task, given)):
            raise Refused(
                f"two subscriptions are called {name}, to {other[1]['pattern']} and {pattern}; give"
                " one of them another name=..."
            )
        self._in_code[name] = (task, given)
        self._undeclared = True

    def put(
        self,
        task: Prepared[..., Any],
        pattern: str,
        *,
        where: str | Sequence[str] = (),
        name: str | None = None,
        app: str | None = None,
        author: str = "",
        reason: str = "",
    ) -> Subscription:
        """Store a subscription now; the same name again replaces it. It stays until removed."""
        made = self._make(task, pattern=pattern, where=where, name=name, app=app)
        if made.name in {each.name for each in self._declared()}:
            raise Refused(f"subscription {made.name} is in the code of this app: change it there")
        return self._app.broker.put(made, author, reason)

    def remove(self, name: str, author: str = "", reason: str = "") -> bool:
        """Remove a subscription from the store; False if there was none. Its jobs stay.

        One that is in the code of a program is stored again when that starts anew.
        """
        return self._app.broker.clear(Subscription, name, author, reason)

    def all(self) -> list[Subscription]:
        """Every subscription of the store, whoever made it."""
        return self._app.broker.records(Subscription)

    def declare_anew(self) -> None:
        """Have the subscriptions of the code stored again at the next use of the store."""
        self._undeclared = bool(self._in_code)

    def declare(self, broker: Broker | None = None) -> None:
        """Store the subscriptions of the code, once, unless the store has them as they are."""
        if not self._undeclared:
            return
        broker = broker or self._app.broker
        kept = {each.name: each for each in broker.records(Subscription)}
        for made in self._declared():
            there = kept.get(made.name)
            if there is None or msgspec.structs.replace(there, created_at=0.0) != made:
                broker.put(made)
        self._undeclared = False

    def subscriptions(self, *, joined: bool = False) -> list[Subscription]:
        """Those of the store, this program's own included.

        `joined`: the caller has a transaction open, for which a write of its own would wait.
        """
        if not joined:
            self.declare()
            return self.all()
        own = self._declared() if self._undeclared else []
        return list({each.name: each for each in [*self.all(), *own]}.values())

    def jobs_of(self, publication: Publication, *, joined: bool = False) -> list[Job[Any]]:
        """The jobs of a publication, with their ids and times."""
        found = receivers(self.subscriptions(joined=joined), publication)
        ids = self._app.ids
        jobs = placed(found, [ids.first() for _ in found], ids.clock.now())
        return [
            msgspec.structs.replace(job, owner=self._app, provisional=None, final=job.id)
            for job in jobs
        ]

    def _declared(self) -> list[Subscription]:
        return [
            self._make(task, from_code=True, **options) for task, options in self._in_code.values()
        ]

    def _make(
        self,
        task: Prepared[..., Any],
        *,
        pattern: str,
        where: str | Sequence[str],
        name: str | None,
        app: str | None,
        from_code: bool = False,
    ) -> Subscription:
        own = self._app.name
        if name is None:  # programs of other names may have a task of the same name
            name = f"{own}/{task.task.name}" if own else task.task.name
        parameters = _check_takes(task)
        chosen = task.chosen
        if chosen.at is not None or chosen.unique is not None or chosen.connection is not None:
            raise Refused(
                f"subscription {name}: options(at=...), options(unique=...) and"
                " options(connection=...) are for one job"
            )
        return check_subscription(
            Subscription(
                name=check_identifier("subscription", name),
                pattern=pattern,
                job=task.template(),
                parameter=parameters[0],
                where=tuple(words_of(where) if isinstance(where, str) else where),
                app=self._app.name if app is None else check_identifier("app", app),
                takes_topic=TOPIC in parameters,
                search=task.task.search,
                delay=chosen.delay,
                expires=chosen.expires,
                from_code=from_code,
            )
        )


def _check_takes(task: Prepared[..., Any]) -> list[str]:
    """The parameters of a task that can receive what is published."""
    parameters = [each for each in task.parameters if each not in task.task.resources]
    if not parameters or parameters[0] == TOPIC:
        raise Refused(
            f"task {task.task.name} cannot subscribe: its first parameter receives what is"
            f" published, and {task.task.signature_text} has none for it"
        )
    return parameters


def _same(before: tuple[Prepared[..., Any], Any], now: tuple[Prepared[..., Any], Any]) -> bool:
    """The same again, or a module that is imported again and says the same of its new tasks."""
    if before[0].task is now[0].task:
        return before == now
    return before[0].task.name == now[0].task.name


class AppTopics:
    """What an App does with topics."""

    def publish(
        self,
        topic: str,
        value: Any = None,
        /,
        *,
        tags: Mapping[str, str] | None = None,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        connection: Any = None,
    ) -> list[Handle[Any]]:
        """Store one job for each subscription that fits, all or none; their handles.

        `value` is the first argument of each. Nobody who subscribes later receives it; an empty
        list says that nobody did before. `tags` are for filters and to find its jobs by, as is the
        tag `topic`, which each has; `key` is what it is about; `connection` joins the caller's
        transaction.
        """
        app = cast("App", self)
        publication = Publication(
            topic=check_topic(topic),
            value=encode_value(value, f"what is published under {topic}"),
            app=app.name,
            tags=check_tags(tags),
            key=check_short_text("key", key),
            headers=check_texts("headers", headers),
        )
        app.know_time()
        connection = app.connection_for(connection)
        joined = connection is not None
        jobs = [
            _checked(app, job)
            for job in app.ask(lambda: app.topics.jobs_of(publication, joined=joined))
        ]
        if not jobs:
            return []
        standing = app.store(jobs, connection).standing
        return [Handle(app, job.id, stored=job.id not in standing) for job in jobs]


def _checked(app: App, job: Job[Any]) -> Job[Any]:
    """As `task.job` makes it, where the task is here: hooks, and a value that it can take."""
    task = app.task_of(job)
    if task is None or task.version != job.version:
        return job
    task.codec.read(job.body)
    if not app.enqueue_hooks:
        return job
    body = msgspec.json.decode(job.body, type=dict[str, msgspec.Raw])
    headers = msgspec.json.decode(body.get("headers", b"{}"), type=dict[str, str])
    for hook in app.enqueue_hooks:
        hook(headers, task)
    body["headers"] = msgspec.Raw(msgspec.json.encode(check_texts("headers", headers)))
    return msgspec.structs.replace(job, body=msgspec.json.encode(body))
