"""Opening shards: the map, who makes it, and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock.app.settings import anchor, mask
from penstock.broker.filter import Filter
from penstock.broker.shard_map import ShardMap, even_ranges
from penstock.brokers import drivers, open_broker, store_condition
from penstock.brokers.memory import MemoryBroker
from penstock.brokers.sharded.opening import map_of
from penstock.enqueue.ids import BUCKETS
from penstock.errors import Refused, StoreUnreachable
from penstock.operate.doctor import examine
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.clock import Clock
from penstock.testing.conformance.factories import a_job, claim
from tests.brokers.sharded.unplugged import IN_A, IN_B, Killed, Unplugged, job_in, sharded


@pytest.fixture
def stores(clock: Clock) -> tuple[Unplugged, Unplugged]:
    return Unplugged(clock), Unplugged(clock)


def kept(store: MemoryBroker) -> ShardMap:
    found = map_of(store)
    assert found is not None
    return found


def test_the_first_to_open_cuts_the_buckets_evenly(clock, stores):
    broker = sharded(clock, *stores)

    assert broker.shards.map.buckets() == {"a": [(0, 511)], "b": [(512, 1023)]}
    assert [kept(store).shard for store in stores] == ["a", "b"]
    assert kept(stores[0]).agrees(kept(stores[1]))
    assert sharded(clock, *stores).shards.map.agrees(broker.shards.map)


@pytest.mark.parametrize("shards", [1, 2, 3, 7])
def test_every_bucket_has_one_owner(shards):
    names = [f"s{number}" for number in range(shards)]
    shard_map = ShardMap(fleet="f", shard="s0", ranges=even_ranges(names))

    owned = [shard_map.owner(bucket) for bucket in range(BUCKETS)]

    assert owned == sorted(owned)
    assert {abs(owned.count(name) - BUCKETS / shards) < 1 for name in names} == {True}


def test_a_store_that_was_used_keeps_all_buckets(clock, stores):
    job = a_job(clock)
    stores[1].enqueue([job])

    broker = sharded(clock, *stores)

    assert broker.shards.map.names == ["b"]
    assert broker.get(job.id).id == job.id


def test_two_stores_that_were_used_are_refused(clock, stores):
    stores[0].put(Rule(RuleKind.PAUSE, queue="mail"))
    stores[1].enqueue([a_job(clock)])

    with pytest.raises(Refused, match="'a' and 'b' both have jobs or history"):
        sharded(clock, *stores)

    assert [map_of(store) for store in stores] == [None, None]


@pytest.mark.parametrize("steps", range(12))
def test_killed_while_the_map_is_made_the_next_to_open_goes_on(clock, stores, steps):
    stores[1].kill_at = steps
    try:
        first = sharded(clock, *stores).shards.map
    except Killed:
        first = None
    stores[1].kill_at = None

    found = sharded(clock, *stores).shards.map

    assert found.epoch == 1
    assert kept(stores[0]).agrees(kept(stores[1]))
    assert first is None or first.agrees(found)


def test_names_that_changed_places_are_refused(clock, stores):
    sharded(clock, *stores)

    with pytest.raises(Refused, match="the store of shard 'a' is shard 'b'"):
        sharded(clock, *reversed(stores))


def test_a_store_that_was_emptied_is_refused(clock, stores):
    sharded(clock, *stores)

    with pytest.raises(Refused, match="'b', and its store has no map: it was emptied or replaced"):
        sharded(clock, stores[0], Unplugged(clock))


def test_stores_of_two_sets_are_refused(clock, stores):
    sharded(clock, *stores)
    others = Unplugged(clock), Unplugged(clock)
    sharded(clock, *others)

    with pytest.raises(Refused, match="belong to two sets of shards"):
        sharded(clock, stores[0], others[1])


def test_a_shard_that_the_file_leaves_out_is_asked_for(clock, stores):
    sharded(clock, *stores)

    with pytest.raises(Refused, match="buckets on shard 'b', which the file of shards does not"):
        sharded(clock, stores[0])


def test_an_empty_store_may_be_named_beside_the_others(clock, stores):
    sharded(clock, *stores)
    more = Unplugged(clock)

    assert sharded(clock, *stores, more).shards.map.names == ["a", "b"]
    assert kept(more).shard == "c"


def test_a_used_store_may_not(clock, stores):
    sharded(clock, *stores)
    used = Unplugged(clock)
    used.enqueue([a_job(clock)])

    with pytest.raises(Refused, match="shard 'c' has jobs or history of its own"):
        sharded(clock, *stores, used)


def test_the_first_map_needs_all_shards(clock, stores):
    stores[1].away = True

    with pytest.raises(StoreUnreachable, match="shard b is away, and no shard has a map"):
        sharded(clock, *stores)


def test_later_one_may_be_away_and_come_back(clock, stores):
    sharded(clock, *stores)
    stores[1].away = True
    broker = sharded(clock, *stores)
    here, there = job_in(clock, IN_A), job_in(clock, IN_B)

    broker.enqueue([here])
    with pytest.raises(StoreUnreachable, match="shard b: nobody answers"):
        broker.enqueue([there])
    stores[1].away = False
    broker.enqueue([there])

    assert {job.id for job in claim(broker, limit=5)} == {here.id, there.id}
    assert broker.traits.missing() == ()


# The file


def test_a_file_names_the_shards(tmp_path: Path, clock, sqlite_shards: str):
    broker = open_broker(sqlite_shards, clock)
    broker.enqueue([a_job(clock)])
    broker.close()

    again = open_broker(sqlite_shards, clock, create=False)
    assert len(claim(again)) == 1
    again.close()


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_shard_by_itself_is_refused(tmp_path: Path, clock, sqlite_shards: str, name: str):
    open_broker(sqlite_shards, clock).close()

    with pytest.raises(Refused, match=rf"{name}.db is shard '{name}' of several: open all"):
        open_broker(f"sqlite:///{tmp_path / name}.db", clock)


def test_without_a_map_nobody_who_only_looks_makes_one(clock, sqlite_shards: str):
    with pytest.raises(Refused, match="the shards have no map yet"):
        open_broker(sqlite_shards, clock, create=False)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", r"no table \[shards\]"),
        ("[shards]\n", r"no table \[shards\]"),
        ("[shards]\nA = 'sqlite:///a.db'", "'A' is no name of a shard"),
        ("[shards]\na = 7", "shard a has no URL"),
        ("[shards]\na = 'memory:'", "other processes can open too"),
        ("[shards]\na = 'shards:///b.toml'", "other processes can open too"),
        ("[shards]\na = 'penstock://:secret@host'", r"penstock://:\*\*\*@host"),
        ("[shards", "cannot be read"),
    ],
)
def test_a_file_that_names_no_stores_is_refused(tmp_path: Path, text: str, says: str):
    (tmp_path / "shards.toml").write_text(text)

    with pytest.raises(Refused, match=says):
        open_broker(f"shards:///{tmp_path / 'shards.toml'}")


def test_no_file_is_refused(tmp_path: Path):
    with pytest.raises(
        Refused,
        match=r"there is no file of shards .*missing\.toml; a path from the root has four slashes",
    ):
        open_broker(f"shards:///{tmp_path / 'missing.toml'}")


def test_the_url_is_one_of_a_file(tmp_path: Path):
    assert anchor("shards:///x/shards.toml", tmp_path) == f"shards:///{tmp_path}/x/shards.toml"
    assert mask("shards:///x/shards.toml") == "shards:///x/shards.toml"


def test_its_drivers_are_those_of_its_stores(tmp_path: Path):
    lines = "[shards]\na = 'sqlite:///a.db'\nb = 'redis://host'\nc = 'postgresql://host/x'"
    (tmp_path / "shards.toml").write_text(lines)

    found = drivers(f"shards:///{tmp_path / 'shards.toml'}")

    assert {"hiredis", "psycopg"} <= set(found)


def test_the_doctor_looks_at_each_store(tmp_path: Path, clock, sqlite_shards: str):
    open_broker(sqlite_shards, clock).close()
    found = store_condition(sqlite_shards)
    assert (found.kind, found.exists, found.trouble) == ("shards", True, ())
    assert [fact.name for fact in found.facts] == ["shard a", "shard b"]

    shutil.copyfile(__file__, tmp_path / "b.db")
    [wrong] = store_condition(sqlite_shards).trouble
    assert wrong.says.startswith("shard b: ")


@pytest.mark.parametrize("create", [True, False])
def test_a_shard_whose_file_is_lost_is_away_and_no_file_is_made(
    tmp_path: Path, clock, sqlite_shards: str, create: bool
):
    open_broker(sqlite_shards, clock).close()
    lost = tmp_path / "b.db"
    kept = lost.rename(tmp_path / "kept.db")

    broker = open_broker(sqlite_shards, clock, create=create)
    broker.enqueue([job_in(clock, IN_A)])
    for _ in range(2):
        clock.advance(seconds=60)
        with pytest.raises(StoreUnreachable, match="shard b: there is no store at"):
            broker.enqueue([job_in(clock, IN_B)])

    assert len(broker.find(Filter()).jobs) == 1
    assert not lost.exists()
    kept.rename(lost)
    broker.enqueue([job_in(clock, IN_B)])
    assert broker.traits.missing() == ()
    broker.close()


def test_who_only_looks_makes_no_store_of_a_shard_that_is_named_later(
    tmp_path: Path, clock, sqlite_shards: str
):
    open_broker(sqlite_shards, clock).close()
    file = tmp_path / "shards.toml"
    file.write_text(file.read_text() + '\nc = "sqlite:///c.db"\n')

    open_broker(sqlite_shards, clock, create=False).close()
    assert not (tmp_path / "c.db").exists()
    open_broker(sqlite_shards, clock).close()
    assert (tmp_path / "c.db").exists()


def test_the_doctor_names_the_shard_that_is_lost_and_looks_at_the_others(
    tmp_path: Path, clock, sqlite_shards: str
):
    broker = open_broker(sqlite_shards, clock)
    broker.enqueue([job_in(clock, IN_A)])
    broker.close()
    (tmp_path / "b.db").unlink()

    findings = examine(sqlite_shards)

    red = [found.says for found in findings if found.colour == "red"]
    assert [says for says in red if "shard b: there is no store at" in says]
    assert not [says for says in red if says.startswith("there is no store")]
    assert [says for says in red if "no worker is alive; ready to run: 1" in says]
    assert not (tmp_path / "b.db").exists()


def test_the_doctor_says_so_where_no_shard_has_a_store(tmp_path: Path, clock, sqlite_shards: str):
    for name in ("a", "b"):
        (tmp_path / f"{name}.db").unlink()

    [finding] = examine(sqlite_shards)

    assert finding.says.startswith("there is no store at shards:///")
