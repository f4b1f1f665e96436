"""Tests of tasks: no worker, no store, no waiting; and what happens when a worker dies.

    pytest examples/testing_your_tasks.py

`penstock_testing` is a fixture that comes with Penstock; `with app.testing() as t:` is the same
without pytest.
"""

from collections.abc import Callable

import pytest

from penstock import App, Retry, State, current_job, use
from penstock.testing import Testing

# The application. Its store is never opened by a test.

app = App("sqlite:///production.db")


class Bank:
    """The service that tasks talk to."""

    def charge(self, customer: str, cents: int, key: str) -> None:
        """Ask for money; the same key is the same charge."""
        raise ConnectionError(f"no bank to charge {customer} {cents} cents ({key})")


def bank() -> Bank:
    """The real one."""
    return Bank()


@app.task(queue="billing", retry=Retry(limit=2, delay=60, on=(ConnectionError,)), timeout=30)
def charge(customer: str, cents: int, service: Bank = use(bank)) -> str:
    """Charge, with a key that is the same in every attempt."""
    service.charge(customer, cents, key=current_job().idempotency_key())
    receipt.enqueue(customer)
    return "charged"


@app.task
def receipt(customer: str) -> None:
    """Send it."""


def check_out(customer: str, cents: int) -> None:
    """What a web page calls."""
    if cents > 0:
        charge.enqueue(customer, cents)


# The tests.


class FakeBank(Bank):
    """Records charges; raises while `closed`."""

    def __init__(self) -> None:
        self.charges: dict[str, tuple[str, int]] = {}
        self.closed = False

    def charge(self, customer: str, cents: int, key: str) -> None:
        """Once per key."""
        if self.closed:
            raise ConnectionError("closed")
        self.charges[key] = (customer, cents)


@pytest.fixture
def fake() -> FakeBank:
    """The bank of one test."""
    return FakeBank()


@pytest.fixture
def t(penstock_testing: Callable[..., Testing], fake: FakeBank) -> Testing:
    """The app under test."""
    t = penstock_testing(app)
    t.replace(bank, fake)
    return t


def test_checking_out_enqueues_a_charge(t: Testing) -> None:
    """Check what was enqueued."""
    check_out("ada", 500)

    t.assert_enqueued(charge, "ada", 500, queue="billing", times=1)
    t.assert_not_enqueued(receipt)


def test_nothing_is_charged_for_nothing(t: Testing) -> None:
    """Check what was not."""
    check_out("ada", 0)

    t.assert_not_enqueued(charge)


def test_a_charge_is_followed_by_a_receipt(t: Testing, fake: FakeBank) -> None:
    """Run the jobs, and the jobs that they enqueue."""
    check_out("ada", 500)

    t.drain()

    assert list(fake.charges.values()) == [("ada", 500)]
    t.assert_enqueued(receipt, "ada")


def test_a_closed_bank_is_asked_again_a_minute_later(t: Testing, fake: FakeBank) -> None:
    """Time passes when the test moves the clock."""
    fake.closed = True
    check_out("ada", 500)
    t.drain()
    fake.closed = False

    assert t.drain() == []
    t.clock.advance(minutes=1)
    t.drain()

    assert [job.state for job in t.jobs(charge)] == [State.SUCCEEDED]


def test_after_three_failures_somebody_must_look_at_it(t: Testing, fake: FakeBank) -> None:
    """The end of the retries."""
    fake.closed = True
    check_out("ada", 500)

    for _ in range(3):
        t.drain()
        t.clock.advance(minutes=1)

    [job] = t.jobs(state="failed")
    assert "closed" in (job.error or "")


def test_a_worker_that_dies_before_it_could_say_so_charges_once(t: Testing, fake: FakeBank) -> None:
    """The function has returned, the store never heard of it: the job runs again."""
    check_out("ada", 500)

    with t.crash_at("settle", charge):
        t.drain()

    assert len(fake.charges) == 1


def test_charging_is_idempotent(t: Testing, fake: FakeBank) -> None:
    """The same, as one question about a task."""
    t.assert_idempotent(charge, "ada", 500, state=lambda: fake.charges)
