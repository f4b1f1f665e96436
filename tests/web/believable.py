"""A store as a shop has it on a weekday: for pages that have something to show."""

from __future__ import annotations

import json
import math
import random
from datetime import date, timedelta
from typing import Any

import msgspec

from penstock.broker.filter import Filter
from penstock.broker.protocol import Broker
from penstock.broker.views import Note, WorkerRow
from penstock.enqueue.copy import enqueue_copy
from penstock.enqueue.ids import Ids, derived_id
from penstock.flows.flow import Flow, Member, Node
from penstock.job import Job, State, failed, succeeded
from penstock.rules.rule import Rule, RuleKind
from penstock.schedules.schedule import Schedule
from penstock.schedules.timetable import decide
from penstock.task.backfill import KEY, TAG
from penstock.testing.clock import Clock
from penstock.testing.conformance.factories import claim_for

TASKS = {
    "shop:send_receipt": "mail",
    "shop:send_newsletter": "mail",
    "shop:resize": "media",
    "shop:index_product": "search",
    "shop:charge": "payments",
    "shop:import_catalogue": "imports",
    "shop:daily_report": "reports",
}
_TAKES = {task: 0.4 * 3**number for number, task in enumerate(TASKS)}  # seconds, roughly
FLOW_TASKS = ("shop:fetch", "shop:clean", "shop:score", "shop:summarise", "shop:publish")
ERROR = """Traceback (most recent call last):
  File "shop/payments.py", line 41, in charge
    response = gateway.charge(order, amount)
  File "shop/gateway.py", line 17, in charge
    raise Declined(order, reason)
shop.gateway.Declined: order 4711: the card was declined (insufficient funds)"""


