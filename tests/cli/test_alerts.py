"""alerts: listed, tested, and sent by the dashboard."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.webhook import Webhook, webhook


@pytest.fixture
def hook(shop) -> Iterator[Webhook]:
    """A webhook that the project's penstock.toml names, with one alert."""
    with webhook() as made:
        (shop.folder / "penstock.toml").write_text(
            f'[alerts]\nwebhook = "{made.address}"\n\n[alerts.nobody]\nno_worker = true\n'
        )
        shop("enqueue", "shop:add", "1", "2")
        shop("cancel", "task:shop:add", "--yes")
        yield made


def test_alerts_are_listed_and_code_1_says_that_one_fires(shop, hook):
    assert "quiet  nobody: in any queue: jobs are ready and no worker is there" in (
        shop("alerts").stdout
    )
    shop("enqueue", "shop:send", "ada")

    said = shop("alerts", code=1).stdout
    [row] = shop.json("alerts", code=1)

    assert "FIRES  nobody" in said
    assert row["faults"] == ["mail: 1 job is ready, and no live worker serves the queue"]
    assert row["firing"]
    assert hook.heard.empty()


def test_a_test_message_is_sent_and_one_that_fails_is_a_sentence(shop, hook):
    assert "a test message of nobody was delivered" in shop("alerts", "nobody").stdout
    assert hook.take()["state"] == "test"
    hook.answer = 404

    refused = shop("alerts", "nobody", code=1)

    assert "the webhook at 127.0.0.1 answered 404" in refused.stderr
    assert "hidden-part" not in refused.output


def test_without_alerts_the_file_is_named_that_would_have_them(shop):
    shop("enqueue", "shop:add", "1", "2")

    assert "no alerts are set: write [alerts]" in shop("alerts", code=2).stderr


def test_the_dashboard_sends_them(shop, hook, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(shop.folder / "state"))
    shop("enqueue", "shop:send", "ada")
    process = shop.start("dashboard", "--port", "0")

    heard = hook.take()
    process.send_signal(signal.SIGTERM)
    output = "".join(process.communicate(timeout=60))

    assert (heard["alert"], heard["state"]) == ("nobody", "firing")
    assert heard["store"].startswith("sqlite:///")
    assert "hidden-part" not in output
