"""Who may ask a manager for what: tokens, roles, queues."""

from __future__ import annotations

import msgspec
import pytest

from penstock import App
from penstock.broker.environment import Environment
from penstock.broker.filter import Filter
from penstock.broker.queue_options import Options, QueueOptions
from penstock.broker.slice import Selection
from penstock.broker.values import Wanted
from penstock.broker.views import Note, WorkerRow
from penstock.broker.wire_verbs import VERBS
from penstock.brokers import open_broker
from penstock.errors import Refused, StoreUnreachable, WrongUrl
from penstock.job import Job, Unique, failed, succeeded
from penstock.manager import access
from penstock.manager.access import ROLE_OF, parse_manager_tokens, read_manager_tokens
from penstock.manager.server import Manager, ManagerTls, check_listen
from penstock.rules.rule import Rule, RuleKind
from penstock.schedules.schedule import Schedule
from penstock.testing.conformance.factories import a_job, a_worker, claim_for, settle

ADA = "4c1e7a90b2d35f68e0c4a1b79d2f6e83"
WILL = "e19a5c07d3f84b26a0e7c9d1f5b38264"
PAUL = "0d4b8f62a7c913e5f8b2d6a094c7e1f3"
MAIL = "7f3a91c0e5d2486bb1f09e7c3a5d8264"
FILE = f"""
# name:role:queues:token
ada:operate:*:{ADA}
will:work:*:{WILL}
paul:produce:*:{PAUL}
mail:operate:mail,letters:{MAIL}
"""
ANY = {"mail:send": 1, "bills:pay": 1}


@pytest.fixture
def guarded(memory_broker):
    tokens = parse_manager_tokens(FILE, "tokens")
    with Manager(memory_broker, "127.0.0.1:0", tokens=tokens) as manager:
        yield manager


@pytest.fixture
def as_client(guarded, clock):
    """A broker with this token."""
    opened = []

    def client(token: str):
        opened.append(open_broker(f"penstock://:{token}@127.0.0.1:{guarded.port}", clock))
        return opened[-1]

    yield client
    for broker in opened:
        broker.close()


def two_jobs(broker, clock):
    """One that the token `mail` may see, and one that it may not."""
    mine = a_job(clock, queue="mail", tags={"n": "1"})
    other = a_job(clock, queue="bills", task="bills:pay", tags={"n": "2"})
    broker.enqueue([mine, other])
    return mine, other


def test_every_verb_has_a_role():
    assert ROLE_OF.keys() == VERBS.keys() | {"scan"}


def test_whoever_runs_jobs_learns_the_environment_and_who_operates_all_queues_sets_it(as_client):
    """Of some queues alone nobody sets it."""
    ada, will, mail = (as_client(token) for token in (ADA, WILL, MAIL))
    kept = ada.put(Environment(environment="production"))

    assert will.records(Environment) == mail.records(Environment) == [kept]
    for client in (will, mail):
        with pytest.raises(Refused):
            client.put(Environment(environment="staging", adopts=True))
        with pytest.raises(Refused):
            client.clear(Environment, kept.id)
    assert ada.records(Environment) == [kept]


def test_without_a_token_nothing_is_answered(guarded):
    with pytest.raises(WrongUrl, match="it needs a token"):
        open_broker(f"penstock://127.0.0.1:{guarded.port}")


def test_wrong_tokens_are_counted_logged_and_answered_late(guarded, monkeypatch, caplog):
    waited = []

    async def wait(seconds):
        waited.append(seconds)

    monkeypatch.setattr(access.asyncio, "sleep", wait)
    for _ in range(2):
        with pytest.raises(WrongUrl, match="is not one of this manager's"):
            open_broker(f"penstock://:{ADA}0@127.0.0.1:{guarded.port}")

    assert guarded.access.wrong == 2
    assert waited.count(access.LATE_SECONDS) == 2
    [line] = [record.getMessage() for record in caplog.records]  # one a minute
    assert line.startswith("wrong tokens: 1 since the last such line, the last one from ipv4:127")
    assert ADA not in caplog.text