class Shop:
    """Fills a store; everything happens in the last day, by a clock that is moved."""

    def __init__(self, broker: Broker, clock: Clock) -> None:
        self.broker = broker
        self.clock = clock
        self.ids = Ids(clock)
        self.random = random.Random(7)
        names = dict.fromkeys([*TASKS, *FLOW_TASKS], 1)
        self.workers = [
            WorkerRow(
                id=f"{host}-{pid}",
                host=host,
                pid=pid,
                tasks=names,
                penstock="0.1.0",
                code="5f0e11",
                lease=3600.0,
            )
            for host, pid in (("berlin-1", 2101), ("berlin-1", 2102), ("lisbon-1", 881))
        ]

    def a_job(self, task: str, **fields: Any) -> Job[Any]:
        job = Job[Any](task=task, id="", queue=TASKS.get(task, "flows"), **fields)
        return msgspec.structs.replace(job, id=self.ids.next(job.lane))

    def work(self, most: int = 200, bad: float = 0.04) -> None:
        """Claim what there is, and end most of it."""
        for worker in self.workers:
            self.broker.gauge()
            jobs = claim_for(self.broker, worker, limit=most // len(self.workers))
            self.clock.advance(seconds=self.random.uniform(0.5, 4))
            pairs = []
            for job in jobs:
                started = self.clock.now() - self.random.uniform(0.05, 2)
                wrong = self.random.random() < bad
                end = failed(ERROR) if wrong else succeeded(b'{"ok":true}')
                pairs.append((job, msgspec.structs.replace(end, started_at=started)))
            self.broker.settle(pairs)

    def trade(self) -> None:
        """An ordinary day."""
        for hour in range(6):
            jobs = []
            for task in TASKS:
                for number in range(self.random.randint(10, 40)):
                    order = 4000 + hour * 100 + number
                    body = json.dumps({"args": {"order": order, "amount": "19.90"}}).encode()
                    tenant = self.random.choice(["acme", "globex", "initech"])
                    jobs.append(self.a_job(task, body=body, tags={"tenant": tenant}))
            self.broker.enqueue(jobs)
            for _ in range(10):
                self.broker.gauge()
                self.clock.advance(seconds=60)
            self.work(400)
            self.broker.gauge()

    def week(self, days: int) -> None:
        """Days with a rhythm, a night without workers, a deploy, a pause, and a slow last hour."""
        steps = days * 24 * 12  # of five minutes
        for step in range(steps):
            hour = step / 12 % 24
            busy = 0.3 + 0.7 * max(0.0, math.sin(math.pi * (hour - 6) / 15))
            self._enqueue_some(round(6 * busy))
            if days > 2 and 2 * 288 < step <= 2 * 288 + 30:  # two and a half hours
                self.clock.advance(seconds=300)
                continue
            if days > 2 and step == 2 * 288 + 31:
                self._restart(code="")
            if step == (days - 1) * 288:
                self._restart(code="a41c09")
            if step == (days - 2) * 288 + 100:
                self.broker.put(Rule(RuleKind.PAUSE, "payments", None, "otto", "gateway is down"))
            if step == (days - 2) * 288 + 124:
                rule = Rule(RuleKind.PAUSE, "payments")
                self.broker.clear(Rule, rule.id, "otto", "it is back")
            self._work_off(slow=step > steps - 12)

    def _restart(self, code: str) -> None:
        """The workers again, under new names and perhaps with new code."""
        self.workers = [
            msgspec.structs.replace(
                row,
                id=f"{row.host}-{row.pid + 100}",
                pid=row.pid + 100,
                code=code or row.code,
                started_at=self.clock.now(),
            )
            for row in self.workers
        ]

    def _enqueue_some(self, most: int) -> None:
        jobs = [
            self.a_job(task, body=b'{"args":{"order":%d}}' % self.random.randint(1, 9999))
            for task in TASKS
            for _ in range(self.random.randint(0, most))
        ]
        self.broker.enqueue(jobs)

    def _work_off(self, *, slow: bool) -> None:
        """Five minutes: everything that is ready, begun a little later and ended."""
        self.broker.gauge()
        self.clock.advance(seconds=30)
        for worker in self.workers:
            pairs = []
            for job in claim_for(self.broker, worker, limit=60):
                took = self.random.lognormvariate(-1.5, 0.9) * _TAKES[job.task]
                took *= 6 if slow and job.task == "shop:resize" else 1
                started = self.clock.now() - 29 + self.random.expovariate(1 / 3)
                bad = self.random.random() < (0.06 if job.task == "shop:charge" else 0.005)
                end = failed(ERROR) if bad else succeeded(b'{"ok":true}')
                ended_at = started + took
                pairs.append(
                    (job, msgspec.structs.replace(end, started_at=started, ended_at=ended_at))
                )
            self.broker.settle(pairs)
        self.broker.gauge()
        self.clock.advance(seconds=270)

    def flows(self) -> None:
        """One that went well, and one that did not."""
        for number, bad in enumerate((0.0, 0.15)):
            self._flow(number, 40)
            for _ in range(40):
                self.work(200, bad)
                self.clock.advance(seconds=3)

    def _flow(self, number: int, jobs: int) -> None:
        fetch, clean, _, summary, publish = (self.ids.next(name) for name in FLOW_TASKS)
        languages = {name: self.ids.next(name) for name in ("de", "en", "pt")}
        mapped = self.ids.next("map")
        needs = {clean: (fetch,), mapped: (clean,), publish: (summary,)}
        needs |= dict.fromkeys(languages.values(), (mapped,))
        needs[summary] = tuple(languages.values())
        named = {fetch: "fetch", clean: "clean", summary: "summarise", publish: "publish"}
        named |= {id: f"translate_{name}" for name, id in languages.items()}
        flow, nodes, made = publish, [], []
        for id in (fetch, clean, mapped, *languages.values(), summary, publish):
            task = f"shop:{named.get(id, 'score')}"
            count = jobs if id == mapped else 1
            ids = [id]
            if id == mapped:
                ids = [self.ids.next(("score", number)) for _ in range(count)]
            for n, each in enumerate(ids):
                body = msgspec.json.encode({"args": {"n": n}, "flow": Member.of(flow, id)})
                state = State.WAITING if id in needs else State.READY
                made.append(Job[Any](task=task, id=each, queue="flows", body=body, state=state))
            members = tuple((each, 1) for each in ids)
            nodes.append(Node(id=id, task=task, members=members, needs=needs.get(id, ())))
        self.workers = [
            msgspec.structs.replace(row, tasks={**row.tasks, **{node.task: 1 for node in nodes}})
            for row in self.workers
        ]
        self.broker.enqueue(
            made,
            flow=Flow(
                id=flow,
                nodes=tuple(nodes),
                name="catalogue",
                find={"supplier": ("acme", "globex", "initech")[number], "day": "2026-11-16"},
                state=b'{"products":1204,"rejected":["4711","4712"]}',
            ),
        )

    def backfill(self) -> None:
        """Days of three months: most are done, some failed, some still to run."""
        days = [date(2026, 8, 1) + timedelta(days=n) for n in range(100)]
        jobs = [
            self.a_job(
                "shop:daily_report",
                body=json.dumps({"args": {"day": str(day)}}).encode(),
                key=KEY,
                tags={TAG: str(day)},
            )
            for day in days
        ]
        jobs = [
            msgspec.structs.replace(job, id=derived_id(KEY, job.task, job.tags[TAG], bucket=KEY))
            for job in jobs
        ]
        limit = {"running": 4, "per_key": True}
        for part, bad in ((jobs[:55], 0.0), (jobs[55:80], 0.3)):
            self.broker.enqueue(part)
            for _ in range(4):
                self.work(120, bad)
        self.broker.put(Rule(RuleKind.LIMIT, None, "shop:daily_report", KEY, "backfill", **limit))
        self.later = jobs[80:]

    def rules(self) -> None:
        say = self.broker.put
        now = self.clock.now()
        say(
            Rule(RuleKind.PAUSE, "imports", None, "ada", "supplier sends rubbish", until=now + 7200)
        )
        say(Rule(RuleKind.LIMIT, "payments", None, "otto", "gateway allows it", rate=(100, 60.0)))
        say(Rule(RuleKind.LIMIT, "media", None, "otto", "", running=4))
        say(Rule(RuleKind.ORDER, "search", None, "ada", "one product at a time", policy="wait"))
        say(Rule(RuleKind.BLOCK, None, "shop:send_newsletter", "ada", "until legal has read it"))

    def deeds(self) -> None:
        """What people did by hand."""
        bad = self.broker.find(Filter(state=(State.FAILED,), task=("shop:charge",))).jobs
        self.broker.act("retry", [bad[0].id], "otto", "the gateway is back")
        told = ("ada", "the importer is mended")
        enqueue_copy(self.broker, bad[1].id, told, '{"order": 4711, "amount": "9.90"}')
        said = {"verb": "cancel", "filter": "tag.tenant:initech task:shop:resize", "jobs": 312}
        self.broker.audit("operation", "otto", "left us", {"operation": self.ids.first(), **said})
        self.work(60)

    def schedules(self) -> None:
        def job(task: str) -> Job[Any]:
            return Job[Any](task=task, id="", queue=TASKS[task])

        put = self.broker.put
        put(
            Schedule(
                name="nightly report",
                job=job("shop:daily_report"),
                cron="30 2 * * *",
                zone="Europe/Paris",
                overlap="skip",
            )
        )
        put(Schedule(name="reindex", job=job("shop:index_product"), every=600.0, missed="skip"))
        put(
            Schedule(
                name="newsletter",
                job=job("shop:send_newsletter"),
                cron="0 9 * * 1",
                zone="Europe/Lisbon",
            )
        )
        put(
            Schedule(
                name="spring clean",
                job=job("shop:import_catalogue"),
                cron="15 2 * 3 0",
                zone="Europe/Berlin",
            )
        )
        for _ in range(5):
            for _ in range(10):
                self.broker.gauge()
                self.clock.advance(seconds=60)
            for each in self.broker.records(Schedule):
                decide(self.broker, each)
            self.work(60)

    def now(self) -> None:
        """What waits and runs at this moment, a flow with a map of 500 among it."""
        self._flow(2, 500)
        for most in (9, 9, 210):
            self.work(most, 0.01)
        jobs = []
        for task, queue in TASKS.items():
            key = "product-7" if queue == "search" else None
            jobs += [self.a_job(task, key=key) for _ in range(self.random.randint(20, 300))]
        later = self.clock.now() + 3600
        jobs += [self.a_job("shop:send_receipt", run_at=later) for _ in range(44)]
        self.broker.enqueue([*jobs, *self.later])
        for worker in self.workers:
            for job in claim_for(self.broker, worker, limit=4):
                value = b'{"fraction":0.4,"note":"page 4 of 10","at":%d}' % int(self.clock.now())
                self.broker.note(job, Note("progress", value=value))
        self.clock.advance(seconds=61)
        self.broker.gauge()

    def trickle(self) -> None:
        """Half a second of an ordinary day."""
        task = self.random.choice(list(TASKS))
        self.broker.enqueue([self.a_job(task) for _ in range(self.random.randint(2, 25))])
        for worker in self.workers:
            jobs = claim_for(self.broker, worker, limit=self.random.randint(2, 6))
            started = self.clock.now() - self.random.uniform(0.02, 0.3)
            ends = [failed(ERROR) if self.random.random() < 0.05 else succeeded() for _ in jobs]
            ends = [msgspec.structs.replace(end, started_at=started) for end in ends]
            self.broker.settle(list(zip(jobs, ends, strict=True)))
        self.clock.advance(seconds=0.5)


def fill(broker: Broker, clock: Clock, days: int = 0) -> Shop:
    """Everything that a page can show, after so many days of ordinary trade."""
    shop = Shop(broker, clock)
    if days:
        shop.week(days)
    shop.trade()
    shop.flows()
    shop.schedules()
    shop.backfill()
    shop.deeds()
    shop.rules()
    shop.now()
    return shop
