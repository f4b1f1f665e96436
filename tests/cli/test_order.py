"""order: how a queue is handed out by key."""

from __future__ import annotations

import pytest

from penstock.brokers import open_broker
from penstock.rules.key_order import policies
from penstock.rules.rule import Rule


@pytest.fixture
def shop(shop):
    shop("enqueue", "shop:send", "ada")
    return shop


def test_an_order_is_set_shown_and_taken_back(shop):
    assert "queue mail is not ordered" in shop("order", "mail").stdout
    set_now = shop("order", "mail", "wait", "--reason", "their ledger")
    assert 'queue mail is ordered="wait" now' in set_now.stdout
    assert "penstock order mail --off" in set_now.stderr
    assert shop.json("order", "mail")["policy"] == "wait"

    assert "queue mail is not ordered now" in shop("order", "mail", "--off").stdout
    assert shop.json("order", "mail", "fair")["policy"] == "fair"


def test_another_policy_is_refused_while_one_stands(shop):
    shop("order", "mail", "wait")

    refused = shop("order", "mail", "skip", code=2).stderr

    assert 'ordered="wait" in the store' in refused
    assert "--off" in refused
    assert "leave out skip" in shop("order", "mail", "skip", "--off", code=2).stderr
    assert "there are wait, skip, batch, fair" in shop("order", "media", "fifo", code=2).stderr


SERVICE = """
from penstock import App

app = App()
app.queue("orders", {options})


@app.task(queue="orders")
def ship(number: int) -> None: ...
"""


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_of_services_that_register_a_queue_differently_the_last_one_decides(cli, request, store):
    """A20, A44: processes of one store; none is refused."""
    url = f"sqlite:///{cli.folder / 'jobs.db'}"
    if store == "postgres":
        url = request.getfixturevalue("postgres_url")
    for name, options in (("one", 'ordered="wait"'), ("two", 'ordered="skip"')):
        (cli.folder / f"{name}.py").write_text(SERVICE.format(options=options))
    command = ("enqueue", "--key", "ada", "--url", url)
    broker = open_broker(url)
    seen = []

    for service in ("one:ship", "two:ship"):
        process = cli.start(*command, service, "1")
        _, errors = process.communicate(timeout=100)
        assert process.returncode == 0, errors
        seen.append(policies(broker.records(Rule)))
    broker.close()

    assert seen == [{"orders": "wait"}, {"orders": "skip"}]
