"""How hard the source is to find one's way in, in numbers: `python benchmarks/house.py [--json]`.

Counts entries of the tree, verbs of the broker protocol, classes in each broker's inheritance
chain, SQL files, public class names that stand twice, lines; and traces one job from `enqueue` to
its history row, counting the functions of Penstock that it passes. `--postgres URL` traces that
store too. The numbers are a mirror, not an aim.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import json
import pkgutil
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Self

from penstock.broker.values import Wanted

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "penstock"
SURFACES = {"cli", "integrations", "spark", "testing", "tools", "web"}


def entries() -> int:
    """Files and folders at the root of the package, beside the surfaces."""
    names = {
        path.stem
        for path in SOURCE.iterdir()
        if path.suffix in {"", ".py"} and not path.name.startswith("__")
    }
    return len(names - SURFACES)


def verbs() -> int:
    from penstock.broker.protocol import Broker

    members = (name for base in Broker.__mro__ for name in vars(base).items())
    return len(
        {
            name
            for name, member in members
            if inspect.isfunction(member) and not name.startswith("_")
        }
    )


def chains() -> dict[str, int]:
    """Our own classes in the longest chain of each store: of its broker, or of one of its parts."""
    from penstock import brokers

    longest: dict[str, int] = {}
    for found in pkgutil.walk_packages(brokers.__path__, "penstock.brokers."):
        for kind in vars(importlib.import_module(found.name)).values():
            if isinstance(kind, type) and kind.__module__ == found.name:
                chain = sum(base.__module__.startswith("penstock.brokers") for base in kind.__mro__)
                store = found.name.split(".")[2]
                longest[store] = max(longest.get(store, 0), chain)
    return {store: longest[store] for store in ("memory", "sqlite", "postgres", "tables")}


def class_names_twice() -> list[str]:
    """Public classes whose name stands in more than one module."""
    names = Counter(
        node.name
        for path in SOURCE.rglob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return sorted(name for name, count in names.items() if count > 1)


def lines(suffix: str) -> int:
    """Lines of source with this suffix, the shipped conformance suite left out."""
    suite = SOURCE / "testing" / "conformance"
    return sum(
        len(path.read_text(encoding="utf-8").splitlines())
        for path in (ROOT / "src").rglob(f"*{suffix}")
        if suite not in path.parents
    )


class Trace:
    """The distinct functions of Penstock that are called while it is on, in every thread."""

    def __init__(self) -> None:
        self.seen: dict[str, None] = {}

    def __enter__(self) -> Self:
        threading.setprofile(self._look)
        sys.setprofile(self._look)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)  # pyright: ignore[reportArgumentType]  None ends it

    def _look(self, frame: FrameType, event: str, argument: Any) -> None:
        del argument
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(str(SOURCE)):
            return
        if code.co_name.startswith("<"):  # comprehensions and generator expressions
            return
        module = str(Path(code.co_filename).relative_to(SOURCE)).removesuffix(".py")
        self.seen[f"{module.replace('/', '.')}:{code.co_qualname}"] = None


def functions_of_one_job(url: str) -> list[str]:
    """What one job passes from `enqueue` to its history row, on a store that is warm already."""
    from penstock import App
    from penstock.broker.views import WorkerRow
    from penstock.run.attempt import run

    app = App(url)

    @app.task(name="house:nothing")
    def nothing(number: int) -> int:
        return number

    worker = WorkerRow(id="house", tasks={"house:nothing": 1})

    def once() -> None:
        nothing.enqueue(1)
        [job] = app.broker.claim([Wanted(worker)]).jobs[0]
        outcome = run(app, app.tasks["house:nothing"], job)
        assert outcome is not None
        assert app.broker.settle([(job, outcome)]) == [True]

    once()
    with Trace() as trace:
        once()
    app.close()
    return list(trace.seen)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--list", action="store_true", help="print the functions of the trace")
    parser.add_argument("--postgres", metavar="URL")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        traces = {"sqlite": functions_of_one_job(f"sqlite:///{folder}/house.db")}
    if asked.postgres:
        traces["postgres"] = functions_of_one_job(asked.postgres)
    numbers: dict[str, Callable[[], Any]] = {
        "entries at the root, beside the surfaces": entries,
        "verbs of the broker protocol": verbs,
        "classes in a broker's inheritance chain": chains,
        "SQL files": lambda: len(list((ROOT / "src").rglob("*.sql"))),
        "public class names that stand twice": lambda: len(class_names_twice()),
        "functions from enqueue to the history row": lambda: {
            store: len(seen) for store, seen in traces.items()
        },
        "lines of Python": lambda: lines(".py"),
        "lines of SQL": lambda: lines(".sql"),
    }
    found = {name: count() for name, count in numbers.items()}
    if asked.json:
        print(json.dumps(found))
        return
    for name, number in found.items():
        print(f"{name:<44} {number}")
    if asked.list:
        for store, seen in traces.items():
            print(f"\n{store}:", *seen, sep="\n  ")


if __name__ == "__main__":
    main()
