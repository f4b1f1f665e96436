"""A file that is deleted or replaced while it is open: nobody goes on in it unseen."""

from __future__ import annotations

import pytest

from penstock.brokers.sqlite import SqliteBroker
from penstock.errors import StoreUnreachable
from penstock.job import Job
from penstock.testing.conformance.factories import a_worker, claim_for


@pytest.fixture
def path(tmp_path):
    return tmp_path / "jobs.db"


@pytest.fixture
def broker(path):
    broker = SqliteBroker(path)
    yield broker
    broker.close()


def remove(path):
    for file in path.parent.iterdir():
        file.unlink()


@pytest.mark.parametrize(
    "look", [lambda broker: broker.renew([a_worker()]), lambda broker: broker.recover()]
)
def test_a_worker_hears_of_jobs_in_the_file_that_took_its_place(broker, path, look):
    broker.enqueue([Job(task="mail:send")])
    broker.renew([a_worker()])
    remove(path)
    other = SqliteBroker(path)
    job = Job(task="mail:send", queue="new")
    other.enqueue([job])

    look(broker)

    assert [taken.id for taken in claim_for(broker, a_worker(), limit=10)] == [job.id]
    other.close()


def test_a_file_that_is_gone_is_told_by_its_name(broker, path):
    broker.renew([a_worker()])
    remove(path)

    with pytest.raises(StoreUnreachable, match=r"jobs\.db is gone"):
        broker.renew([a_worker()])

    assert not path.exists()


def test_a_file_that_comes_back_is_worked_on_as_before(broker, path, tmp_path):
    job = Job(task="mail:send")
    broker.enqueue([job])
    aside = tmp_path / "aside"
    path.rename(aside)
    with pytest.raises(StoreUnreachable):
        broker.renew([a_worker()])

    aside.rename(path)
    broker.renew([a_worker()])

    assert [taken.id for taken in claim_for(broker, a_worker(), limit=10)] == [job.id]
