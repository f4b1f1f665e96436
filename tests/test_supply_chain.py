"""The list of what Penstock installs, and its audit: run as `make sbom` and `make audit` do."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HOUSE = Path(__file__).parents[1]
SCRIPT = HOUSE / "requirements" / "supply_chain.py"
RUN = dict(
    re.findall(
        r"^([\w.-]+)==([^\s;\\]+)", (HOUSE / "requirements/run.txt").read_text(), re.MULTILINE
    )
)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@contextmanager
def index(vulnerable: str) -> Iterator[str]:
    """The JSON API of an index that knows something about this package."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = [{"id": "PYSEC-1", "aliases": ["CVE-1"], "fixed_in": ["99"], "withdrawn": None}]
            text = json.dumps({"vulnerabilities": known if f"/{vulnerable}/" in self.path else []})
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  named by its parent
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_the_sbom_has_everything_that_is_installed_with_its_hashes():
    made = json.loads(run("sbom").stdout)

    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.6")
    assert made["metadata"]["component"]["name"] == "penstock-queue"
    named = {each["name"]: each for each in made["components"]}
    assert RUN.items() <= {name: each["version"] for name, each in named.items()}.items()
    assert {"psycopg", "starlette", "uvicorn", "jinja2", "h11", "pyspark"} <= named.keys()
    assert "pytest" not in named
    for each in named.values():
        hashes = each["externalReferences"][0]["hashes"]
        assert hashes, each["name"]
        assert all(re.fullmatch("[0-9a-f]{64}", one["content"]) for one in hashes)


def test_the_audit_names_what_the_index_knows_and_fails():
    with index("msgspec") as address:
        done = run("audit", "--index", address)

    assert done.returncode == 1
    assert f"msgspec {RUN['msgspec']}: PYSEC-1 CVE-1 (fixed in 99)" in done.stdout
    assert ", 1 vulnerabilities" in done.stdout


def test_the_audit_of_what_is_sound_ends_well():
    with index("nothing") as address:
        done = run("audit", "--index", address)

    assert done.returncode == 0
    assert ", 0 vulnerabilities" in done.stdout


def test_without_an_index_the_audit_says_so_and_does_not_fail():
    done = run("audit", "--index", "http://127.0.0.1:9")

    assert (done.returncode, done.stderr) == (0, "")
    assert "does not answer: nothing was audited" in done.stdout
