"""How hard the source is to find one's way in, in numbers: `python benchmarks/house.py [--json]`.

Counts entries of the tree, verbs of the broker protocol, classes in each broker's inheritance
chain, SQL files, public class names that stand twice, lines; and traces one job from `enqueue` to
its history row, counting the functions of Penstock that it passes and, of those, the steps.
`--postgres URL` traces that store too; `--write` puts the steps on SQLite into
docs/architecture.md. The numbers are a mirror, not an aim.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import importlib
import inspect
import json
import pkgutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Self

from penstock.broker.values import Wanted

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "penstock"
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- steps: begin -->", "<!-- steps: end -->"
ENQUEUE, STORE = "enqueue, until the broker", "enqueue, in the broker"
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
    """The functions of Penstock that one job passes, in every thread, by stretch of its way.

    A *step* is a function that calls another one of Penstock. What calls none (`tick_of`, an
    accessor) is a leaf: a reader of the way need not know it.
    """

    def __init__(self) -> None:
        # Of each function in a stretch: its depth below the verb, and who called it first there.
        self.stretches: dict[str, dict[str, tuple[int, str]]] = {}
        self.callers: set[str] = set()
        self.stretch = ""

    def __enter__(self) -> Self:
        threading.setprofile(self._look)
        sys.setprofile(self._look)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)  # pyright: ignore[reportArgumentType]  None ends it

    def _look(self, frame: FrameType, event: str, argument: Any) -> None:
        del argument
        name = _name_of(frame)
        if event != "call" or name is None:
            return
        above = list(_penstock_callers(frame))
        stretch = self.stretch
        if stretch == ENQUEUE and any(each.startswith("brokers/") for each in (name, *above)):
            stretch = STORE
        if above:
            self.callers.add(above[0])
        functions = self.stretches.setdefault(stretch, {})
        functions.setdefault(name, (len(above), above[0] if above else ""))

    @property
    def functions(self) -> list[str]:
        return list(dict.fromkeys(name for names in self.stretches.values() for name in names))

    @property
    def steps(self) -> dict[str, dict[str, tuple[int, str]]]:
        """Of each stretch, the steps that were met there, each with its depth and its caller."""
        return {
            stretch: {name: met for name, met in functions.items() if name in self.callers}
            for stretch, functions in self.stretches.items()
        }

    def numbers(self) -> dict[str, int]:
        steps = self.steps
        distinct = {name for names in steps.values() for name in names}
        by_stretch = {stretch: len(names) for stretch, names in steps.items()}
        return {"functions": len(self.functions), "steps": len(distinct), **by_stretch}

    def listed(self) -> list[str]:
        """The steps of each stretch, in the order of a job's way, indented by who calls whom."""
        lines: list[str] = []
        for stretch, steps in self.steps.items():
            lines += ["", f"{stretch}: {len(steps)} steps"]
            least = min((depth for depth, _ in steps.values()), default=0)
            path: list[str] = []  # the steps that the line before is under, with itself
            for name, (depth, caller) in steps.items():
                indent = depth - least
                if indent and path[indent - 1 : indent] != [caller]:
                    lines.append(_line(caller, indent - 1, "again"))
                    path[indent - 1 :] = [caller]
                lines.append(_line(name, indent))
                path[indent:] = [name]
        return lines[1:]


def _line(name: str, indent: int, remark: str = "") -> str:
    module, _, function = name.partition(":")
    return f"{'  ' * (indent + 1)}{function:<40} {module}.py {remark}".rstrip()


def _name_of(frame: FrameType) -> str | None:
    """`module:function`; None for what is not Penstock's, and for lambdas and comprehensions."""
    code = frame.f_code
    if not code.co_filename.startswith(str(SOURCE)) or code.co_name.startswith("<"):
        return None
    module = str(Path(code.co_filename).relative_to(SOURCE)).removesuffix(".py")
    return f"{module}:{code.co_qualname}"


