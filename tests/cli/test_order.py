"""order: how a queue is handed out by key."""

from __future__ import annotations

import pytest


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
    assert "there are wait, skip, fair" in shop("order", "media", "fifo", code=2).stderr


SERVICE = """
from penstock import App

app = App()
app.queue("orders", {options})


@app.task(queue="orders")
def ship(number: int) -> None: ...
"""


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_services_that_register_a_queue_differently_are_told_apart(cli, request, store):
    """A20, A44: two processes of one store; the second is refused, and shown both."""
    url = f"sqlite:///{cli.folder / 'jobs.db'}"
    if store == "postgres":
        url = request.getfixturevalue("postgres_url")
    for name, options in (("one", 'ordered="wait"'), ("two", 'ordered="skip"')):
        (cli.folder / f"{name}.py").write_text(SERVICE.format(options=options))
    command = ("enqueue", "--key", "ada", "--url", url)
    answers = {}

    for service in ("one:ship", "two:ship", "one:ship"):
        process = cli.start(*command, service, "1")
        _, errors = process.communicate(timeout=100)
        answers.setdefault(service, []).append((process.returncode, errors))

    assert [code for code, _ in answers["one:ship"]] == [0, 0]
    [(code, errors)] = answers["two:ship"]
    assert code == 2
    assert 'queue orders is ordered="wait" in the store, and ordered="skip" here' in errors
