"""Stores that other packages register: what they may leave out, and what may be wrong with them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.brokers import drivers, migrate_store, open_broker, store_condition
from penstock.errors import Refused
from penstock.testing.clock import Clock

MODULE = """
from penstock.brokers.condition import StoreCondition
from penstock.brokers.memory import MemoryBroker
from penstock.errors import Refused, StoreUnreachable

opened, migrated = [], []


def open_it(url, clock=None, *, create=True):
    opened.append((url, create))
    if "away" in url:
        raise StoreUnreachable("nobody answers")
    if "new" in url and not create:
        raise Refused("there is no store yet")
    return MemoryBroker(clock) if clock else MemoryBroker()


def condition(url, *, thorough=False):
    return StoreCondition(kind="shelf", where=url, promise=f"thorough: {thorough}", exists=True)


def migrate(url, *, post=False):
    migrated.append((url, post))
"""
Register = Callable[..., None]


@pytest.fixture
def register(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Register:
    """Installs a package that registers these, by group, as an installer would."""
    (tmp_path / "shelf_store.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "shelf_store", raising=False)

    def register(package: str = "shelf", **groups: str) -> None:
        folder = tmp_path / f"{package}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        lines = [f"[penstock.{group}]\n{entry}\n" for group, entry in groups.items()]
        (folder / "entry_points.txt").write_text("\n".join(lines))

    return register


def test_a_url_is_opened_by_who_registered_its_scheme(register):
    register(brokers="shelf = shelf_store:open_it")
    clock = Clock()

    broker = open_broker("shelf://somewhere", clock, create=False)

    assert broker.clock is clock
    assert sys.modules["shelf_store"].opened == [("shelf://somewhere", False)]
    assert drivers("shelf://somewhere") == ("shelf_store",)
    assert drivers("nosuch://x") == ()


def test_what_is_installed_is_listed_where_a_url_is_nobodys(register):
    register(brokers="shelf = shelf_store:open_it")

    for ask in (open_broker, store_condition, migrate_store):
        with pytest.raises(
            Refused, match=r"'nosuch://x' is not the URL of a store; .*, shelf: and memory:"
        ):
            ask("nosuch://x")


def test_a_package_that_only_opens_is_enough(register):
    register(brokers="shelf = shelf_store:open_it")

    there = store_condition("shelf://me:secret@host")
    new, away = store_condition("shelf://new"), store_condition("shelf://away")
    migrate_store("shelf://new")

    assert (there.kind, there.where, there.exists) == ("shelf", "shelf://me:***@host", True)
    assert (new.exists, [fact.says for fact in new.facts]) == (False, ["there is no store yet"])
    assert away.unseen is not None
    assert away.unseen.says == "nobody answers"
    assert sys.modules["shelf_store"].opened[-1] == ("shelf://new", True)


def test_a_package_may_offer_more(register):
    register(
        brokers="shelf = shelf_store:open_it",
        store_conditions="shelf = shelf_store:condition",
        store_migrations="shelf = shelf_store:migrate",
    )

    assert store_condition("shelf://x", thorough=True).promise == "thorough: True"
    migrate_store("shelf://x", post=True)

    assert sys.modules["shelf_store"].migrated == [("shelf://x", True)]
    assert sys.modules["shelf_store"].opened == []


@pytest.mark.parametrize("value", ["shelf_store:nothing", "no_such_module:open_it"])
def test_one_that_cannot_be_loaded_is_named(register, value):
    register(brokers=f"shelf = {value}")

    with pytest.raises(Refused, match=f"shelf: is registered as {value}, which cannot be loaded"):
        open_broker("shelf://x")


def test_two_that_register_the_same_scheme_are_both_named(register):
    register("shelf", brokers="shelf = shelf_store:open_it")
    register("other", brokers="shelf = other_store:open_it")

    with pytest.raises(Refused, match=r"other_store:open_it and shelf_store:open_it: uninstall"):
        open_broker("shelf://x")


def test_a_scheme_of_penstocks_own_cannot_be_taken(register, tmp_path):
    register(brokers="sqlite = shelf_store:open_it")

    broker = open_broker(f"sqlite:///{tmp_path / 'jobs.db'}")

    assert "SQLite" in broker.traits.name
    broker.close()


def test_nobody_pays_for_it_who_has_a_store_of_penstocks_own():
    program = (
        "import sys, penstock, penstock.testing\n"
        "penstock.App('memory:').broker\n"
        "names = ('penstock.brokers.third_party', 'pytest')\n"
        "print([name for name in names if name in sys.modules])"
    )

    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert ran.stdout == "[]\n"
