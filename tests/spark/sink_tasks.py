"""Tasks that the tests of the sink write jobs for; executors import this file."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

from penstock import App

app = App("sqlite:////nowhere/of-the-app.db")  # never opened: the sink says which store


@dataclass
class Line:
    name: str
    price: Decimal
    count: int = 1


@app.task(name="mail:send", queue="mail", priority=3, version=2, secret=("token",))
def send(number: int, text: str, token: str | None = None) -> None: ...


@app.task(name="mail:typed")
def typed(  # noqa: PLR0917  a parameter of every type
    whole: int,
    real: float,
    exact: Decimal,
    flag: bool,
    text: str,
    raw: bytes,
    day: date,
    moment: datetime,
    local: datetime,
    span: timedelta,
    items: list[int],
    counts: dict[str, int],
    line: Line,
    maybe: int | None,
    free: Any,
) -> None: ...


@app.task(name="mail:batch")
def batch(rows: list[dict[str, Any]], dry: bool = False) -> None: ...


@app.task(name="mail:strict")
def strict(id: UUID, amount: float = 1.0) -> None: ...


@app.task(name="mail:rich", search=("number",), tags={"kind": "rich"}, at_most_once=True)
def rich(number: int) -> None: ...


@dataclass
class Doomed:
    """Whoever reads number 150 first is killed."""

    number: int
    told: str

    def __post_init__(self) -> None:
        if self.number == 150 and not Path(self.told).exists():
            Path(self.told).write_text("killed", encoding="ascii")
            os.kill(os.getpid(), signal.SIGKILL)


@app.task(name="mail:doomed")
def doomed(doomed: Doomed) -> None: ...
