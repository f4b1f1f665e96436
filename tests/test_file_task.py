"""`app.file_task(folder)`: files below a folder that the app names run as jobs, and no others."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from penstock import App, Refused, Retry
from penstock.job import Outcome, State
from penstock.run.attempt import run
from penstock.task.file_task import FileTask, checked_source
from penstock.testing.conformance.factories import a_worker, claim_for

MAIN = """
from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from penstock import current_job


@dataclass
class Found:
    year: int


def main(year: int = 1, **more: object) -> dict[str, object]:
    Path("scratch").write_text("here")
    found = Found(year)
    where = {"cwd": os.getcwd(), "file": __file__}
    return {"year": found.year, "job": current_job().id, **where, **more}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "etl"
    folder.mkdir()
    (folder / "load.py").write_text(MAIN)
    return folder


@pytest.fixture
def app(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> App:
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path / "state"))
    app = App("memory:")
    app.file_task(folder)
    return app


@pytest.fixture
def files(app: App) -> FileTask[..., object]:
    task = app.tasks["run_file"]
    assert isinstance(task, FileTask)
    return task


def ended(app: App) -> Outcome:
    """The outcome of the one job there is."""
    [job] = claim_for(app.broker, a_worker(tasks=app.known_tasks(), code=app.code))
    outcome = run(app, app.tasks[job.task], job)
    assert outcome is not None
    app.broker.settle([(job, outcome)])
    return outcome


def test_its_function_is_called_in_a_folder_of_the_jobs_own(
    app: App, files: FileTask[..., object], folder: Path, tmp_path: Path
) -> None:
    """A27: with its arguments, and what it returns is the result."""
    before = Path.cwd()
    handle = files.enqueue(str(folder / "load.py"), year=2026, name="ada")

    ended(app)

    result = handle.result(timeout=0)
    assert isinstance(result, dict)
    work = Path(result.pop("cwd"))
    assert (work / "scratch").read_text() == "here"
    assert work.is_relative_to(tmp_path / "state")
    assert work.stat().st_mode & 0o777 == 0o700
    file = str(folder / "load.py")
    assert result == {"year": 2026, "job": handle.id, "file": file, "name": "ada"}
    assert Path.cwd() == before


def test_its_jobs_are_detached(files: FileTask[..., object], folder: Path) -> None:
    assert files.detached
    assert files.job(str(folder / "load.py")).detached


def refusal(files: FileTask[..., object], file: object) -> str:
    with pytest.raises(Refused) as refused:
        files.enqueue(str(file))
    return str(refused.value)


def test_a_wrong_path_is_refused_when_it_is_enqueued(
    files: FileTask[..., object], folder: Path, tmp_path: Path
) -> None:
    """A27: relative, missing, a folder, outside, a link, unreadable, open to everybody."""
    (tmp_path / "outside.py").write_text(MAIN)
    (folder / "sub").mkdir()
    (folder / "link.py").symlink_to(tmp_path / "outside.py")
    (folder / "away").symlink_to(tmp_path)
    os.link(tmp_path / "outside.py", folder / "twin.py")
    os.mkfifo(folder / "pipe.py")
    (folder / "open.py").write_text(MAIN)
    (folder / "open.py").chmod(0o666)

    assert "absolute path" in refusal(files, "load.py")
    assert "absolute path" in refusal(files, folder / ".." / "outside.py")
    assert "absolute path" in refusal(files, f"{folder}/load.py\0")
    assert "cannot be read" in refusal(files, folder / f"{'x' * 300}.py")
    assert "no such file" in refusal(files, folder / "gone.py")
    assert "no such file" in refusal(files, folder / "gone" / "load.py")
    assert "no regular file" in refusal(files, folder / "sub")
    assert "is in no folder" in refusal(files, folder)
    assert "is in no folder" in refusal(files, tmp_path / "outside.py")
    assert "is in no folder" in refusal(files, f"{folder}-other/load.py")
    assert "link" in refusal(files, folder / "link.py")
    assert "link" in refusal(files, folder / "away" / "outside.py")
    assert "hard link" in refusal(files, folder / "twin.py")
    assert "regular file" in refusal(files, folder / "pipe.py")
    assert "chmod o-w" in refusal(files, folder / "open.py")


