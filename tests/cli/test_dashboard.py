"""The dashboard as a person starts it: refused where it would be open, and a process of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import ssl
import stat
import subprocess
from contextlib import closing, suppress
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

VERA = "e19a5c07d3f84b26a0e7c9d1f5b38264"
TOKENS = f"ada:admin:4c1e7a90b2d35f68e0c4a1b79d2f6e83,vera:view:{VERA}"
TYPED = {"sec-fetch-site": "none"}  # as browsers say of an address that was typed or opened


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where tokens are kept in this test."""
    folder = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    monkeypatch.delenv("PENSTOCK_DASHBOARD_TOKENS", raising=False)
    return folder / "penstock"


def begun(process) -> str:
    """The address that it printed."""
    line = process.stdout.readline()
    assert line.startswith("dashboard: "), line + process.stderr.read()
    return line.removeprefix("dashboard: ").strip()


def test_the_first_start_prints_a_token_once_and_keeps_its_hash(shop, state):
    shop("enqueue", "shop:add", "1", "2")
    process = shop.start("dashboard", "--port", "0")
    address = begun(process)
    text = address.partition("?token=")[2]
    with httpx.Client() as browser:
        assert browser.get(address.partition("?")[0]).status_code == 401
        entered = browser.get(address, headers=TYPED)
        assert entered.status_code == 303
        page = browser.get(address.partition("?")[0])
        assert "shop" in browser.get(address.partition("?")[0] + "jobs").text
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)

    assert page.status_code == 200
    assert process.returncode == 130
    [kept] = state.iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert text not in kept.read_text()
    again = shop.start("dashboard", "--port", "0")
    assert "token" not in begun(again)
    again.terminate()
    said = again.communicate(timeout=60)[1]
    assert "--new-token makes another" in said


def test_the_browser_is_given_an_address_that_lets_in_once(shop, tmp_path, monkeypatch):
    shop("enqueue", "shop:add", "1", "2")
    told = tmp_path / "told"
    os.mkfifo(told)
    opener = tmp_path / "bin" / "xdg-open"
    opener.parent.mkdir()
    opener.write_text(f'#!/bin/sh\necho "$1" > {told}\n')
    opener.chmod(0o700)
    monkeypatch.setenv("PATH", f"{opener.parent}:{os.environ['PATH']}")

    process = shop.start("dashboard", "--port", "0", "--open")
    text = begun(process).partition("?token=")[2]
    address = told.read_text().strip()
    with httpx.Client() as browser, httpx.Client() as other:
        first, second = browser.get(address, headers=TYPED), other.get(address, headers=TYPED)
    process.terminate()
    process.communicate(timeout=30)

    assert text not in address
    assert (first.status_code, second.status_code) == (303, 401)


def test_ctrl_c_ends_it_while_somebody_watches(shop, monkeypatch):
    monkeypatch.setenv("PENSTOCK_DASHBOARD_TOKENS", TOKENS)
    shop("enqueue", "shop:add", "1", "2")
    process = shop.start("dashboard", "shop", "--port", "0", "--json")
    told = json.loads(process.stdout.readline())
    assert told["token"] is None

    head = {"authorization": f"Bearer {VERA}"}
    with (
        httpx.Client(base_url=told["url"], headers=head, timeout=60) as client,
        client.stream("GET", "live") as answer,
    ):
        lines = answer.iter_lines()
        assert next(lines).startswith("data: ")
        process.send_signal(signal.SIGINT)
        assert all(isinstance(line, str) for line in lines)
    process.communicate(timeout=60)

    assert process.returncode == 130


def test_another_machine_is_let_in_only_by_tokens_that_were_said(shop, monkeypatch):
    shop("enqueue", "shop:add", "1", "2")

    for bind in ("0.0.0.0", "::", "192.0.2.1", "example.org"):
        said = shop("dashboard", "--bind", bind, "--port", "0", code=2).stderr
        assert f"--bind {bind} lets other machines connect" in said
        assert "PENSTOCK_DASHBOARD_TOKENS" in said


def test_another_machine_is_let_in_only_by_tls(shop, monkeypatch):
    monkeypatch.setenv("PENSTOCK_DASHBOARD_TOKENS", TOKENS)
    shop("enqueue", "shop:add", "1", "2")

    for bind in ("0.0.0.0", "::", "192.0.2.1", "example.org"):
        said = shop("dashboard", "--bind", bind, "--port", "0", code=2).stderr
        assert f"--bind {bind} lets other machines connect, and plain HTTP shows tokens" in said
        assert "--tls-certificate" in said


def test_plain_http_for_other_machines_has_to_be_asked_for(shop, monkeypatch):
    monkeypatch.setenv("PENSTOCK_DASHBOARD_TOKENS", TOKENS)
    shop("enqueue", "shop:add", "1", "2")

    process = shop.start("dashboard", "--bind", "0.0.0.0", "--port", "0", "--plain-http")

    assert begun(process).startswith("http://0.0.0.0:")
    process.terminate()
    process.communicate(timeout=60)


