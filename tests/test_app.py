"""The App: opened late, once, and anew in every process."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import penstock
from penstock import App
from penstock.app.locate import load_app
from penstock.brokers.memory import MemoryBroker
from penstock.errors import Refused
from penstock.testing.clock import Clock


def test_the_public_names_are_sorted_and_there() -> None:
    assert penstock.__all__ == sorted(penstock.__all__)
    assert all(hasattr(penstock, name) for name in penstock.__all__)


def test_many_threads_open_one_broker() -> None:
    app = App("memory:")

    with ThreadPoolExecutor(8) as pool:
        brokers = {id(broker) for broker in pool.map(lambda _: app.broker, range(50))}

    assert len(brokers) == 1


def test_after_closing_it_is_opened_again(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db")

    @app.task
    def send(n: int) -> None: ...

    send.enqueue(1)
    app.close()
    send.enqueue(2)

    assert sum(count.ready for count in app.broker.count()) == 2
    app.close()


def test_a_given_broker_is_its_givers_to_close(memory_broker: MemoryBroker) -> None:
    app = App(broker=memory_broker)

    app.close()

    assert app.broker is memory_broker
    assert app.describe() == "MemoryBroker (given to the App)"


def test_its_clock_is_the_brokers_or_what_it_was_given() -> None:
    clock = Clock(now=5.0)

    assert App("memory:", clock=clock).clock.now() == 5.0
    assert App("memory:", clock=clock).broker.clock is clock
    assert App(broker=MemoryBroker(clock)).clock is clock


def test_a_test_may_put_another_broker_in_its_place() -> None:
    app = App("memory:")
    own, clock = app.broker, Clock(now=2_000_000_000)

    @app.task
    def send(n: int) -> None: ...

    with app.replace_broker(MemoryBroker(clock)):
        assert app.clock is clock
        assert app.broker.get(send.enqueue(1).id) is not None
        assert own.count() == []
    assert app.broker is own
    assert app.clock is not clock


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_after_use_is_safe(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db")

    @app.task
    def send(n: int) -> None: ...

    send.enqueue(0)
    before = app.broker
    children: list[int] = []
    for number in range(3):
        child = os.fork()
        if child == 0:
            send.enqueue(number)
            os._exit(0 if app.broker is not before else 1)
        children.append(child)
    send.enqueue(9)

    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    assert app.broker is before
    [count] = app.broker.count()
    assert count.ready == 5
    app.close()


def test_many_jobs_are_read_in_one_call_with_chosen_fields(memory_broker: MemoryBroker) -> None:
    """G57."""
    app = App(broker=memory_broker)

    @app.task(name="send", secret=("card",))
    def send(n: int, card: str) -> None: ...

    ids = [send.enqueue(n, "4111-1111").id for n in range(3)]

    found = app.get_many([*ids, "0190a6c4-5e1f-7000-8000-00000a1b2000"], ("args", "state"))

    assert found == {
        id: {"args": {"n": n, "card": "***"}, "state": "ready"} for n, id in enumerate(ids)
    }
    assert app.get_many(ids[:1])[ids[0]]["task"] == "send"
    with pytest.raises(Refused, match="a job has no field 'sate'; there are id, task"):
        app.get_many(ids, ("sate",))


def test_a_module_that_enqueues_where_it_is_imported_is_warned_of(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    text = (
        "from penstock import App\n"
        "app = App('sqlite:///jobs.db')\n"
        "@app.task\n"
        "def work() -> None: ...\n"
    )
    (tmp_path / "quiet_module.py").write_text(text)
    (tmp_path / "eager_module.py").write_text(text + "work.enqueue()\n")

    load_app("quiet_module").close()
    assert caplog.text == ""

    app = load_app("eager_module:app")
    assert caplog.text.count("eager_module used its store while it was imported") == 1
    load_app("eager_module")  # it was imported before: nothing was done again
    assert caplog.text.count("used its store") == 1
    app.close()