def _penstock_callers(frame: FrameType) -> Iterator[str]:
    """Who called it, nearest first; what lies between two functions of Penstock is left out."""
    caller = frame.f_back
    while caller is not None:
        name = _name_of(caller)
        if name is not None:
            yield name
        caller = caller.f_back


class SteppedClock:
    """Goes on only when told to, so that every run of the trace takes the same branches."""

    def __init__(self) -> None:
        self.time = time.time()

    def now(self) -> float:
        return self.time

    monotonic = now


def trace_one_job(url: str, clock: SteppedClock | None = None) -> Trace:
    """The way of one job from `enqueue` to its history row, on a store that is warm already."""
    from penstock import App
    from penstock.broker.views import WorkerRow
    from penstock.run.attempt import run

    app = App(url, name="house", clock=clock)

    @app.task(name="house:nothing")
    def nothing(number: int) -> int:
        return number

    worker = WorkerRow(id="house", tasks={"house:nothing": 1}, app="house")

    def once(trace: Trace) -> None:
        if clock is not None:
            clock.time += 0.01
        trace.stretch = ENQUEUE
        nothing.enqueue(1)
        trace.stretch = "claim"
        [job] = app.broker.claim([Wanted(worker)]).jobs[0]
        trace.stretch = "run"
        outcome = run(app, app.tasks["house:nothing"], job)
        assert outcome is not None
        trace.stretch = "settle"
        assert app.broker.settle([(job, outcome)]) == [True]

    once(Trace())
    once(Trace())
    with Trace() as trace:
        once(trace)
    app.close()
    return trace


def trace_sqlite() -> Trace:
    with tempfile.TemporaryDirectory() as folder:
        return trace_one_job(f"sqlite:///{folder}/house.db", SteppedClock())


def page_with(trace: Trace) -> str:
    """The architecture page, with the steps of this trace in the place of those before."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    steps = "\n".join(trace.listed())
    total = trace.numbers()
    summary = f"{total['steps']} different steps, {total['functions']} functions with the leaves:"
    return f"{before}{BEGIN}\n{summary}\n\n```text\n{steps}\n```\n\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--list", action="store_true", help="print the functions of the trace")
    parser.add_argument("--postgres", metavar="URL")
    parser.add_argument(
        "--write", action="store_true", help="rewrite the list of steps in the page"
    )
    parser.add_argument("--check", action="store_true", help="fail if that list is not the traced")
    options = parser.parse_args()
    traces = {"sqlite": trace_sqlite()}
    page = page_with(traces["sqlite"])
    if options.write:
        PAGE.write_text(page, encoding="utf-8")
        return
    if options.check:
        old = PAGE.read_text(encoding="utf-8")
        changes = difflib.unified_diff(old.splitlines(), page.splitlines(), "page", "trace", n=0)
        sys.exit("\n".join(changes) or None)
    if options.postgres:
        traces["postgres"] = trace_one_job(options.postgres)
    measures: dict[str, Callable[[], Any]] = {
        "entries at the root, beside the surfaces": entries,
        "verbs of the broker protocol": verbs,
        "classes in a broker's inheritance chain": chains,
        "SQL files": lambda: len(list((ROOT / "src").rglob("*.sql"))),
        "public class names that stand twice": lambda: len(class_names_twice()),
        "lines of Python": lambda: lines(".py"),
        "lines of SQL": lambda: lines(".sql"),
    }
    numbers = {name: count() for name, count in measures.items()}
    for store, trace in traces.items():
        numbers[f"enqueue to the history row, {store}"] = trace.numbers()
    if options.json:
        print(json.dumps(numbers))
        return
    for name, number in numbers.items():
        print(f"{name:<44} {number}")
    if options.list:
        for store, trace in traces.items():
            print(f"\n{store}, steps", *trace.listed(), sep="\n")
            leaves = [name for name in trace.functions if name not in trace.callers]
            print(f"\n{store}, leaves", *leaves, sep="\n  ")


if __name__ == "__main__":
    main()
