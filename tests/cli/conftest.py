"""The command line as a person types it: in this process, or, where it matters, in its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer import testing as typer_testing
from typer.testing import CliRunner, Result

from penstock.broker.protocol import Broker
from penstock.brokers import open_broker
from penstock.cli.root import root

# A runner makes all commands anew for each of them: 20 ms, and 0.6 ms without.
typer_testing._get_command = cache(typer_testing._get_command)

TASKS = """
from dataclasses import dataclass
from datetime import datetime

from penstock import App, Retry, current_job

app = App()


@dataclass
class Order:
    number: int
    price: float = 0.0


@app.task
def add(a: int, b: int) -> int:
    return a + b


@app.task(queue="mail")
def send(to: str, order: Order | None = None, *, urgent: bool = False) -> str:
    return f"{to} {order} {urgent}"


@app.task(queue="mail", name="mail.sweep")
def sweep(before: datetime) -> str:
    return before.isoformat()


@app.task(queue="payments", secret=("card",), keep_messages=True)
def charge(card: str) -> None:
    raise RuntimeError("no money")
"""


class Cli:
    """Runs commands in this process, in the project's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *words: str, code: int = 0, answer: str | None = None) -> Result:
        result = CliRunner().invoke(root, list(words), input=answer)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result

    def json(self, *words: str, code: int = 0) -> Any:
        """The one JSON document that a command prints."""
        [document] = self.lines(*words, code=code)
        return document

    def lines(self, *words: str, code: int = 0) -> list[Any]:
        """The JSON lines that a command prints."""
        result = self(*words, "--json", code=code)
        return [json.loads(line) for line in result.stdout.splitlines()]

    def start(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        """The command in a process of its own."""
        environment = {**os.environ, "TMPDIR": str(self.folder)}
        return subprocess.Popen(
            [sys.executable, "-m", "penstock", *words],
            cwd=self.folder,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **options,
        )

    def store(self) -> Broker:
        return open_broker(f"sqlite:///{self.folder / 'penstock.db'}")


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    """An empty project."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PENSTOCK_URL", raising=False)
    monkeypatch.delenv("PENSTOCK_PROFILE", raising=False)
    # The project ends here: what lies in the folders above is somebody else's.
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    before = set(sys.modules)
    yield Cli(tmp_path)
    for name in set(sys.modules) - before:
        # Of pydantic typer keeps classes: imported anew, it would take bounds for remarks.
        if not name.startswith(("penstock", "rich", "typer", "pydantic", "annotated_types")):
            del sys.modules[name]


@pytest.fixture
def shop(cli: Cli) -> Cli:
    """A project with tasks in shop.py."""
    (cli.folder / "shop.py").write_text(TASKS)
    return cli
