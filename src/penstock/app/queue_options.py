"""Queues as a program declares them: what is kept here, and what every program must know.

`relaxed` is between this program and its store. An order is kept in the store itself, as a rule: a
worker of another program, which never heard of it, would otherwise break it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from penstock.broker.protocol import Broker
from penstock.errors import Refused
from penstock.rules.key_order import check_same_policy, policies, policy_named, policy_text
from penstock.rules.rule import Rule, RuleKind
from penstock.task.options import check_name


class Options(NamedTuple):
    """What was asked for of a queue."""

    relaxed: bool
    policy: str | None

    def __str__(self) -> str:
        return ", ".join([policy_text(self.policy), f"relaxed={self.relaxed}"])


class DeclaredQueues:
    """The queues that a program registered."""

    def __init__(self) -> None:
        self._known: dict[str, Options] = {}
        self.ordered: frozenset[str] = frozenset()  # whose jobs must have a key
        self.undeclared = False  # the store was not told of all of them yet

    def register(
        self,
        name: str,
        *,
        relaxed: bool,
        fair: bool,
        ordered: Literal["wait", "skip"] | None,
    ) -> None:
        """Keep a queue's options; other ones than before are refused."""
        check_name("queue", name)
        options = Options(relaxed, policy_named(name, ordered, fair=fair))
        registered = self._known.setdefault(name, options)
        if registered != options:
            raise Refused(f"queue {name} is registered with {registered}, and now with {options}")
        if options.policy in {"wait", "skip"}:
            self.ordered |= {name}
        self.declare_anew()

    @property
    def relaxed(self) -> frozenset[str]:
        return frozenset(name for name, options in self._known.items() if options.relaxed)

    def declare_anew(self) -> None:
        """The store, or another one, is to be told again."""
        self.undeclared = any(options.policy for options in self._known.values())

    def declare(self, broker: Broker) -> None:
        """Tell the store which queues are handed out by key; what it knows already is no write."""
        stored = policies(broker.records(Rule))
        for queue, options in self._known.items():
            if options.policy is None:
                continue
            check_same_policy(queue, stored.get(queue), options.policy)
            if queue not in stored:
                broker.put(Rule(RuleKind.ORDER, queue=queue, policy=options.policy))
        self.undeclared = False
