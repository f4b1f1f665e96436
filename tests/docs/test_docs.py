"""The documentation is true: links lead somewhere, code runs, commands exist, nothing is left out.

A python block with a title is the content of that file; the others of a page are one program.
"""

from __future__ import annotations

import configparser
import importlib.util
import inspect
import os
import re
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import typer.main

import penstock
from penstock import App, CurrentJob, FlowHandle, Handle, Repeat, Retry, Task
from penstock.broker.protocol import Broker
from penstock.cli.init_and_dev import FIRST_TASK
from penstock.cli.root import root
from penstock.task.option_types import EnqueueOptions, QueueDeclaration, names_of
from penstock.worker import Supervisor

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "penstock"
PAGES = sorted(DOCS.rglob("*.md"))
OUTSIDE = [
    ROOT / name
    for name in ("README.md", "AGENTS.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
]
EVERYTHING = [*OUTSIDE, ROOT / "llms.txt", *PAGES]
COMMANDS: dict[str, Any] = typer.main.get_command(root).commands  # pyright: ignore[reportAttributeAccessIssue]

_FENCE = re.compile(
    r"^(?P<mark>```+)(?P<info>[^\n`]*)\n(?P<code>.*?)^(?P=mark)$", re.MULTILINE | re.DOTALL
)
_LINK = re.compile(r"(?<!!)\[(?:[^\[\]]|\[[^\]]*\])*\]\((?P<target>[^)\s]+)\)")


class Block(NamedTuple):
    language: str
    title: str | None
    code: str


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(page: Path) -> Iterator[Block]:
    for match in _FENCE.finditer(page.read_text(encoding="utf-8")):
        title = re.search(r'title="([^"]+)"', match["info"])
        language = match["info"].split()[0] if match["info"].strip() else ""
        yield Block(language, title[1] if title else None, match["code"])


def prose(page: Path) -> str:
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def program(page: Path) -> str:
    """The python blocks of a page that are no file's content."""
    return "\n".join(
        block.code for block in blocks(page) if block.language == "python" and not block.title
    )


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as the site and the code hosts make them."""
    found: set[str] = set()
    for line in prose(page).splitlines():
        if (heading := re.fullmatch(r"#+ +(.*?)(?: +#+)?", line)) is None:
            continue
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).replace("`", "")
        plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
        slug = re.sub(r"[^\w\s-]", "", plain).strip().lower()
        found.add(re.sub(r"[\s-]+", "-", slug))  # of the site
        found.add(re.sub(r"\s", "-", slug))  # of code hosts
    return found


# Links


@pytest.mark.parametrize("page", EVERYTHING, ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    without_code = re.sub(r"`[^`\n]*`", "", prose(page))
    for match in _LINK.finditer(without_code):
        target, _, anchor = match["target"].partition("#")
        if re.match(r"[a-z]+:", target):
            assert target.startswith("https://"), f"{target} is not https"
            continue
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), f"{match['target']} leads nowhere"
        if page.is_relative_to(DOCS):
            shown = file in PAGES or file.is_relative_to(DOCS / "assets")
            assert shown, f"{match['target']} is no page of the site"
        if anchor:
            assert anchor in anchors(file), f"{match['target']}: {sorted(anchors(file))}"


def test_every_page_has_its_place_in_the_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]

    listed = set(re.findall(r": (\S+\.md)$", menu, re.MULTILINE))

    assert listed == {str(page.relative_to(DOCS)) for page in PAGES}


def test_every_page_but_decisions_is_linked_from_the_first_one() -> None:
    first = DOCS / "index.md"

    linked = {match["target"].partition("#")[0] for match in _LINK.finditer(prose(first))}

    pages = {str(page.relative_to(DOCS)) for page in PAGES if page != first}
    assert {page for page in pages - linked if not page.startswith("decisions/")} == set()


def test_every_decision_has_a_line_in_the_index() -> None:
    folder = DOCS / "decisions"
    index = (folder / "index.md").read_text(encoding="utf-8")

    listed = re.findall(r"^\| \d{4} \| .*\((\d{4}-[\w-]+\.md)\)", index, re.MULTILINE)

    assert listed == sorted(page.name for page in folder.glob("0*.md"))


# Code


@pytest.mark.parametrize("page", EVERYTHING, ids=name_of)
def test_a_block_with_a_title_is_that_file(page: Path) -> None:
    for block in blocks(page):
        if block.title == "tasks.py":
            assert block.code == FIRST_TASK
        elif block.title:
            assert block.code == (ROOT / block.title).read_text(encoding="utf-8"), block.title


@pytest.mark.parametrize("page", [DOCS / "tutorial.md", ROOT / "README.md"], ids=name_of)
def test_what_a_newcomer_reads_first_is_all_files_that_are_run(page: Path) -> None:
    assert program(page) == ""


@pytest.mark.parametrize("page", [page for page in EVERYTHING if program(page)], ids=name_of)
def test_the_blocks_of_a_page_are_a_program_that_runs(
    page: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if "spark" in program(page):
        request.getfixturevalue("quick_java")
    file = tmp_path / f"{page.stem.replace('-', '_')}.py"
    file.write_text(program(page), encoding="utf-8")

    if "def test_" in program(page):
        ran = run(
            "-m", "pytest", "-q", "-pno:cacheprovider", "-pno:schemathesis", file.name, cwd=tmp_path
        )
    else:
        ran = run(file.name, cwd=tmp_path, timeout=280)

    assert ran.returncode == 0, ran.stdout + ran.stderr


def run(*arguments: str, cwd: Path, timeout: int = 110) -> subprocess.CompletedProcess[str]:
    settings = {
        name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")
    }
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=cwd, env=settings, capture_output=True, text=True, timeout=timeout, check=False
    )


# Examples


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_quickstart_stores_jobs_once_and_a_worker_runs_them(tmp_path: Path) -> None:
    source = (ROOT / "examples" / "quickstart.py").read_text(encoding="utf-8")
    (tmp_path / "quickstart.py").write_text(source, encoding="utf-8")

    for _ in range(2):
        assert run("quickstart.py", cwd=tmp_path).stdout == "100 jobs are stored\n"
    worker = run(
        *("-m", "penstock", "worker", "quickstart.py", "--processes", "1", "--drain"), cwd=tmp_path
    )
    found = run(
        *("-m", "penstock", "find", "state:succeeded", "--limit", "1000", "--json"), cwd=tmp_path
    )

    assert worker.returncode == 0, worker.stderr
    assert len(found.stdout.splitlines()) == 100, found.stderr


def test_the_tutorials_own_tests_pass(tmp_path: Path) -> None:
    for file in (ROOT / "examples" / "tutorial").glob("*.py"):
        (tmp_path / file.name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")

    ran = run("-m", "pytest", "-q", "-pno:cacheprovider", "-pno:schemathesis", cwd=tmp_path)

    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_tutorials_long_task_goes_on_where_it_stopped() -> None:
    example = load(ROOT / "examples" / "tutorial" / "import_rows.py")
    with example.app.testing() as t:
        handle = example.import_rows.enqueue("https://example.org")
        with t.crash_at("settle"):
            t.drain()

        assert handle.result() == 100
        assert handle.progress().fraction == 1
        assert len(t.broker.notes(handle.id, "step")) == 1


# Completeness


API = (DOCS / "reference" / "api.md").read_text(encoding="utf-8")


def documented(name: str) -> bool:
    return re.search(rf"`{re.escape(name)}\b", API) is not None


@pytest.mark.parametrize("name", penstock.__all__)
def test_every_public_name_has_a_place_in_the_reference(name: str) -> None:
    assert f"### `{name}`\n" in API


@pytest.mark.parametrize("kind", [App, Task, Handle, CurrentJob])
def test_every_method_is_in_the_reference(kind: type) -> None:
    names = [name for name in dir(kind) if not name.startswith("_")]
    if kind is Task:  # what it inherits is the public part
        names = ["job", "enqueue", "enqueue_async", "enqueue_many", "options"]

    missing = [name for name in names if not documented(name)]

    assert missing == []


@pytest.mark.parametrize("function", [Task.__init__, Task.options, App.declare, Retry, Repeat])
def test_every_option_is_in_the_reference(function: Any) -> None:
    inside = {"self", "app", "function", "declared", "names"}
    names = [name for name in inspect.signature(function).parameters if name not in inside]
    if function in {Retry, Repeat}:
        missing = [name for name in names if f"{name}=" not in API]
    else:
        missing = [name for name in names if not documented(name)]

    assert missing == []


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_every_table_is_on_the_storage_page(store: str) -> None:
    schema = (SOURCE / "brokers" / store / "sql" / "schema.sql").read_text(encoding="utf-8")
    storage = (DOCS / "reference" / "storage.md").read_text(encoding="utf-8")

    tables = re.findall(r"^create table penstock[_.](\w+)", schema, re.MULTILINE)

    assert tables
    assert [table for table in tables if f"| `{table}` |" not in storage] == []


@pytest.mark.parametrize("page", EVERYTHING, ids=name_of)
def test_the_files_that_are_named_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    known = {file.name for folder in (SOURCE, ROOT / "examples") for file in folder.rglob("*.*")}
    for path in re.findall(r"\b((?:tests|brokers|worker|cli|testing)/[\w/]+\.(?:py|sql))\b", text):
        assert ((ROOT if path.startswith("tests/") else SOURCE) / path).is_file(), path
    for name in re.findall(r"\b(\w+\.sql)\b", text.replace("spark.sql", "")):  # a module, a setting
        assert name in known, name


def test_files_and_functions_of_the_architecture_table_are_there() -> None:
    files = [
        file for file in SOURCE.rglob("*.*") if file.suffix in {".py", ".sql", ".html", ".lua"}
    ]
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    table = page.partition("## Where is ...?")[2].partition("\n\nA broker over SQL")[0]
    missing: list[str] = []
    for row in table.splitlines():
        words = re.findall(r"`([^`]+)`", row)
        paths = [word for word in words if re.fullmatch(r"[\w*/.]+\.(?:py|sql|html|lua)", word)]
        named = {path: [file for file in files if file.match(path)] for path in paths}
        missing += [path for path, found in named.items() if not found]
        sources = [file.read_text(encoding="utf-8") for found in named.values() for file in found]
        for word in words:
            if word not in named and (name := re.fullmatch(r"@?(?:\w+\.)*(\w+)(?:\(\))?", word)):
                whole = re.compile(rf"\b{name[1]}\b")
                missing += [] if any(map(whole.search, sources)) else [f"{word} in {paths}"]

    assert "`delay_before`" in table
    assert missing == []


# What is, not what will be


_PROMISE = re.compile(
    r"\b(?:is|are) coming\b|\(coming\)|\| coming\b|\bcoming soon\b|\"coming\" means|\bcoming, in\b"
    r"|\bnot there yet\b|\bnot (?:implemented|supported|available) yet\b|\bis planned\b|\(planned\)"
    r"|\bwill be (?:added|available|possible|supported|there)\b"
    r"|\bin a (?:later|future) (?:release|version)\b",
    re.IGNORECASE,
)


@pytest.mark.parametrize(
    "page",
    [page for page in EVERYTHING if page.parent.name != "decisions" and page.stem != "CHANGELOG"],
    ids=name_of,
)
def test_no_page_promises_what_is_not_there(page: Path) -> None:
    assert _PROMISE.findall(" ".join(prose(page).split())) == []


def test_what_replaces_the_words_of_other_systems_exists() -> None:
    page = (DOCS / "coming-from.md").read_text(encoding="utf-8")
    ours = "\n".join(line.split(" | ", 1)[1] for line in page.splitlines() if " | " in line)
    app = App("memory:")
    owners = {
        "app": app,
        "app.broker": Broker,
        "app.schedules": app.schedules,
        "task": Task,
        "handle": Handle,
        "flow": FlowHandle,
        "current_job()": CurrentJob,
        "t": app.testing(),
    }
    named = re.findall(
        r"(?<![\w./])(app\.broker|app\.schedules|app|task|handle|flow|current_job\(\)|t)\.(\w+)",
        ours,
    )
    options = [
        (name, known)
        for called, known in {
            "options": names_of(EnqueueOptions),
            "Retry": {*inspect.signature(Retry).parameters},
            "app.queue": names_of(QueueDeclaration),
            "app.limit": {*inspect.signature(App.limit).parameters},
        }.items()
        for given in re.findall(rf"(?<![\w.]){re.escape(called)}\(([^`()]*)\)", ours)
        for name in re.findall(r"(\w+)=", given)
    ]

    assert len(named) > 20
    assert len(options) > 20
    assert [f"{owner}.{name}" for owner, name in named if not hasattr(owners[owner], name)] == []
    assert [name for name, known in options if name not in known] == []


# The command line


def commands_in(page: Path) -> Iterator[list[str]]:
    """Every `penstock ...` that the page shows, as words."""
    text = page.read_text(encoding="utf-8")
    lines = [line for block in blocks(page) for line in block.code.splitlines()]
    shown = [line.removeprefix("$ ") for line in lines if line.startswith("$ penstock ")]
    shown += re.findall(r"`(penstock [^`\n]*)`", _FENCE.sub("", text))
    for line in shown:
        words = re.sub(r"\"[^\"]*\"", "text", line).partition("|")[0].split()
        yield words[1:]


@pytest.mark.parametrize("page", EVERYTHING, ids=name_of)
def test_every_command_that_is_shown_exists(page: Path) -> None:
    for name, *words in commands_in(page):
        if name in {"...", "--help", "--version"} or name.isupper():  # COMMAND: any
            continue
        assert name in COMMANDS, f"penstock {name}"
        known = {option for each in COMMANDS[name].params for option in each.opts}
        options = [word.partition("=")[0] for word in words if word.startswith("--")]
        assert [option for option in options if option not in known] == [], f"penstock {name}"


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_is_in_the_reference(name: str) -> None:
    reference = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")

    assert f"penstock {name}" in reference


def test_systemd_never_gives_up_on_the_unit_and_waits_for_the_grace() -> None:
    [unit] = [block.code for block in blocks(DOCS / "how-to/operate.md") if block.language == "ini"]
    settings = configparser.ConfigParser(interpolation=None)
    settings.optionxform = str  # systemd's names have capitals
    settings.read_string(unit)
    grace = inspect.signature(Supervisor).parameters["grace"].default

    assert settings["Unit"]["StartLimitIntervalSec"] == "0"
    assert settings["Service"]["Restart"] == "always"
    assert int(settings["Service"]["RestartSec"]) > 0
    assert int(settings["Service"]["TimeoutStopSec"]) >= grace + 10


def test_no_example_takes_a_person_from_a_header_that_anybody_may_send() -> None:
    """Where a proxy sets it, it is the proxy that is trusted, and the page says so."""
    code = [
        (name_of(path), block.code)
        for path in [*PAGES, ROOT / "README.md", ROOT / "SECURITY.md"]
        for block in blocks(path)
    ]
    code += [
        (name_of(path), path.read_text(encoding="utf-8"))
        for path in (ROOT / "examples").rglob("*.py")
    ]
    by_header = re.compile(
        r"""headers(?:\.get\(|\[)\s*["'](?:x-|remote)[\w-]*user""", re.IGNORECASE
    )

    assert by_header.search('headers.get("x-user")')
    assert by_header.search("request.headers['X-Forwarded-User']")
    assert [name for name, text in code if by_header.search(text)] == []