def test_a_producer_enqueues_and_reads_and_does_no_more(as_client, clock):
    paul = as_client(PAUL)
    job = a_job(clock)
    paul.enqueue([job])

    assert paul.get(job.id) is not None
    with pytest.raises(Refused, match="paul has the role produce, and claim needs work"):
        paul.claim([Wanted(a_worker())])
    with pytest.raises(Refused, match="put needs operate"):
        paul.put(Rule(RuleKind.PAUSE, queue="mail"))
    with pytest.raises(Refused, match="put needs work"):
        paul.put(Schedule(name="nightly", job=Job(task="mail:send"), every=60.0))
    with pytest.raises(Refused, match="act needs operate"):
        paul.act("cancel", [job.id])
    with pytest.raises(Refused, match="scan needs work"):
        list(paul.scan(paul_slice()))


def paul_slice():
    from penstock.broker.slice import Slice

    return Slice(Selection(table="jobs"), "", "")


def test_a_worker_runs_jobs_and_puts_the_schedules_of_its_code(as_client, clock):
    will = as_client(WILL)
    will.enqueue([a_job(clock)])

    [[job]] = will.claim([Wanted(a_worker())]).jobs
    assert will.settle([(job, succeeded())]) == [True]
    will.put(Schedule(name="nightly", job=Job(task="mail:send"), every=60.0))
    with pytest.raises(Refused, match="put needs operate"):
        will.put(Rule(RuleKind.PAUSE, queue="mail"))


def test_a_token_of_one_queue_sees_nothing_of_another(as_client, clock):
    mine, other = two_jobs(as_client(ADA), clock)
    mail = as_client(MAIL)

    assert mail.get(other.id) is None
    assert mail.get_many([mine.id, other.id]).keys() == {mine.id}
    assert mail.why(other.id).cause == "unknown"
    assert [job.id for job in mail.find(Filter()).jobs] == [mine.id]
    assert list(mail.find(Filter(queue=("bills",))).jobs) == []
    assert {count.queue for count in mail.count()} == {"mail"}
    assert mail.notes(other.id) == []
    assert mail.act("cancel", [other.id, mine.id]) == [mine.id]
    assert mail.history(job=other.id) == []
    assert [row.kind for row in mail.history(job=mine.id)] == ["cancel"]


def test_what_may_concern_other_queues_is_refused(as_client, clock):
    mine, other = two_jobs(as_client(ADA), clock)
    mail = as_client(MAIL)

    for refused in (
        mail.history,
        mail.flows,
        lambda: mail.flow(mine.id),
        lambda: mail.outputs(other.id),
        lambda: mail.act("cancel", flow=mine.id),
        lambda: mail.signal("paid", b"1"),
        lambda: mail.audit("export", "ada"),
        lambda: mail.slices(Selection(table="jobs")),
        lambda: mail.reach(Selection(table="jobs")),
        lambda: list(mail.scan(paul_slice())),
        lambda: mail.stage("write", "part", []),
        lambda: mail.put(Rule(RuleKind.PAUSE)),
        lambda: mail.put(Rule(RuleKind.PAUSE, queue="bills")),
    ):
        with pytest.raises(Refused, match=r"of all queues"):
            refused()
    for wrong in (
        lambda: mail.enqueue([a_job(clock, queue="bills")]),
        lambda: mail.put(Schedule(name="x", job=Job(task="t", queue="bills"), every=60.0)),
    ):
        with pytest.raises(Refused, match="not of the queue 'bills'"):
            wrong()


