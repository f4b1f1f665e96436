"""Every block of the pages that promise something names the tests that hold it.

`tests/docs/promises.py` says how; CONTRIBUTING.md says why.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.promises import ROOT, WHAT_TO_DO, blocks, faults

PAGES = [
    ROOT / name
    for name in (
        *("README.md", "SECURITY.md", "docs/guarantees.md", "docs/guarantees-spark.md"),
        "docs/threat-model.md",
    )
]
HELD = "tests/docs/test_promises.py::test_every_promise_names_its_tests"
SOAK = "tests/brokers/test_for_long.py::test_no_limit_is_ever_exceeded_for_long"
STORM = "tests/stories/test_restarts_postgres.py::test_postgres_killed_ten_times_under_load"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_promise_names_its_tests(page: Path) -> None:
    found = faults(page)

    assert not found, "\n".join(["", *found, "", WHAT_TO_DO])


def faults_in(tmp_path: Path, text: str) -> list[str]:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    return faults(page)


def test_a_page_in_which_all_is_said_has_no_faults(tmp_path: Path) -> None:
    text = f"""# Heading

What follows is a promise. <!-- no promise -->

Nothing is lost.
It goes on
for two lines. <!-- held by: {HELD},
{HELD} -->

- an item <!-- held by: {HELD} -->
- another
  of two lines <!-- held by: {HELD} -->

| a | table |
|---|---|
| one | row <!-- held by: {HELD} --> |
| another | row <!-- no promise --> |

| numbers | of a machine |
|---|---|
| so | many |
| and so | many |

<!-- measured: {HELD} -->

```python
print("# no heading, | no row")

- no item
```

<!-- held by: {HELD} -->
"""

    assert faults_in(tmp_path, text) == []
    assert [block.kind for block in blocks(text)] == [
        *("paragraph", "paragraph", "item", "item", "row", "row", "row", "row", "code"),
    ]


@pytest.mark.parametrize(
    ("block", "kind"),
    [
        ("Nothing is lost.", "paragraph"),
        ("- Nothing is lost.", "item"),
        ("| what | how often |\n|---|---|\n| lost | never |", "row"),
        ("```console\n$ penstock worker\n```", "code"),
    ],
)
def test_a_block_that_names_nothing_is_named(tmp_path: Path, block: str, kind: str) -> None:
    before = "# Page\n\nThis is about jobs. <!-- no promise -->\n\n"

    [fault] = faults_in(tmp_path, f"{before}{block}\n\n## More\n")

    line = 7 if kind == "row" else 5
    assert f"page.md:{line}: this {kind} does not say which tests hold it" in fault


@pytest.mark.parametrize(
    ("comment", "fault"),
    [
        (f"held by: {HELD}x", "there is no test 'test_every_promise_names_its_testsx'"),
        ("held by: tests/docs/test_nowhere.py::test_it", "there is no file 'tests/docs/test_now"),
        ("held by: tests/docs/test_promises.py", "there is no test ''"),
        (f"held by: {HELD}, test_here.py::test_it", "there is no file 'test_here.py'"),
        ("held by: tests/docs/promises.py::faults", "there is no test 'faults'"),
        ("help by: tests/docs/test_promises.py", "is not a comment that is known"),
        (f"held by: {SOAK}", "make test"),
        (f"held by: {STORM}, {SOAK}", "make test"),
        ("held by: tests/browser/test_foreign.py::test_its_forms_change_nothing_here", "make test"),
    ],
)
def test_a_comment_that_says_nothing_true_is_named(
    tmp_path: Path, comment: str, fault: str
) -> None:
    [found] = faults_in(tmp_path, f"Nothing is lost. <!-- {comment} -->\n")

    assert fault in found


def test_a_soak_test_beside_one_that_is_always_run_will_do(tmp_path: Path) -> None:
    assert faults_in(tmp_path, f"Never. <!-- held by: {SOAK}, {HELD} -->\n") == []


def test_what_is_held_is_no_introduction(tmp_path: Path) -> None:
    [found] = faults_in(tmp_path, f"Never. <!-- no promise --> <!-- held by: {HELD} -->\n")

    assert "take one comment away" in found
