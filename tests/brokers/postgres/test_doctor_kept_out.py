"""The doctor on PostgreSQL: the store is not reached, or not by everything that asks for it."""

from __future__ import annotations

import psycopg

from penstock.operate.doctor import Colour, Finding
from penstock.testing.postgres import Server
from tests.brokers.postgres.examined import bad, findings, run
from tests.brokers.postgres.logins import Logins
from tests.stories.pooler import Pooler


def test_a_pooler_that_the_url_does_not_name_is_found_out(store):
    with Pooler(store) as pooler:
        found = bad(pooler.url, "notifications")
        [named] = findings(f"{pooler.url}?pooler=true", "notifications")

    assert "a pooler in transaction mode" in found.says
    assert "?pooler=true" in found.remedy
    assert named.colour is Colour.GREEN
    assert "the URL says pooler=true" in named.says


def test_a_plain_login_is_told_what_it_could_not_look_at(store, logins: Logins):
    name = logins.login()
    logins.grant([name], [])
    with psycopg.connect(store) as reader:
        reader.execute("select 1")

        found = findings(logins.url_of(name))

    [hidden] = [each for each in found if "are hidden from" in each.says]
    assert f"grant pg_read_all_stats to {name}" in hidden.remedy
    assert {each.name for each in found} >= {"vacuum", "partitions", "connections", "wal"}
    assert not [each for each in found if each.says.startswith("not checked: syntax")]


def only(url: str) -> Finding:
    """The one thing that can be said of a store that cannot be looked at."""
    [found] = findings(url)
    assert found.colour is Colour.RED
    assert "no store" not in found.says
    return found


def test_a_server_that_is_down_is_said_to_be_down():
    found = only("postgresql://nobody@127.0.0.1:1/shop")

    assert "does not answer" in found.says
    assert "refused" in found.says
    assert found.remedy.startswith("start it")


def test_a_database_that_does_not_exist_is_named(store):
    found = only(f"{store.partition('?')[0]}_gone")

    assert "_gone" in found.says
    assert "does not exist" in found.says
    assert found.remedy == "create it, or name another one with --url"


def test_a_login_without_rights_on_the_schema_is_told_what_to_grant(store, logins: Logins):
    found = only(logins.url_of(logins.login()))

    assert "permission denied for schema penstock" in found.says
    assert "penstock migrate roles --worker" in found.remedy


def test_a_wrong_password_is_called_one():
    with Server() as server:
        run(server.url(), "create role ada login password 'right'")
        rules = "host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
        (server.data / "pg_hba.conf").write_text(rules)
        run(server.url(), "select pg_reload_conf()")

        found = only(f"postgresql://ada:wrong@127.0.0.1:{server.port}/postgres")

    assert "password authentication failed" in found.says
    assert found.remedy == "give the right user and password in the URL"


def test_a_table_that_is_not_ours_is_no_store(postgres_url):
    run(postgres_url, "create schema penstock", "create table penstock.meta (a integer)")

    assert "penstock.meta" in only(postgres_url).says
