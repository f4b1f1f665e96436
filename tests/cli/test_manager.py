"""A manager as a person starts it, and everything else through it."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from urllib.request import urlopen

import pytest

from penstock.brokers import open_broker
from penstock.errors import StoreUnreachable
from tests.stories.conftest import eventually

TOKEN = "4c1e7a90b2d35f68e0c4a1b79d2f6e83"


def begun(process) -> str:
    """The address that it printed."""
    line = process.stdout.readline()
    assert line.startswith("manager: "), line + process.stderr.read()
    return line.removeprefix("manager: ").strip()


@pytest.fixture
def serving(shop):
    """The address of a manager of the shop's store, without tokens."""
    process = shop.start("manager", "--listen", "127.0.0.1:0")
    yield begun(process)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_jobs_go_through_it_from_enqueue_to_worker(shop, serving, monkeypatch):
    monkeypatch.setenv("PENSTOCK_URL", serving)

    shop("enqueue", "shop:add", "1", "2")
    done = shop.start("worker", "shop", "--drain")
    _, said = done.communicate(timeout=120)

    assert done.returncode == 0, said
    [row] = shop.lines("history", "--limit", "1")
    assert row["state"] == "succeeded"
    store = shop.store()
    assert [event.result for event in store.history() if event.kind == "attempt"] == [b"3"]
    store.close()


def test_the_doctor_looks_through_it(shop, serving):
    said = shop("doctor", "--url", serving).output

    assert "serves SQLite" in said or "serves the" in said
    assert serving.removeprefix("penstock://") in said


def test_dev_runs_one_beside_its_worker(shop):
    process = shop.start("dev", "shop", "--manager", "--json")
    try:
        told = json.loads(process.stdout.readline())
        assert told["event"] == "manager"
        shop("enqueue", "shop:add", "1", "2", "--url", told["url"])
        broker = open_broker(told["url"])
        eventually(lambda: [each for each in broker.history() if each.kind == "attempt"])
        broker.close()
    finally:
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    store = shop.store()
    assert [each.result for each in store.history() if each.kind == "attempt"] == [b"3"]
    assert all(row.host for row in store.workers())
    store.close()


def test_the_health_of_a_manager_is_served(shop):
    words = ("manager", "--listen", "127.0.0.1:0", "--health-port", "0", "--json")
    process = shop.start(*words)
    told = json.loads(process.stdout.readline())

    with urlopen(f"{told['health']}/metrics", timeout=60) as answer:
        assert "penstock_manager_claims_total 0" in answer.read().decode()

    taken = told["health"].rpartition(":")[2]
    assert "cannot be served" in shop(*words[:4], taken, code=2).stderr
    process.terminate()
    process.communicate(timeout=60)


def test_a_token_file_closes_it(shop, tmp_path):
    file = tmp_path / "tokens"
    file.write_text(f"ada:operate:*:{TOKEN}\n")
    file.chmod(0o600)
    own = tmp_path / "own-token"
    own.write_text(TOKEN)
    own.chmod(0o600)
    process = shop.start("manager", "--listen", "127.0.0.1:0", "--token-file", str(file))
    address = begun(process)
    port = address.rpartition(":")[2]

    assert address.startswith("penstock://:TOKEN@127.0.0.1:")
    assert "needs a token" in shop("count", "--url", f"penstock://127.0.0.1:{port}", code=2).stderr
    shop("count", "--url", f"penstock://127.0.0.1:{port}?token_file={own}")
    wrong = shop("count", "--url", f"penstock://{TOKEN}@127.0.0.1:{port}", code=2).stderr
    assert TOKEN not in wrong
    process.terminate()
    _, said = process.communicate(timeout=60)
    assert TOKEN not in said


def test_tls_with_certificates_on_both_sides(shop, tmp_path):
    certificate, key = self_signed(tmp_path)
    process = shop.start(
        *("manager", "--listen", "127.0.0.1:0", "--tls-certificate", str(certificate)),
        *("--tls-key", str(key), "--client-ca", str(certificate)),
    )
    address = begun(process)
    port = address.removesuffix("?tls=yes").rpartition(":")[2]
    shown = f"&cert={certificate}&key={key}"

    broker = open_broker(f"penstock://localhost:{port}?ca={certificate}{shown}")
    assert broker.count() == []
    broker.close()
    for url in (f"localhost:{port}", f"localhost:{port}?ca={certificate}"):
        with pytest.raises(StoreUnreachable):
            open_broker(f"penstock://{url}")
    process.terminate()
    process.communicate(timeout=60)


def test_files_that_do_not_go_together_are_refused(shop, tmp_path):
    _, key = self_signed(tmp_path)

    one = shop("manager", "--tls-key", str(key), code=2).stderr
    alone = shop("manager", "--client-ca", str(key), code=2).stderr
    abroad = shop("manager", "--listen", "0.0.0.0:0", code=2).stderr

    assert "go together" in one
    assert "--client-ca needs" in alone
    assert "--token-file" in abroad


def self_signed(folder: Path) -> tuple[Path, Path]:
    """A certificate for localhost, and its key."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-keyout", str(key), "-out", str(certificate), "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key