def test_a_worker_of_one_queue_neither_takes_nor_ends_jobs_of_another(as_client, clock):
    ada, mail = as_client(ADA), as_client(MAIL)
    mine, other = two_jobs(ada, clock)
    [[held]] = ada.claim([Wanted(WorkerRow(id="of-bills", tasks=ANY), queues=["bills"])]).jobs

    [jobs] = mail.claim([Wanted(WorkerRow(id="of-mail", tasks=ANY), limit=9)]).jobs
    assert [job.id for job in jobs] == [mine.id]
    assert mail.settle([(held, failed("x")), (jobs[0], succeeded())]) == [False, True]
    assert mail.note(held, Note("log")) is False
    assert mail.recover(dead="of-bills") == 0
    with pytest.raises(Refused, match="not of the queues of that worker"):
        mail.renew([WorkerRow(id="of-bills", tasks=ANY)], holding=())
    with pytest.raises(Refused, match="not of the queues of that worker"):
        mail.claim([Wanted(WorkerRow(id="of-bills", tasks=ANY))])
    assert mail.prune(clock.now() + 1e6) == 0
    assert {row.id for row in mail.workers()} == {"of-mail"}
    assert ada.settle([(held, succeeded())]) == [True]
    assert other.id == held.id


def test_a_forged_lease_ends_no_job_of_another_queue(as_client, clock):
    """The store's own note of a claim is not taken from a client of some queues."""
    ada, mail = as_client(ADA), as_client(MAIL)
    two_jobs(ada, clock)
    [[other]] = ada.claim([Wanted(WorkerRow(id="of-bills", tasks=ANY), queues=["bills"])]).jobs
    [[mine]] = mail.claim([Wanted(WorkerRow(id="of-mail", tasks=ANY))]).jobs
    from msgspec.structs import replace

    forged = replace(mine, lease=other.lease, worker=other.worker)
    mail.settle([(forged, succeeded())])
    spawning = replace(succeeded(), spawned=(a_job(clock, queue="bills"),))
    with pytest.raises(Refused, match="not of the queue 'bills'"):
        mail.settle([(mine, spawning)])

    assert ada.settle([(other, succeeded())]) == [True]


def test_rules_and_schedules_of_other_queues_are_not_shown_or_changed(as_client, clock):
    ada, mail = as_client(ADA), as_client(MAIL)
    bills = ada.put(Rule(RuleKind.PAUSE, queue="bills"))
    everywhere = ada.put(Rule(RuleKind.PAUSE, task="mail:send"))
    ada.put(Schedule(name="bills", job=Job(task="t", queue="bills"), every=60.0))
    own = mail.put(Rule(RuleKind.PAUSE, queue="mail"))

    assert {rule.id for rule in mail.records(Rule)} == {everywhere.id, own.id}
    assert mail.records(Schedule) == []
    assert mail.clear(Rule, bills.id) is False
    assert mail.clear(Rule, everywhere.id) is False
    assert mail.clear(Schedule, "bills") is False
    assert mail.clear(Rule, own.id) is True
    with pytest.raises(Refused, match="not of the queue 'bills'"):
        mail.put(Schedule(name="bills", job=Job(task="t", queue="mail"), every=60.0))


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (f"ada:{ADA}", "name:role:queues:token"),
        (f"ada:king:*:{ADA}", "'king'; there are produce, work, operate"),
        ("ada:work:*:short", "is weak"),
        ("# nobody", "has no token"),
    ],
)
def test_tokens_that_cannot_be_read_are_refused_without_showing_them(line, sentence):
    with pytest.raises(Refused, match=sentence) as refused:
        parse_manager_tokens(line, "tokens")

    assert ADA not in str(refused.value)


def test_a_file_that_others_can_read_is_refused(tmp_path):
    file = tmp_path / "tokens"
    file.write_text(FILE)
    file.chmod(0o644)

    with pytest.raises(Refused, match="chmod 600"):
        read_manager_tokens(file)


