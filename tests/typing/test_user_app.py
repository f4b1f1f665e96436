"""An app of a user's own, who has no pyspark: every checker takes it, and finds what is wrong."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

SHOP = Path(__file__).with_name("shop.py")
WRONG = {
    number
    for number, line in enumerate(SHOP.read_text(encoding="utf-8").splitlines(), start=1)
    if line.endswith("# wrong")
}
Check = Callable[[Path, Path], set[int]]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That of an environment which has everything but Spark."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    there = sysconfig.get_path("purelib", vars={"base": str(folder)})
    for package in Path(sysconfig.get_path("purelib")).iterdir():
        if not package.name.startswith(("pyspark", "py4j")):
            Path(there, package.name).symlink_to(package)
    words = [python, "-c", "import penstock, pyspark"]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "No module named 'pyspark'" in ran.stderr
    return python


def by_mypy(folder: Path, python: Path) -> set[int]:
    words = ["mypy", "--strict", "--python-executable", str(python), "shop.py"]
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=folder, capture_output=True, text=True, check=False
    )
    found = re.findall(r"^shop\.py:(\d+): error", done.stdout, re.MULTILINE)
    assert found, done.stdout + done.stderr
    return {int(line) for line in found}


def by_pyright(mode: str) -> Check:
    def check(folder: Path, python: Path) -> set[int]:
        settings = json.dumps({"typeCheckingMode": mode})
        (folder / "pyrightconfig.json").write_text(settings, encoding="utf-8")
        words = ["basedpyright", "--outputjson", "--pythonpath", str(python), "shop.py"]
        done = subprocess.run(
            [sys.executable, "-m", *words], cwd=folder, capture_output=True, text=True, check=False
        )
        said = json.loads(done.stdout)["generalDiagnostics"]
        return {each["range"]["start"]["line"] + 1 for each in said if each["severity"] == "error"}

    return check


@pytest.mark.parametrize(
    "check",
    [by_mypy, by_pyright("strict"), by_pyright("recommended")],
    ids=["mypy", "pyright", "basedpyright"],
)
def test_the_app_of_a_user_without_spark_is_clean_but_for_its_mistakes(
    check: Check, python: Path, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(SHOP.read_text(encoding="utf-8"), encoding="utf-8")

    assert len(WRONG) >= 8
    assert check(tmp_path, python) == WRONG
