"""A task that the tests of apply call for each row; it writes down its calls."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from penstock import App

app = App()


@dataclass
class Score:
    points: float
    words: list[str]


@app.task(name="lab:score")
def score(id: int, text: str) -> Score:
    with Path(os.environ["LAB_CALLS"]).open("a", encoding="utf-8") as calls:
        calls.write(f"{id}\n")
    if text == "bad":
        raise ValueError("bad text")
    return Score(id / 2, text.split())


@app.task(name="lab:forget", on_success="delete")
def forget(id: int) -> int:
    return id
