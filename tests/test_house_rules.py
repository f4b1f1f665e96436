"""Rules of the house that a machine can check, beyond what the linters do."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import penstock
from penstock.broker import protocol
from penstock.broker.bulk import Bulk
from penstock.broker.control import Control
from penstock.broker.core import Core
from penstock.broker.look import Look
from penstock.broker.protocol import Broker
from penstock.cli.root import root

HOUSE = Path(__file__).parents[1]
SOURCE = HOUSE / "src" / "penstock"
SUITE = SOURCE / "testing" / "conformance"
STORM_TASKS = SOURCE / "tools" / "demo" / "storm" / "tasks.py"
MODULES = sorted(SOURCE.rglob("*.py"))
GROUPS = (Core, Control, Look, Bulk)


def verbs_of(group: type) -> list[str]:
    return [
        name
        for name, member in vars(group).items()
        if inspect.isfunction(member) and not name.startswith("_")
    ]


GROUP_OF = {verb: group.__name__.lower() for group in GROUPS for verb in verbs_of(group)}
VERBS = list(GROUP_OF)
COMMANDS = [str(command.name) for command in root.registered_commands]
LONGEST_MODULE = 500
PLAIN_SQL = re.compile(r"\s*(begin|commit|rollback|savepoint|release|pragma)\b", re.IGNORECASE)
LOOKS_LIKE_SQL = re.compile(
    r"\s*(select\s.+\sfrom\s|insert\s+(or\s+\w+\s+)?into\s|update\s+\w+\s+set\s|delete\s+from\s"
    r"|(create|drop|alter)\s+(unique\s+)?(table|index|view|trigger)\s)",
    re.IGNORECASE | re.DOTALL,
)


def named(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def text_of(node: ast.AST) -> str | None:
    """The text of a string, f-strings with {} for what they fill in; None for anything else."""
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
        )
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return None


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def calls(tree: ast.AST) -> Iterator[tuple[int, str, list[ast.expr]]]:
    """Every call of a module: its line, what is called, and with what."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield node.lineno, called_name(node.func), node.args


def called_name(called: ast.expr) -> str:
    """As it is written; most are a name, for which unparse takes ten times as long."""
    if isinstance(called, ast.Name):
        return called.id
    if isinstance(called, ast.Attribute):
        return f"{called_name(called.value)}.{called.attr}"
    return ast.unparse(called)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_of_a_broker_has_its_test_file(verb):
    """`control/test_act_cancel.py` is one of the verb `act`."""
    folder = SUITE / GROUP_OF[verb]

    assert (folder / f"test_{verb}.py").is_file() or list(folder.glob(f"test_{verb}_*.py"))


