"""Queues as a program declares them.

`relaxed` concerns this process alone. An order is kept in the store, as a rule: workers of programs
that do not declare it must follow it, too.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from penstock.broker.protocol import Broker
from penstock.errors import Refused
from penstock.rules.key_order import check_same_policy, policies, policy_named, policy_text
from penstock.rules.rule import Rule, RuleKind
from penstock.task.option_checks import check_crash_budget, check_identifier


class Options(NamedTuple):
    """The options of a declared queue."""

    relaxed: bool
    policy: str | None
    crash_budget: int | None = None

    def __str__(self) -> str:
        own = [] if self.crash_budget is None else [f"crash_budget={self.crash_budget}"]
        return ", ".join([policy_text(self.policy), f"relaxed={self.relaxed}", *own])


class DeclaredQueues:
    """The queues that a program registered."""

    def __init__(self) -> None:
        self._known: dict[str, Options] = {}
        self.ordered: frozenset[str] = frozenset()  # whose jobs must have a key
        self.undeclared = False  # some are not declared in the store yet

    def register(
        self,
        name: str,
        *,
        relaxed: bool,
        fair: bool,
        ordered: Literal["wait", "skip"] | None,
        crash_budget: int | None = None,
    ) -> None:
        """Keep a queue's options; other ones than before are refused."""
        check_identifier("queue", name)
        policy = policy_named(name, ordered, fair=fair)
        options = Options(relaxed, policy, check_crash_budget(crash_budget))
        registered = self._known.setdefault(name, options)
        if registered != options:
            raise Refused(f"queue {name} is registered with {registered}, and now with {options}")
        if options.policy in {"wait", "skip"}:
            self.ordered |= {name}
        self.declare_anew()

    @property
    def relaxed(self) -> frozenset[str]:
        return frozenset(name for name, options in self._known.items() if options.relaxed)

    def crash_budget(self, name: str) -> int | None:
        """The crash budget of the jobs of a queue; None: that of the app."""
        options = self._known.get(name)
        return None if options is None else options.crash_budget

    def declare_anew(self) -> None:
        """Have the queues declared again at the next use of the store."""
        self.undeclared = any(options.policy for options in self._known.values())

    def declare(self, broker: Broker) -> None:
        """Write to the store which queues are ordered by key, unless it knows."""
        stored = policies(broker.records(Rule))
        for queue, options in self._known.items():
            if options.policy is None:
                continue
            check_same_policy(queue, stored.get(queue), options.policy)
            if queue not in stored:
                broker.put(Rule(RuleKind.ORDER, queue=queue, policy=options.policy))
        self.undeclared = False
