"""Roles: a plain login does all that producers and workers do; a block takes a role of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import psycopg
import pytest
from psycopg import errors

from penstock.broker.filter import parse_filter
from penstock.broker.lake_mark import Mark
from penstock.broker.views import WorkerRow
from penstock.brokers import open_broker
from penstock.brokers.postgres import PostgresBroker, migrating
from penstock.brokers.postgres.recovery import make_days
from penstock.errors import Refused
from penstock.job import State, Unique, failed, succeeded
from penstock.rules.rule import Rule, RuleKind, rule_id
from penstock.testing.conformance.factories import (
    a_flow,
    a_job,
    a_worker,
    claim,
    claim_for,
    end_all,
    part,
    settle_and_claim_for,
)
from tests.brokers.postgres.logins import Logins

DAY = 86400


@pytest.fixture
def plain(logins: Logins) -> str:
    """The URL of a login that may produce and work in a store that is there."""
    name = logins.login()
    logins.grant([name], [])
    return logins.url_of(name)


@pytest.fixture
def admin(logins: Logins, plain: str) -> str:
    """The URL of a login that may also block."""
    name = logins.login()
    logins.grant([], [name])
    return logins.url_of(name)


def blocks(url: str) -> list[tuple[str, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(
            "select kind, queue, reason from penstock.rule where kind = 'block'"
        ).fetchall()


def test_a_plain_role_sets_limits_and_claims_under_them(plain, clock):
    broker = PostgresBroker(plain, clock=clock)
    worker = WorkerRow(id="w", tasks={"send": 1})
    broker.enqueue([a_job(clock, task="send") for _ in range(5)])
    broker.enqueue([a_job(clock, task="send", key="ada") for _ in range(5)])

    broker.put(Rule(RuleKind.LIMIT, task="send", running=4, rate=(3, 60.0)))
    broker.put(Rule(RuleKind.LIMIT, task="send", rate=(1, 60.0), per_key=True))

    assert len(claim_for(broker, worker, None, 10)) == 3
    assert sum(count.limited for count in broker.count()) == 7
    assert broker.clear(Rule, rule_id(RuleKind.LIMIT, task="send"))
    broker.prune(clock.now() - 60)
    broker.close()


def test_a_plain_role_does_all_that_producers_and_workers_do(plain, clock):
    broker = PostgresBroker(plain, clock=clock)
    worker = WorkerRow(id="w", tasks={"send": 1})
    first, second, third = (a_job(clock, task="send") for _ in range(3))
    later = a_job(
        clock, task="send", run_at=clock.now() + 60, tags={"tenant": "a"}, unique=Unique("u")
    )

    broker.enqueue([first, second, third, later])
    broker.put(Rule(RuleKind.PAUSE, queue="default"))
    assert claim_for(broker, worker, None, 10) == []
    assert broker.clear(Rule, rule_id(RuleKind.PAUSE, queue="default"))
    jobs = claim_for(broker, worker, None, 2)
    assert broker.settle([(jobs[0], succeeded(b"1"))]) == [True]
    assert broker.act("cancel", [later.id]) == [later.id]
    broker.renew([worker])
    broker.recover(dead="w")

    assert broker.get(jobs[0].id).state is State.SUCCEEDED
    assert len(broker.find(parse_filter(["state:ready"], clock.now())).jobs) == 2
    assert sum(count.ready for count in broker.count()) == 2
    assert {event.kind for event in broker.history()} >= {"attempt", "rule"}
    assert broker.why(later.id)
    assert broker.act("delete", [later.id]) == [later.id]
    make_days(broker.store)
    clock.advance(seconds=40 * DAY)
    assert broker.prune(clock.now() - 30 * DAY) > 0
    broker.close()


def test_a_plain_role_runs_flows(plain, clock):
    broker = PostgresBroker(plain, clock=clock)
    flow = a_flow(clock, work=part(jobs=40), last=part("work", tags={"tenant": "a"}))

    flow.send(broker)
    jobs = claim(broker, 40)
    broker.settle([(jobs[0], failed("no"))])
    settle_and_claim_for(broker, [(job, succeeded(b"1")) for job in jobs[1:]], a_worker(), limit=1)
    assert flow.states(broker, "last") == [State.CANCELLED]
    assert broker.act("retry", [jobs[0].id]) == [jobs[0].id]
    more = a_flow(clock, flow.flow.id, more=part())
    broker.settle([(claim(broker)[0], more.spawned_by(succeeded(b"1")))])
    assert end_all(broker, succeeded(b"2")) == more.ids("more")
    assert len(broker.outputs(flow.nodes["work"])) == 40
    assert end_all(broker, succeeded()) == flow.ids("last")
    assert broker.flow(flow.flow.id).ended_at == clock.now()
    clock.advance(seconds=40 * DAY)
    broker.prune(clock.now() - 30 * DAY)

    assert broker.flow(flow.flow.id) is None
    broker.close()


def test_a_worker_runs_as_a_plain_role(plain):
    from penstock.tools.bench.tasks import app, nothing

    command = [sys.executable, "-m", "penstock", "worker", "penstock.tools.bench.tasks"]
    command += ["--url", plain, "--processes", "1", "--drain", "--log-level", "warning"]
    os.environ["PENSTOCK_URL"] = plain
    try:
        app.close()
        nothing.enqueue_many([(number, "x") for number in range(50)])
    finally:
        app.close()
        del os.environ["PENSTOCK_URL"]

    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode == 0, done.stderr
    assert "may not" not in done.stderr
    broker = open_broker(plain)
    assert len([event for event in broker.history() if event.kind == "attempt"]) == 50
    broker.close()


def test_a_plain_role_can_neither_block_nor_unblock(plain, logins):
    owner, broker = PostgresBroker(logins.url), PostgresBroker(plain)
    owner.put(Rule(RuleKind.BLOCK, queue="mail", reason="fraud"))

    with pytest.raises(Refused, match=r"may not block in the store .* penstock_admin"):
        broker.put(Rule(RuleKind.BLOCK, queue="other"))
    with pytest.raises(Refused, match=r"may not unblock in the store .*penstock migrate roles"):
        broker.clear(Rule, rule_id(RuleKind.BLOCK, queue="mail"))

    assert blocks(plain) == [("block", "mail", "fraud")]
    assert [rule.kind for rule in broker.records(Rule)] == ["block"]
    owner.close()
    broker.close()


@pytest.mark.parametrize(
    "statement",
    [
        "insert into penstock.rule values ('block', 'x', '', 'me', '', 0, null)",
        "update penstock.rule set kind = 'block' where kind = 'pause'",
        (
            "insert into penstock.rule values ('block', 'mail', '', 'me', '', 0, null)"
            " on conflict (kind, queue, task, version, tag, tag_value, key, per_key)"
            " do update set until = 0"
        ),
        "truncate penstock.rule",
        "drop policy rule_clear on penstock.rule",
        "alter table penstock.rule disable row level security",
        "set role penstock_admin",
        (
            "create or replace function penstock.may_block() returns boolean"
            " language sql as 'select true'"
        ),
    ],
)
def test_raw_sql_is_no_way_around_it(plain, logins, statement):
    owner = PostgresBroker(logins.url)
    owner.put(Rule(RuleKind.BLOCK, queue="mail", reason="fraud"))
    owner.put(Rule(RuleKind.PAUSE, queue="mail"))
    owner.close()

    with psycopg.connect(plain) as connection, pytest.raises(errors.InsufficientPrivilege):
        connection.execute(statement.encode())

    assert blocks(plain) == [("block", "mail", "fraud")]


@pytest.mark.parametrize(
    "statement",
    [
        "update penstock.lane set queue = 'other'",
        "delete from penstock.lane",
        "truncate penstock.lane",
        "delete from penstock.meta",
        "update penstock.meta set name = 'x'",
        "insert into penstock.meta values ('x', 'y')",
        "update penstock.sent set jobs = 0",
        "update penstock.tally set jobs = 0",
        "update penstock.parcel set bodies = ''",
        "update penstock.history set reason = 'none'",
        "select penstock.drop_day('penstock.rule', false)",
        "create table penstock.mine (id integer)",
    ],
)
def test_a_plain_role_may_do_no_more_than_the_verbs_need(plain, logins, clock, statement):
    owner = PostgresBroker(logins.url, clock=clock)
    owner.enqueue([a_job(clock)])
    owner.close()
    logins.grant([], [])  # once more takes nothing back

    with psycopg.connect(plain) as connection, pytest.raises(errors.InsufficientPrivilege):
        connection.execute(statement.encode())


def test_a_plain_role_says_how_far_it_pruned_and_nothing_else_of_the_store(plain, logins):
    with psycopg.connect(plain, autocommit=True) as connection:
        assert connection.execute("update penstock.meta set value = '0'").rowcount == 0
        connection.execute("insert into penstock.meta values ('pruned_before', '1')")
        assert connection.execute("update penstock.meta set value = '2'").rowcount == 1

    with psycopg.connect(logins.url) as connection:
        rows = dict(connection.execute("select name, value from penstock.meta").fetchall())
    assert rows.pop("pruned_before") == "2"
    assert "0" not in {rows["store"], rows["functions"], rows["schema"]}


def test_an_earlier_grant_of_everything_is_taken_back(plain, logins):
    with psycopg.connect(logins.url) as connection:
        connection.execute("grant all on all tables in schema penstock to penstock_worker")

    logins.grant([], [])

    with psycopg.connect(plain) as connection, pytest.raises(errors.InsufficientPrivilege):
        connection.execute("delete from penstock.meta")


@pytest.mark.parametrize(
    "statement",
    [
        "delete from penstock.rule",
        "delete from penstock.rule where kind = 'block'",
        "update penstock.rule set until = 0",
        "update penstock.rule set kind = 'pause' where kind = 'block'",
        "update penstock.rule set queue = 'nothing', reason = 'mine' where kind = 'block'",
    ],
)
def test_raw_sql_does_not_reach_a_block(plain, logins, statement):
    owner = PostgresBroker(logins.url)
    owner.put(Rule(RuleKind.BLOCK, queue="mail", reason="fraud"))
    owner.close()

    with psycopg.connect(plain, autocommit=True) as connection:
        assert connection.execute(statement.encode()).rowcount == 0

    assert blocks(plain) == [("block", "mail", "fraud")]
    with psycopg.connect(plain) as connection:
        assert connection.execute("select until from penstock.rule").fetchall() == [(None,)]


def test_an_admin_blocks_and_unblocks(admin):
    broker = PostgresBroker(admin)

    broker.put(Rule(RuleKind.BLOCK, queue="mail"))
    assert blocks(admin) == [("block", "mail", "")]
    assert broker.clear(Rule, rule_id(RuleKind.BLOCK, queue="mail"))

    assert blocks(admin) == []
    broker.close()


def test_the_command_line_says_it_in_one_sentence(plain):
    command = [sys.executable, "-m", "penstock"]
    done = subprocess.run(
        [*command, "block", "mail", "--admin", "--url", plain],
        capture_output=True,
        text=True,
        check=False,
    )
    paused = subprocess.run(
        [*command, "pause", "mail", "--url", plain], capture_output=True, text=True, check=False
    )

    assert done.returncode == 2
    assert "may not block in the store" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert paused.returncode == 0, paused.stderr


def test_without_admin_the_command_line_says_what_holds_in_this_store(plain):
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "block", "mail", "--url", plain],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2
    assert "a member of penstock_admin" in done.stderr
    assert "prevents mistakes only" not in done.stderr


def test_a_login_without_the_right_to_make_a_store_is_told_what_to_run(logins):
    url = logins.url_of(logins.login())

    with pytest.raises(Refused) as refusal:
        PostgresBroker(url)

    assert "there is no store in" in str(refusal.value)
    assert "have the database's owner run `penstock migrate up`" in str(refusal.value)


def test_a_login_that_was_granted_nothing_is_told_so(logins):
    PostgresBroker(logins.url).close()

    with pytest.raises(Refused, match=r"penstock migrate roles"):
        PostgresBroker(logins.url_of(logins.login()))


def test_a_plain_role_cannot_bring_a_store_forward_and_is_told_who_can(plain, logins):
    with psycopg.connect(logins.url) as connection:
        connection.execute("update penstock.meta set value = '0.0.1 x' where name = 'functions'")

    with pytest.raises(Refused) as refusal:
        PostgresBroker(plain)

    assert "is older than this Penstock (it lacks its functions)" in str(refusal.value)
    assert "have the owner of schema penstock run `penstock migrate up`" in str(refusal.value)


def test_tables_of_later_migrations_are_granted_too(plain, logins):
    with psycopg.connect(logins.url) as connection:
        connection.execute("create table penstock.later (id bigint generated always as identity)")

    with psycopg.connect(plain) as connection:
        connection.execute("insert into penstock.later default values")
        assert connection.execute("select id from penstock.later").fetchall() == [(1,)]


def test_a_name_that_no_role_can_have_is_refused_and_others_are_quoted():
    with pytest.raises(Refused, match="is not the name of a role"):
        migrating.roles_sql({"worker": [""]})

    assert 'to "a""; drop table x; --"' in migrating.roles_sql({"worker": ['a"; drop table x; --']})


def test_a_table_in_the_place_of_the_catalogs_makes_nobody_an_admin(plain, logins):
    owner = PostgresBroker(logins.url)
    owner.put(Rule(RuleKind.BLOCK, queue="mail", reason="fraud"))
    owner.close()

    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute(
            "create temp table pg_roles as select 'penstock_admin'::name as rolname, oid"
            " from pg_catalog.pg_roles where rolname = current_user"
        )
        connection.execute("set search_path = pg_temp, public, pg_catalog")
        assert connection.execute("select penstock.may_block()").fetchone() == (False,)
        assert connection.execute("delete from penstock.rule").rowcount == 0

    assert blocks(plain) == [("block", "mail", "fraud")]


def test_functions_with_the_owners_rights_say_where_they_look_names_up(logins):
    PostgresBroker(logins.url).close()

    with psycopg.connect(logins.url) as connection:
        rows = connection.execute(
            "select proname, proconfig from pg_proc"
            " where pronamespace = 'penstock'::regnamespace"
            " and (prosecdef or proname = 'may_block')"
        ).fetchall()

    assert {name for name, _ in rows} == {
        *("enqueue", "make_day", "may_block", "prune_evidence"),
        *("jobs_by_id", "jobs_by_tag", "jobs_by_unique_key", "settle", "enqueue_row"),
    }
    for name, settings in rows:
        assert "search_path=pg_catalog, pg_temp" in settings, name


def test_a_function_that_fits_better_is_not_taken_for_the_servers_own(plain, logins, clock):
    with psycopg.connect(logins.url) as connection:
        connection.execute(
            "create function public.jsonb_build_object(text, jsonb, text, jsonb) returns jsonb"
            " language plpgsql as $$ begin raise 'ran as %', current_user; end $$"
        )
    broker = PostgresBroker(plain, clock=clock)
    job = a_job(clock, unique=Unique("one"))

    assert broker.enqueue([job]).known == frozenset()

    assert broker.get(job.id).state is State.READY
    broker.close()


@pytest.fixture
def trigger(logins: Logins) -> str:
    """The URL of a login that may call the SQL function for triggers, and nothing else."""
    PostgresBroker(logins.url).close()
    name = logins.login()
    with psycopg.connect(logins.url) as connection:
        connection.execute(
            f"grant usage on schema penstock to {name};"
            f" grant execute on function penstock.enqueue to {name}".encode()
        )
    return logins.url_of(name)


def test_a_login_that_may_only_enqueue_from_sql_is_refused_without_an_error(trigger, logins, clock):
    broker = PostgresBroker(logins.url, clock=clock)

    with psycopg.connect(trigger) as connection:
        with pytest.raises(Refused, match="may not use the store"):
            broker.enqueue([a_job(clock)], connection=connection)
        assert connection.execute("select 1").fetchone() == (1,)

    broker.close()


def test_a_login_that_may_only_enqueue_from_sql_makes_no_partitions(trigger):
    with psycopg.connect(trigger) as connection, pytest.raises(errors.InsufficientPrivilege):
        connection.execute("select penstock.make_day(50000)")


def test_partitions_are_made_for_days_about_now(plain):
    with psycopg.connect(plain, autocommit=True) as connection:
        question = "select count(*) from pg_class where relname ~ '^(sent|history)_[0-9]{8}$'"
        [(before,)] = connection.execute(question)
        connection.execute("select penstock.make_day(day) from generate_series(50000, 50050) day")
        assert connection.execute(question).fetchone() == (before,)

        connection.execute(
            "select penstock.make_day(floor(extract(epoch from now()) / 86400)::integer + 20)"
        )
        assert connection.execute(question).fetchone() == (before + 2,)


def test_a_plain_role_stages_publishes_and_discards(plain, clock):
    broker = PostgresBroker(plain, clock=clock)
    broker.stage("write-1", "0/1", [*(a_job(clock) for _ in range(3)), a_job(clock, key="ada")])
    broker.stage("write-1", "0/2", [a_job(clock)])
    broker.stage("write-2", "0/1", [a_job(clock)])

    assert broker.commit_write("write-1", {"0/1": 4}).jobs == 4
    broker.discard("write-2")

    assert len(claim(broker, 10)) == 4
    broker.close()


def test_a_plain_role_sets_and_clears_marks_and_prunes_by_them(plain, clock):
    broker = PostgresBroker(plain, clock=clock)
    broker.put(Mark(lake="a", hold=0.0))
    clock.advance(days=2)

    broker.prune(clock.now() - DAY)

    [mark] = broker.records(Mark)
    assert mark.gap is not None
    assert broker.put(mark).gap is None
    assert broker.clear(Mark, "a") is True
    broker.close()
