"""The environment of a store: who marks it, and who may run its jobs; see also tests/cli."""

from __future__ import annotations

import msgspec
import pytest

from penstock import App
from penstock.app.environment import VARIABLE, open_to_run
from penstock.broker.environment import Environment
from penstock.brokers import open_broker
from penstock.errors import Refused
from penstock.job import Job
from penstock.operate.actions import Actions
from penstock.operate.doctor import examine_jobs
from penstock.operate.refusals import Forbidden
from penstock.operate.roles import Person, Role
from penstock.spark.fleet.slot_worker import SlotConfig, work_slot
from tests.brokers.sharded.unplugged import Unplugged, sharded


def production(url: str, monkeypatch) -> None:
    """Mark a store as of production."""
    monkeypatch.setenv(VARIABLE, "production")
    app = App(url)
    app.enqueue([Job(task="mail:send")])
    open_to_run(app)
    app.close()


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'jobs.db'}"


def test_a_store_stays_unmarked_where_nobody_says_an_environment(url, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    app = App(url)
    app.enqueue([Job(task="mail:send")])

    assert open_to_run(app).records(Environment) == []
    app.close()


def test_the_first_environment_to_run_jobs_of_a_store_marks_it(url, monkeypatch):
    monkeypatch.setenv(VARIABLE, "laptop")  # who only enqueues or looks marks nothing
    App(url).enqueue([Job(task="mail:send")])

    production(url, monkeypatch)

    app = App(url)
    assert [each.environment for each in open_to_run(app).records(Environment)] == ["production"]
    monkeypatch.setenv(VARIABLE, "staging")
    with pytest.raises(Refused, match="'production', and this process is of 'staging'"):
        open_to_run(app)
    app.close()


def test_who_may_not_write_records_enqueues_all_the_same(url, monkeypatch):
    production(url, monkeypatch)
    monkeypatch.setenv(VARIABLE, "staging")

    App(url).enqueue([Job(task="mail:send")])

    broker = open_broker(url)
    assert [each.environment for each in broker.records(Environment)] == ["production"]
    assert sum(count.ready for count in broker.count()) == 2
    broker.close()


def test_a_slot_of_a_fleet_is_of_the_environment_of_its_driver(tmp_path, url, monkeypatch):
    production(url, monkeypatch)
    monkeypatch.setenv("PENSTOCK_URL", url)
    module = tmp_path / "fleet_of_staging.py"
    module.write_text("from penstock import App\napp = App()\n@app.task\ndef nap() -> None: ...\n")
    from penstock.app.version import RELEASE
    from penstock.spark.fleet.driver_channel import ChannelServer

    channel = ChannelServer("127.0.0.1", "127.0.0.1", lambda *_: None)
    monkeypatch.setenv("PYTHONPATH", "")  # a slot sets it
    end = work_slot(
        SlotConfig(
            target=str(module),
            address=channel.address,
            penstock=RELEASE,
            environment="staging",
            drain=True,
        ),
        0,
    )
    channel.close()

    assert (end.ended, end.code) == ("refused", 2)
    assert "this process is of 'staging'" in end.note


def test_one_shard_that_was_copied_from_elsewhere_is_enough_to_refuse(clock):
    stores = Unplugged(clock), Unplugged(clock)
    broker = sharded(clock, *stores)
    broker.put(Environment(environment="staging"))
    assert [each.environment for each in broker.records(Environment)] == ["staging"]

    stores[1].put(Environment(environment="production", adopts=True))

    assert {each.environment for each in broker.records(Environment)} == {"staging", "production"}
    broker.put(Environment(environment="staging", adopts=True))
    assert [each.environment for each in broker.records(Environment)] == ["staging"]


def test_a_shard_that_joins_is_of_the_environment_of_the_others(clock):
    stores = Unplugged(clock), Unplugged(clock)
    sharded(clock, stores[0]).put(Environment(environment="staging"))

    broker = sharded(clock, *stores)
    broker.moves.move([0], "b")

    assert [each.environment for each in stores[1].records(Environment)] == ["staging"]


def test_the_doctor_names_the_shard_that_is_elsewhere(clock):
    stores = Unplugged(clock), Unplugged(clock)
    for name, store in zip("ab", stores, strict=True):
        store.traits.places = lambda name=name: {"": (f"disk of {name}",)}
    broker = sharded(clock, *stores)
    places = {shard: ids[0] for shard, ids in broker.traits.places().items()}
    broker.put(Environment(environment="staging", places=places))
    assert "it was copied" not in said(broker)

    stores[1].traits.places = lambda: {"": ("another disk", "and the one before it")}

    assert "shard b of the store was on another server" in said(broker)
    stores[1].traits.places = lambda: {"": ("another disk", "disk of b")}
    assert "it was copied" not in said(broker)


def said(broker) -> str:
    return " ".join(finding.says for finding in examine_jobs(broker))


def test_to_adopt_a_store_takes_an_administrator(memory_broker):
    record = Environment(environment="staging", adopts=True)

    with pytest.raises(Forbidden, match="adopt needs the role admin"):
        Actions(memory_broker, Person("ada", Role.OPERATE)).adopt(record)

    Actions(memory_broker, Person("ada", Role.ADMIN)).adopt(record, "a clone")
    [kept] = memory_broker.records(Environment)
    assert kept == msgspec.structs.replace(
        record, adopts=False, author="ada", reason="a clone", set_at=kept.set_at
    )
