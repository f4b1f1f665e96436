"""shards: who has which buckets; a shard is added, gets buckets, and is emptied."""

from __future__ import annotations

import pytest

from penstock.app.app import App
from penstock.broker.shard_map import parse_buckets
from penstock.brokers import open_shards
from penstock.errors import Refused
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import a_worker
from tests.cli.conftest import Cli


def send(to: str) -> str:
    return to


@pytest.fixture
def fleet(tmp_path, monkeypatch):
    """One store as a shard, with a job in it."""
    file = tmp_path / "shards.toml"
    file.write_text('[shards]\na = "sqlite:///a.db"\n')
    monkeypatch.setenv("PENSTOCK_URL", f"shards:///{file}")
    monkeypatch.chdir(tmp_path)
    app = App()
    app.task(name="shop:send")(send).enqueue("ada")
    yield file, app
    app.close()


@pytest.fixture
def cli(tmp_path):
    return Cli(tmp_path)


def name_b(file) -> None:
    file.write_text(file.read_text() + 'b = "sqlite:///b.db"\n')


def test_a_shard_is_added_filled_and_the_other_one_emptied(fleet, cli):
    file, app = fleet
    assert "a: 1024 buckets (0-1023)" in cli("shards").stdout
    assert "names no 'b'" in cli("shards", "add", "b", code=2).stderr
    name_b(file)
    assert "would be added" in cli("shards", "add", "b", "--dry-run").stdout
    assert "shard b is one of the shards" in cli("shards", "add", "b").stdout

    move = ("shards", "move", "--buckets", "0-511", "--to", "b", "--busy", "1")
    assert "512 buckets would move to b: 0-511" in cli(*move, "--dry-run").stdout
    assert [state["buckets"] for state in cli.lines("shards", "list")] == ["0-1023", ""]
    steps = cli.lines(*move, "--reason", "growing")
    assert steps[-1]["done"] == steps[-1]["of"] == 512
    assert "shard b has these buckets already" in cli(*move).stdout

    said = cli("shards", "remove", "a", "--busy", "1").stdout
    assert "shard a has no buckets any more. Its history" in said
    assert "take its line out" in cli("shards", "remove", "a", "--forget-history").stdout
    states = cli.lines("shards", "status")
    assert [(state["name"], state["number"], state["open_jobs"]) for state in states] == [
        ("a", 0, 0),
        ("b", 1024, 1),
    ]
    assert "1 job open, 0 failed; workers alive: 0" in cli("shards", "status").stdout
    told = [event for event in app.broker.history() if event.kind == "move"]
    assert [b'"growing"' in (event.data or b"") for event in told] == [True, True, False, False]
    file.write_text('[shards]\nb = "sqlite:///b.db"\n')
    assert [state["buckets"] for state in cli.lines("shards")] == ["0-1023"]


def test_who_looks_while_a_shard_is_away_is_told(fleet, cli):
    file, app = fleet
    name_b(file)
    cli("shards", "add", "b")
    cli("shards", "move", "--buckets", "all", "--to", "b", "--busy", "1")
    app.close()
    (file.parent / "b.db").rename(file.parent / "elsewhere.db")

    told = cli("find").stderr

    assert "shard b is away: there is no store at" in told
    assert "what it has is left out" in told


def test_status_names_a_shard_whose_file_is_lost_and_makes_none(fleet, cli):
    file, app = fleet
    name_b(file)
    assert "away: there is no store at" in cli("shards", "status").stdout
    cli("shards", "add", "b")
    app.close()
    for verb in ("status", "list"):
        (file.parent / "a.db").rename(file.parent / "elsewhere.db")

        states = cli.lines("shards", verb)
        found = cli("doctor", code=1).stdout

        assert [(state["name"], state["away"] is not None) for state in states] == [
            ("a", True),
            ("b", False),
        ]
        assert "shard a: there is no store at" in found
        assert not (file.parent / "a.db").exists()
        (file.parent / "elsewhere.db").rename(file.parent / "a.db")


def test_a_worker_whose_file_lacks_the_shard_is_named_and_nothing_moves(fleet, cli):
    file, app = fleet
    name_b(file)
    app.broker.shards.named["a"].call(lambda store: store.renew([a_worker("old", lease=600.0)]))

    said = cli("shards", "move", "--buckets", "all", "--to", "b", "--wait", "0", code=2).stderr

    assert "worker old on ada does not know shard 'b'" in said
    assert [state["number"] for state in cli.lines("shards")] == [1024, 0]
    app.broker.renew([a_worker("old")])  # which looks at the file
    moved = cli("shards", "move", "--buckets", "1-2", "--to", "b", "--wait", "0").stdout
    assert "all of 2 buckets are on b" in moved


def test_a_limit_of_a_queue_stays_while_buckets_move(fleet, cli):
    file, app = fleet
    app.broker.put(Rule(RuleKind.LIMIT, queue="mail", running=2))
    name_b(file)

    cli("shards", "move", "--buckets", "512-1023", "--to", "b")

    assert [state["number"] for state in cli.lines("shards")] == [512, 512]
    assert [rule["running"] for rule in cli.lines("rules")] == [2]
    app.broker.shards.look_again()
    stores = [shard.call(lambda store: store) for shard in app.broker.shards.all]
    assert [rule.running for store in stores for rule in store.records(Rule)] == [1, 1]


def test_a_second_mover_finds_what_the_first_left(fleet):
    file, app = fleet
    name_b(file)
    one, two = (open_shards(f"shards:///{file}") for _ in range(2))
    first, second = (each.move(range(40), "b", busy=1.0) for each in (one, two))

    steps = [next(first), next(second), next(first), *second, *first]

    assert {step.of for step in steps} <= {40, 36}
    one.states()
    assert one.broker.shards.newest.buckets()["b"] == [(0, 39)]
    assert app.broker.count()[0].ready == 1
    one.close()
    two.close()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("move",), "shards move what, where? As in --buckets 0-511 --to b"),
        (("move", "--buckets", "9-3", "--to", "a"), "buckets 9-3: there are 0 to 1023"),
        (("move", "--buckets", "x", "--to", "a"), "write ranges as 0-511,600, or all"),
        (("move", "--buckets", "1", "--to", "a", "--busy", "0"), "--busy 0: from 0.01 to 1"),
        (("remove",), "shards remove which one?"),
        (("remove", "a"), "shard 'a' is the only one"),
        (("add", "a", "--buckets", "1"), "shards add takes no --buckets"),
        (("status", "a"), "shows all shards: leave out a"),
        (("list", "--url", "sqlite:///a.db"), "is one store: write a file of shards"),
    ],
)
def test_what_cannot_be_meant_is_refused(fleet, cli, words, says):
    del fleet
    assert says in cli("shards", *words, code=2).stderr


def test_buckets_are_read_as_people_write_them():
    assert parse_buckets("0-2, 7,1023") == [0, 1, 2, 7, 1023]
    assert len(parse_buckets("all")) == 1024
    with pytest.raises(Refused, match="there are 0 to 1023"):
        parse_buckets("1024")
