"""What Penstock installs, as a list for programs (SBOM), and what is known to be vulnerable in it.

    python requirements/supply_chain.py sbom  > dist/penstock-queue.cdx.json     # CycloneDX 1.6
    python requirements/supply_chain.py audit                                    # asks the index

Both read requirements/run.txt and spark.txt and what else the extras need: the pins and hashes that
`make lock` wrote. Needs nothing but the standard library. Without an index `audit` says that
nothing was audited, and ends with code 0: builds without a network must not fail by it.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
INDEX = "https://pypi.org/pypi"
SECONDS = 20.0
_PIN = re.compile(r"([\w.-]+)==([^\s;\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


class Pin(NamedTuple):
    name: str
    version: str
    hashes: tuple[str, ...]

    @property
    def purl(self) -> str:
        return f"pkg:pypi/{self.name}@{self.version}"


def pins_in(file: Path) -> Iterator[Pin]:
    """The pinned packages of a file that `make lock` wrote."""
    text = file.read_text(encoding="utf-8").replace("\\\n", " ")
    for line in text.splitlines():
        if match := _PIN.match(line):
            yield Pin(match[1].lower(), match[2], tuple(_HASH.findall(line)))


def shipped() -> list[Pin]:
    """What an installation with every extra for production has; no tools for tests."""
    found = {pin.name: pin for name in ("run.txt", "spark.txt") for pin in pins_in(HERE / name)}
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pinned = {pin.name: pin for pin in pins_in(HERE / "dev.txt")}
    for extra, wanted in project["optional-dependencies"].items():
        if extra == "conformance":
            continue
        for requirement in wanted:
            name = re.match(r"[\w.-]+", requirement)
            if name is not None and name[0].lower() in pinned:
                found.setdefault(name[0].lower(), pinned[name[0].lower()])
    # What these need in turn that production has: the parts of psycopg and of the web server.
    for name in (
        "psycopg-binary",
        "h11",
        "anyio",
        "idna",
        "markupsafe",
        "greenlet",
        "pydantic-core",
    ):
        if name in pinned:
            found.setdefault(name, pinned[name])
    return sorted(found.values())


def sbom() -> dict[str, Any]:
    """A CycloneDX document."""
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "name": project["name"],
                "version": project["version"],
                "purl": f"pkg:pypi/{project['name']}@{project['version']}",
                "licenses": [{"license": {"id": project["license"]}}],
            }
        },
        "components": [
            {
                "type": "library",
                "name": pin.name,
                "version": pin.version,
                "purl": pin.purl,
                "externalReferences": [
                    {
                        "type": "distribution",
                        "url": pin.purl,
                        "hashes": [{"alg": "SHA-256", "content": text} for text in pin.hashes],
                    }
                ],
            }
            for pin in shipped()
        ],
    }


def vulnerabilities(pin: Pin, index: str) -> list[str] | None:
    """What the index knows about this version, a line each; None if it does not answer."""
    request = urllib.request.Request(f"{index}/{pin.name}/{pin.version}/json")  # noqa: S310  ours
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:  # noqa: S310
            known = json.load(answer).get("vulnerabilities") or []
    except (OSError, ValueError):
        return None
    return [
        f"{pin.name} {pin.version}: {each['id']} {', '.join(each.get('aliases', []))}"
        f" (fixed in {', '.join(each.get('fixed_in', [])) or 'no version'})"
        for each in known
        if not each.get("withdrawn")
    ]


def audit(index: str) -> int:
    """Print what is known about what is shipped; the exit code."""
    pins = shipped()
    first = vulnerabilities(pins[0], index)
    if first is None:
        _say(f"{index} does not answer: nothing was audited")
        return 0
    with ThreadPoolExecutor(8) as pool:
        answers = [first, *pool.map(lambda pin: vulnerabilities(pin, index), pins[1:])]
    for line in (line for lines in answers for line in lines or []):
        _say(line)
    for pin, lines in zip(pins, answers, strict=True):
        if lines is None:
            _say(f"{pin.name} {pin.version}: the index did not answer")
    bad = sum(len(lines or []) for lines in answers)
    audited = sum(lines is not None for lines in answers)
    _say(f"{audited} of {len(pins)} packages audited, {bad} vulnerabilities")
    return 1 if bad else 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["sbom", "audit"])
    parser.add_argument("--index", default=INDEX, help="the JSON API of a package index")
    given = parser.parse_args()
    if given.what == "audit":
        return audit(given.index.rstrip("/"))
    _say(json.dumps(sbom(), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