def test_of_two_folders_the_inner_one_counts(tmp_path: Path, folder: Path) -> None:
    """It is named in the code, so how its path leads there is its owner's choice."""
    (tmp_path / "elsewhere" / "scripts").mkdir(parents=True)
    (tmp_path / "elsewhere" / "scripts" / "load.py").write_text(MAIN)
    (folder / "away").symlink_to(tmp_path / "elsewhere")
    inner = folder / "away" / "scripts"

    source = checked_source([folder, inner], str(inner / "load.py"))

    assert source == MAIN.encode()
    with pytest.raises(Refused, match="link"):
        checked_source([folder], str(inner / "load.py"))


def test_what_a_row_names_is_checked_again_where_it_runs(
    app: App, files: FileTask[..., object], folder: Path, tmp_path: Path
) -> None:
    """A row is data: written past the checks of the caller, it runs nothing else."""
    (tmp_path / "outside.py").write_text("raise SystemExit('it ran')")
    job = files.job(str(folder / "load.py"))
    body = job.body.replace(str(folder / "load.py").encode(), str(tmp_path / "outside.py").encode())
    assert body != job.body
    app.broker.enqueue([type(job)(id=job.id, task=job.task, body=body, tags=job.tags)])

    outcome = ended(app)

    assert (outcome.state, outcome.reason) == (State.FAILED, "unreadable")
    assert "is in no folder" in (outcome.error or "")


@pytest.mark.parametrize("left", ["gone", "link", "open"])
def test_a_file_that_is_wrong_by_the_time_it_runs_is_not_tried_again(
    app: App, files: FileTask[..., object], folder: Path, left: str
) -> None:
    """Whatever its `Retry` says: what it did not run, no later attempt may run by chance."""
    file = folder / "load.py"
    files.options(retry=Retry(limit=3, delay=0)).enqueue(str(file))
    if left == "open":
        file.chmod(0o666)
    else:
        file.rename(folder / "other.py")
    if left == "link":
        file.symlink_to(folder / "other.py")

    outcome = ended(app)

    assert (outcome.state, outcome.reason) == (State.FAILED, "unreadable")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("x = 1", "NoFunction"),
        ("def main(): raise SystemExit(0)", "SystemExit"),
        ("def main(", "SyntaxError"),
    ],
)
def test_a_run_without_an_outcome_is_not_done(
    app: App, files: FileTask[..., object], folder: Path, text: str, error: str
) -> None:
    """A27: what was left before it returned is an error like any other."""
    (folder / "load.py").write_text(text)
    files.enqueue(str(folder / "load.py"))

    outcome = ended(app)

    assert outcome.state is State.FAILED
    assert error in (outcome.error or "")


def test_what_lies_beside_it_can_be_imported_and_hides_nothing(
    app: App,
    files: FileTask[..., object],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    (folder / "beside_load.py").write_text("VALUE = 7")
    (folder / "colorsys.py").write_text("raise ImportError('not the installed one')")
    (folder / "load.py").write_text(
        "import beside_load, colorsys\ndef main(): return [beside_load.VALUE, colorsys.ONE_THIRD]"
    )
    handle = files.enqueue(str(folder / "load.py"))

    ended(app)

    assert handle.result(timeout=0) == [7, 1 / 3]


def test_main_may_be_async(app: App, files: FileTask[..., object], folder: Path) -> None:
    (folder / "load.py").write_text("async def main(): return 7")
    handle = files.enqueue(str(folder / "load.py"))
    ended(app)

    assert handle.result(timeout=0) == 7


def test_the_line_that_raised_is_in_its_traceback(
    app: App, files: FileTask[..., object], folder: Path
) -> None:
    (folder / "load.py").write_text("def main():\n    raise ValueError('a stone')\n")
    files.enqueue(str(folder / "load.py"))

    error = ended(app).error or ""

    assert f'File "{folder / "load.py"}", line 2, in main' in error


@pytest.mark.parametrize("given", [(), ("etl",), ("/srv/../etl",), ("/",)])
def test_folders_are_named_by_absolute_paths(given: tuple[str, ...]) -> None:
    with pytest.raises(Refused, match="file_task"):
        App("memory:").file_task(*given)


def test_each_has_a_name(app: App, folder: Path) -> None:
    with pytest.raises(Refused, match="of that name already"):
        app.file_task(folder)
    assert app.file_task(folder, name="others").name == "others"
