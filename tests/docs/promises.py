"""Which tests hold what a page promises.

A page is split into blocks: paragraphs, list items, rows of tables, code blocks. Each ends with one
of these comments, which no reader of the built page sees:

    <!-- held by: tests/test_a.py::test_one, tests/test_b.py::test_two -->
    <!-- measured: tests/test_c.py::test_the_benchmark_runs -->   numbers of one machine
    <!-- no promise -->                                           introductions, links, definitions

In a table the comment is in the last cell of a row. A comment on a line of its own belongs to the
code block before it, or to all rows of the table before it that have none.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
ONLY_ON_DEMAND = ("soak", "browser", "airflow")  # markers of tests that `make test` leaves out

_COMMENT = re.compile(r"<!--(.*?)-->", re.DOTALL)
_ITEM = re.compile(r" *(?:[-*]|\d+\.) ")
_DELIMITER = re.compile(r"\|[\s:|-]+\|\s*")
WHAT_TO_DO = """\
End the block with `<!-- held by: tests/folder/test_file.py::test_name, ... -->`: tests that fail
when a sentence of it is not true. If there is none, write one, or mend the sentence. A block that
promises nothing ends with `<!-- no promise -->`. In a table the comment is in the last cell of the
row; below a code block it has a line of its own."""


@dataclass
class Block:
    line: int  # of the page, the first one is 1
    kind: str  # paragraph, item, row or code
    text: str
    comments: list[str] = field(default_factory=list[str])

    @property
    def start(self) -> str:
        words = " ".join(self.text.split())
        return words if len(words) <= 60 else f"{words[:60]}..."


def blocks(page: str) -> list[Block]:
    """The blocks of a page in order, headings and the headers of tables left out."""
    found: list[Block] = []
    for block in _split(page):
        comments = [text.strip() for text in _COMMENT.findall(block.text)]
        block.text = _COMMENT.sub("", block.text).strip()
        block.comments = [] if block.kind == "code" else comments
        if block.text:
            found.append(block)
        elif comments:
            _give(found, comments)
    return found


def _give(found: list[Block], comments: list[str]) -> None:
    """What stands on a line of its own belongs to the block before, or to its whole table."""
    if not found:
        return
    if found[-1].kind != "row":
        found[-1].comments += comments
        return
    for block in reversed(found):
        if block.kind != "row":
            return
        block.comments = block.comments or comments


def _split(page: str) -> Iterator[Block]:
    lines = page.splitlines()
    at = 0
    while at < len(lines):
        first, line = at, lines[at]
        at += 1
        if not line.strip() or line.startswith("#"):
            continue
        if fence := re.match(r"`{3,}", line):
            while at < len(lines) and lines[at].rstrip() != fence[0]:
                at += 1
            at += 1
            yield Block(first + 1, "code", "\n".join(lines[first:at]))
        elif line.startswith("|"):
            if at < len(lines) and _DELIMITER.fullmatch(lines[at]):
                at += 1
            else:
                yield Block(first + 1, "row", line)
        else:
            while at < len(lines) and _goes_on(lines[at]):
                at += 1
            kind = "item" if _ITEM.match(line) else "paragraph"
            yield Block(first + 1, kind, "\n".join(lines[first:at]))


def _goes_on(line: str) -> bool:
    return bool(line.strip()) and not (
        line.startswith(("#", "|", "```")) or _ITEM.match(line) is not None
    )


def faults(page: Path) -> list[str]:
    """What is wrong with the comments of a page, a sentence each, with its place."""
    name = page.relative_to(ROOT) if page.is_relative_to(ROOT) else page.name
    return [
        f"{name}:{block.line}: {fault} ({block.start!r})"
        for block in blocks(page.read_text(encoding="utf-8"))
        for fault in faults_of(block)
    ]


def faults_of(block: Block) -> Iterator[str]:
    if not block.comments:
        yield f"this {block.kind} does not say which tests hold it"
    for comment in block.comments:
        word, _, ids = comment.partition(":")
        if comment == "no promise":
            if len(block.comments) > 1:
                yield "either it promises nothing, or tests hold it: take one comment away"
        elif word in ("held by", "measured"):
            yield from faults_of_tests([each.strip() for each in ids.split(",")])
        else:
            yield f"`{comment}` is not a comment that is known"


def faults_of_tests(ids: list[str]) -> Iterator[str]:
    always = 0
    for each in ids:
        path, _, name = each.partition("::")
        file, function = ROOT / path, name.rpartition("::")[2]
        if not (path.startswith(("tests/", "src/")) and file.is_file()):
            yield f"`{each}`: there is no file {path!r}; write the path from the root"
        elif not file.name.startswith("test_") or function not in tests_of(file):
            yield f"`{each}`: there is no test {function!r} in {path}"
        else:
            always += not tests_of(file)[function]
            continue
        always += 1  # no second fault about the same one
    if not always:
        yield f"`make test` runs none of {', '.join(ids)}: name one that it does run"


@cache
def tests_of(file: Path) -> dict[str, bool]:
    """The tests of a file, and whether they run only when asked for."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    module = any(
        isinstance(node, ast.Assign)
        and ast.unparse(node.targets[0]) == "pytestmark"
        and _on_demand(node.value)
        for node in tree.body
    )
    return {
        node.name: module or any(_on_demand(each) for each in node.decorator_list)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    }


def _on_demand(decorator: ast.expr) -> bool:
    return ast.unparse(decorator) in [f"pytest.mark.{name}" for name in ONLY_ON_DEMAND]