def test_the_first_page_of_the_protocol_says_how_many_verbs_there_are():
    page = protocol.__doc__ or ""

    assert f"\n{len(VERBS)} verbs in four groups:" in page
    for group in GROUPS:
        assert re.search(rf"^    {group.__name__} +{len(verbs_of(group))}  ", page, re.MULTILINE)
    assert set(Broker.__mro__) >= set(GROUPS)
    assert verbs_of(Broker) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_in_the_reference(command):
    reference = (HOUSE / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")

    assert f"\n### `penstock {command}" in reference


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_a_command_is_in_the_reference(command):
    reference = (HOUSE / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    [registered] = [each for each in root.registered_commands if each.name == command]
    assert registered.callback is not None
    own = set(inspect.signature(registered.callback).parameters) - {"url", "profile", "app", "json"}
    part = reference.split(f"\n### `penstock {command}", 1)[1].split("\n### ", 1)[0]

    for name in own:
        spelt = name.rstrip("_").replace("_", "-")
        assert f"--{spelt}" in part or spelt.upper() in part or name in {"words", "args"}


def test_the_public_names_are_sorted_and_complete():
    public = {
        name
        for name, value in vars(penstock).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }

    assert penstock.__all__ == sorted(penstock.__all__)
    assert set(penstock.__all__) == public


def test_only_stories_and_trust_sleep():
    slow = {HOUSE / "tests" / "stories", HOUSE / "tests" / "trust"}
    sleeping = [
        f"{path.relative_to(HOUSE)}:{line}"
        for path in [*(HOUSE / "tests").rglob("*.py"), *SUITE.rglob("*.py")]
        if not slow & set(path.parents)
        for line, called, _ in calls(ast.parse(path.read_text(encoding="utf-8")))
        if called in {"sleep", "time.sleep"}
    ]

    assert sleeping == []


def test_nothing_is_unpickled_or_evaluated():
    unsafe = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "yaml"}
    evaluating = {"eval", "exec", "yaml.load", "builtins.eval"}
    faults: list[str] = []
    for path in MODULES:
        tree = tree_of(path)
        imports = [
            (node.lineno, name)
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in (
                [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else [alias.name for alias in node.names]
            )
        ]
        faults += [
            f"{named(path)}:{line}: {name}"
            for line, name in imports
            if name.partition(".")[0] in unsafe
        ]
        faults += [
            f"{named(path)}:{line}: {called}"
            for line, called, _ in calls(tree)
            if called in evaluating
        ]

    assert faults == []


def test_sql_is_in_files_of_its_own():
    # Tests of transactions, in the suite, and the storm make a table of the application's own.
    modules = [path for path in MODULES if SUITE not in path.parents and path != STORM_TASKS]

    assert [fault for path in modules for fault in sql_in(path)] == []


def sql_in(path: Path) -> Iterator[str]:
    """What belongs in a .sql file."""
    tree = tree_of(path)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        text = text_of(node)
        if text is not None and id(node) not in docstrings and LOOKS_LIKE_SQL.match(text):
            yield f"{named(path)}: {text!r}"
    for line, called, given in calls(tree):
        if called.rpartition(".")[2] not in {"execute", "executemany", "executescript"}:
            continue
        for argument in given[:1]:
            text = text_of(argument)
            if text is not None and not PLAIN_SQL.match(text):
                yield f"{named(path)}:{line}: {text!r}"
            if isinstance(argument, ast.JoinedStr) and not (text or "").startswith("pragma"):
                yield f"{named(path)}:{line}: SQL from an f-string"


def test_schemes_of_stores_are_tested_by_the_brokers_alone():
    schemes = ("memory:", "postgres", "sqlite:")
    outside = [path for path in MODULES if SOURCE / "brokers" not in path.parents]
    tests = [
        f"{named(path)}:{line}"
        for path in outside
        for line, called, given in calls(tree_of(path))
        if called.rpartition(".")[2] in {"startswith", "removeprefix"}
        for word in ast.walk(ast.Tuple(given))
        if (text_of(word) or "").startswith(schemes)
    ]

    assert tests == []


def test_no_module_is_too_long_to_hold_in_mind():
    lines = {named(path): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}

    assert {name: long for name, long in lines.items() if long > LONGEST_MODULE} == {}


def test_no_module_is_a_drawer_for_the_rest():
    names = {path.stem for path in MODULES}

    assert not names & {"utils", "util", "helpers", "helper", "common", "misc"}


def test_every_module_of_the_core_is_listed_as_pure_or_as_not():
    with (HOUSE / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    [pure] = [each for each in contracts if each["id"] == "pure"]
    folders = ("app", "broker", "enqueue", "flows", "rules", "run", "schedules", "task")
    modules = {
        f"penstock.{folder}.{path.stem}"
        for folder in folders
        for path in (SOURCE / folder).glob("*.py")
        if path.stem != "__init__"
    }

    assert modules <= set(pure["source_modules"]) | set(pure["forbidden_modules"])
    assert not set(pure["source_modules"]) & set(pure["forbidden_modules"])


def test_the_root_of_the_tree_fits_on_one_screen():
    surfaces = {"cli", "web", "spark", "integrations", "testing", "tools", "presets"}
    entries = {
        path.stem
        for path in SOURCE.iterdir()
        if path.suffix in {".py", ""} and not path.name.startswith("__")
    }

    assert len(entries - surfaces) <= 14


def test_no_two_public_classes_have_one_name():
    homes: dict[str, list[str]] = {}
    for path in MODULES:
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(named(path))

    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}
