"""Commands without the app read encrypted arguments if a key file is named."""

from __future__ import annotations

import httpx
import pytest

from penstock import KeyRing
from tests.cli.conftest import Cli

TASKS = """
from pathlib import Path

from penstock import App, KeyRing

app = App(keys=KeyRing(Path("shop.key").read_text()))


@app.task(secret=("card",), keep_secrets=3600)
def charge(user: str, card: str) -> None:
    raise RuntimeError("no money")
"""


@pytest.fixture
def shop(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.delenv("PENSTOCK_KEY_FILE", raising=False)
    (cli.folder / "shop.key").write_text(KeyRing.new_key())
    (cli.folder / "shop.key").chmod(0o600)
    (cli.folder / "shop.py").write_text(TASKS)
    cli("run", "shop:charge", "ada", "4242", code=1)
    return cli


def args_of(shop: Cli, *words: str) -> dict[str, object]:
    [job] = shop.lines("find", "state:failed", *words)
    return job["args"]


def test_without_a_key_they_say_so(shop):
    result = shop("find", "state:failed", "--json")

    assert "$sealed" in result.stdout
    assert "arguments are encrypted, and shown as they are stored: there is no key" in result.stderr
    [job] = shop.lines("find", "state:failed")
    for words in (("why", job["id"]), ("history", "--json")):
        assert "set PENSTOCK_KEY_FILE" in shop(*words).stderr


def test_with_a_key_file_they_read_them_and_secrets_stay_hidden(shop, monkeypatch):
    monkeypatch.setenv("PENSTOCK_KEY_FILE", "shop.key")
    result = shop("find", "state:failed", "--json")

    assert args_of(shop) == {"user": "ada", "card": "***"}
    assert "encrypted" not in result.stderr
    assert 'user="ada"' in shop("why", shop.lines("find")[0]["id"]).stderr


def test_a_profile_names_it(shop):
    (shop.folder / "penstock.toml").write_text(
        '[profiles.default]\nurl = "sqlite:///penstock.db"\nkey_file = "shop.key"\n'
    )

    assert args_of(shop) == {"user": "ada", "card": "***"}


def test_the_app_that_is_named_has_the_key(shop):
    assert args_of(shop, "--app", "shop") == {"user": "ada", "card": "***"}


def test_a_file_that_is_not_there_is_named(shop, monkeypatch):
    monkeypatch.setenv("PENSTOCK_KEY_FILE", "none.key")

    assert "the key file none.key (PENSTOCK_KEY_FILE) cannot" in shop("find", code=2).stderr


def test_a_retry_needs_no_key_while_secrets_are_kept(shop):
    [job] = shop.lines("find", "state:failed")

    assert shop.json("retry", job["id"])["done"] == [job["id"]]


def test_secrets_for_a_retry_need_one(shop, monkeypatch):
    [job] = shop.lines("find", "state:failed")
    refused = shop("retry", job["id"], "--secret", "card", code=2, answer="5353\n")
    assert "its arguments are encrypted, and there is no key" in refused.stderr
    monkeypatch.setenv("PENSTOCK_KEY_FILE", "shop.key")

    shop("retry", job["id"], "--secret", "card", answer="5353\n")

    with_key = shop.lines("find", "task:shop:charge")
    assert [found["state"] for found in with_key] == ["ready"]
    store = shop.store()
    assert b"5353" not in store.get(job["id"]).body
    store.close()


def test_a_worker_and_an_app_without_keys_in_its_code_use_the_file(shop, monkeypatch):
    (shop.folder / "plain.py").write_text(
        'from penstock import App\n\napp = App()\n\n\n@app.task(name="echo")\n'
        "def echo(text: str) -> str:\n    return text\n"
    )
    monkeypatch.setenv("PENSTOCK_KEY_FILE", "shop.key")
    shop("enqueue", "plain:echo", "hunter2")
    store = shop.store()
    [job] = shop.lines("find", "task:echo")
    assert b"hunter2" not in store.get(job["id"]).body
    store.close()

    shop("worker", "plain", "--drain", "--threads", "1")

    assert shop.lines("find", "task:echo")[0]["state"] == "succeeded"


@pytest.mark.parametrize("named", [True, False])
def test_a_dashboard_without_the_app_reads_with_the_file(shop, tmp_path, monkeypatch, named):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    token = "e19a5c07d3f84b26a0e7c9d1f5b38264"
    monkeypatch.setenv("PENSTOCK_DASHBOARD_TOKENS", f"vera:view:{token}")
    [job] = shop.lines("find", "state:failed")
    if named:
        monkeypatch.setenv("PENSTOCK_KEY_FILE", "shop.key")

    process = shop.start("dashboard", "--port", "0")
    address = process.stdout.readline().removeprefix("dashboard: ").strip()
    with httpx.Client(headers={"authorization": f"Bearer {token}"}) as client:
        arguments = client.get(f"{address}api/v1/jobs/{job['id']}").json()["args"]
        page = client.get(f"{address}jobs/{job['id']}").text
    process.terminate()
    process.communicate(timeout=60)

    assert arguments["card"] == "***"
    assert (arguments["user"] == "ada") is named
    assert ("this dashboard has no key for them" in page) is not named