def test_with_a_certificate_it_speaks_tls_and_its_cookies_are_secure(shop, monkeypatch, tmp_path):
    monkeypatch.setenv("PENSTOCK_DASHBOARD_TOKENS", TOKENS)
    shop("enqueue", "shop:add", "1", "2")
    certificate, key = self_signed(tmp_path)

    process = shop.start(
        *("dashboard", "--bind", "0.0.0.0", "--port", "0", "--host-name", "localhost"),
        *("--tls-certificate", str(certificate), "--tls-key", str(key)),
    )
    address = begun(process).replace("0.0.0.0", "localhost")
    trusted = ssl.create_default_context(cafile=certificate)
    with httpx.Client(verify=trusted, base_url=address, timeout=60) as browser:
        entered = browser.get("/", params={"token": VERA}, headers=TYPED)
        page = browser.get("/jobs")
    process.terminate()
    process.communicate(timeout=60)

    assert address.startswith("https://localhost:")
    assert (entered.status_code, page.status_code) == (303, 200)
    assert "secure" in entered.headers["set-cookie"].lower().split("; ")


def test_files_for_tls_that_do_not_fit_are_refused(shop, tmp_path):
    shop("enqueue", "shop:add", "1", "2")
    certificate, key = self_signed(tmp_path)

    one = shop("dashboard", "--tls-key", str(key), code=2).stderr
    swapped = shop(
        "dashboard", "--tls-certificate", str(key), "--tls-key", str(certificate), code=2
    ).stderr

    assert "--tls-certificate and --tls-key go together" in one
    assert f"--tls-key {certificate}" in swapped


def self_signed(folder: Path) -> tuple[Path, Path]:
    """A certificate for localhost, and its key."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
            *("-out", str(certificate), "-keyout", str(key)),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key


def test_what_is_wrong_with_how_it_was_started_is_said(shop, tmp_path, monkeypatch):
    assert "no store" in shop("dashboard", code=2).stderr
    shop("enqueue", "shop:add", "1", "2")
    open_to_all = tmp_path / "tokens"
    open_to_all.write_text(TOKENS)
    open_to_all.chmod(0o644)

    assert "chmod 600" in shop("dashboard", "--token-file", str(open_to_all), code=2).stderr
    missing = str(tmp_path / "none")
    assert "cannot be read" in shop("dashboard", "--token-file", missing, code=2).stderr
    memory = shop("dashboard", "--url", "memory:", code=2).stderr
    assert "exists only inside the process" in memory
    monkeypatch.setenv("PENSTOCK_DASHBOARD_TOKENS", "ada:admin:short")
    short = shop("dashboard", code=2).stderr
    assert "the token of ada is weak" in short
    assert "admin:short" not in short


def test_a_port_that_is_taken_gives_way_to_the_next_one(shop):
    from penstock.web.serve import listen

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with listen("127.0.0.1", port) as heard:
            assert port < heard.getsockname()[1] < port + 20


def test_without_the_extra_one_sentence_says_what_to_install(shop, monkeypatch):
    import penstock.web

    found = penstock.web.find_spec
    monkeypatch.setattr(
        penstock.web, "find_spec", lambda name: None if name == "starlette" else found(name)
    )

    said = shop("dashboard", code=2).stderr

    assert "pip install 'penstock-queue[web]'" in said


def test_of_two_that_took_a_port_at_once_one_gets_the_next():
    from penstock.web.serve import listen

    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
        with listen("127.0.0.1", port) as first, listen("127.0.0.1", port) as second:
            with pytest.raises(OSError, match="in use"):
                other.listen()
            ports = [each.getsockname()[1] for each in (first, second)]

    assert ports[0] == port
    assert ports[1] > port


def test_dev_names_the_store_once(shop):
    process = shop.start("dev", "shop")
    said: list[str] = []
    try:
        while not all(any(word in line for line in said) for word in ("dashboard: ", "Ctrl-C")):
            said.append(process.stderr.readline())
            assert said[-1], said
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)

    assert [line.partition(":")[0] for line in said].count("store") == 1


def test_dev_shows_the_dashboard_too(shop):
    process = shop.start("dev", "shop", "--json")
    try:
        lines = [json.loads(process.stdout.readline()) for _ in range(2)]
        [address] = [line["url"] for line in lines if line["event"] == "dashboard"]
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=\S+", address)
        with httpx.Client(timeout=60) as browser:
            assert browser.get(address, headers=TYPED).status_code == 303
            assert browser.get(address.partition("?")[0]).status_code == 200
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 0
    there = urlsplit(address)
    with (
        suppress(ConnectionRefusedError),  # or somebody else is there now, who does not know us
        closing(HTTPConnection("127.0.0.1", there.port or 0, timeout=60)) as asked,
    ):
        asked.request("GET", f"/?{there.query}")
        assert asked.getresponse().status == 401
    assert os.environ.get("PENSTOCK_DASHBOARD_TOKENS") is None