def test_other_machines_are_let_in_only_by_tokens_and_tls(tmp_path):
    tokens = parse_manager_tokens(FILE, "tokens")
    tls = ManagerTls(tmp_path / "c.pem", tmp_path / "k.pem")

    for host in ("127.0.0.1", "localhost", "[::1]"):
        check_listen(f"{host}:7450", [], None, plain=False)
    with pytest.raises(Refused, match="--token-file"):
        check_listen("0.0.0.0:7450", [], tls, plain=True)
    with pytest.raises(Refused, match="without TLS the network sees"):
        check_listen("0.0.0.0:7450", tokens, None, plain=False)
    check_listen("0.0.0.0:7450", tokens, tls, plain=False)
    check_listen("0.0.0.0:7450", tokens, None, plain=True)
    with pytest.raises(Refused, match="write host:port"):
        check_listen("7450", tokens, tls, plain=False)


def test_a_port_that_is_in_use_is_said(guarded, memory_broker):
    with (
        pytest.raises(Refused, match=r"cannot listen at .*: the port is in use"),
        Manager(memory_broker, f"127.0.0.1:{guarded.port}"),
    ):
        pass


def test_a_client_that_speaks_tls_is_told_that_the_manager_does_not(guarded):
    url = f"penstock://:{ADA}@127.0.0.1:{guarded.port}?tls=yes"

    with pytest.raises(StoreUnreachable, match=r"does not speak TLS: leave out tls, .* in the URL"):
        open_broker(url).count()


@pytest.mark.parametrize("token", [ADA, WILL, PAUL, MAIL], ids=["ada", "will", "paul", "mail"])
def test_a_program_that_declares_queues_enqueues_with_any_token(guarded, memory_broker, token):
    """Its workers write the declaration; the token of one queue writes that of no other."""
    app = App(f"penstock://:{token}@127.0.0.1:{guarded.port}")
    for queue in ("mail", "bills"):
        app.queue(queue, lease=60.0)

    @app.task(name="mail:send", queue="mail")
    def send(to: str) -> None: ...

    job = send.enqueue("ada")

    assert memory_broker.get(job.id) is not None
    kept = {each.queue for each in memory_broker.records(QueueOptions)}
    assert (
        kept
        == {ADA: {"mail", "bills"}, WILL: {"mail", "bills"}, PAUL: set(), MAIL: {"mail"}}[token]
    )
    app.close()


def test_only_operators_set_options_of_queues(as_client):
    record = QueueOptions(queue="mail", override=Options(lease=60.0))
    for token in (WILL, PAUL):
        with pytest.raises(Refused, match="put needs operate"):
            as_client(token).put(record)

    assert as_client(MAIL).put(record).override == record.override
    with pytest.raises(Refused, match="may concern others"):
        as_client(MAIL).put(QueueOptions(queue="bills", override=Options(lease=60.0)))
    assert [each.queue for each in as_client(MAIL).records(QueueOptions)] == ["mail"]


def test_what_a_token_of_one_queue_learns_of_others(as_client, clock):
    """That an id or a unique key is taken, and that something happened: not what."""
    ada, mail = as_client(ADA), as_client(MAIL)
    taken = a_job(clock, queue="bills", task="bills:pay", unique=Unique("7"))
    ada.enqueue([taken])

    same_key, same_id = a_job(clock, queue="mail", unique=Unique("7")), a_job(clock, queue="mail")
    same_id = msgspec.structs.replace(same_id, id=taken.id)
    mail.enqueue([same_key])
    mail.enqueue([same_id])

    assert mail.find(Filter()).jobs == []
    assert mail.get(taken.id) is None
    assert [job.id for job in ada.find(Filter()).jobs] == [taken.id]


def test_a_worker_reads_the_secrets_of_jobs_of_its_queues_until_they_end(as_client, clock):
    body = b'{"args":{"card":"4111-canary"},"secret":["card"]}'
    job = a_job(clock, body=body)
    as_client(ADA).enqueue([job])
    will = as_client(WILL)

    assert will.get(job.id).body == body
    [claimed] = claim_for(will, a_worker(tasks=ANY))
    settle(will, claimed, succeeded(b"1"))
    assert b"canary" not in will.get(job.id).body
