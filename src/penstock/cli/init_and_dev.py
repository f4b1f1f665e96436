"""The first minutes: init writes a file with a task, dev works on it, shows it, and reloads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from penstock.cli.options import Json, LogFormat, Profile, Url
from penstock.errors import Refused

FIRST_TASK = """\
from penstock import App

app = App()


@app.task
def add(a: int, b: int) -> int:
    return a + b
"""
_LOOK_SECONDS = 0.3
_LEFT_OUT = {"__pycache__", "node_modules", "site-packages", "build", "dist"}


def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")] = Path(
        "tasks.py"
    ),
    *,
    json: Json = False,
) -> None:
    """Write a file with a first task.

    Example: penstock init
    """
    from penstock.cli import output

    if file.suffix != ".py" or not file.stem.isidentifier():
        raise Refused(f"{file} cannot be imported: write a name such as tasks.py")
    if not file.parent.is_dir():
        raise Refused(f"there is no folder {file.parent}")
    try:
        with file.open("x", encoding="utf-8") as written:
            written.write(FIRST_TASK)
    except FileExistsError:
        raise Refused(f"{file} is there already, and is left as it is; name another one") from None
    # Named as a module from here, or by its path from elsewhere.
    place = file.stem if file.parent == Path() else str(file)
    following = [f"penstock run {place}:add 2 3", f"penstock dev {place}"]
    if json:
        output.put_json({"file": str(file), "next": following})
        return
    output.say(f"{file} has a first task. Now:")
    output.say(f"  {following[0]:<32}  stores a job, runs it, prints 5")
    output.say(f"  {following[1]:<32}  a worker that reloads when you change the file")


def dev(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="TARGET",
            help="module:app, a module, or a file; without it, tasks.py.",
            show_default=False,
        ),
    ] = None,
    *,
    log_format: LogFormat = "text",
    url: Url = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Work while you write: a worker that reloads when a file changes, and the dashboard.

    Example: penstock dev tasks:app
    """
    from penstock.app.log_lines import LogOutput, log_to_stderr
    from penstock.cli import output
    from penstock.cli.store_choice import chosen

    log_to_stderr(LogOutput("warning", log_format))
    if target is None:
        if not Path("tasks.py").is_file():
            raise Refused("dev what? Name the app, for example myapp:app; penstock init writes one")
        target = "tasks"
    command = [sys.executable, "-m", "penstock", "worker", target, "--processes", "1"]
    command += ["--grace", "3s", "--log-level", "warning", "--log-format", log_format]
    command += ["--json"] if json else []
    folder = Path.cwd()
    before = signal.signal(signal.SIGTERM, _leave)
    pages = _Pages(target, log_format, json=json)
    try:
        with chosen(url, profile):
            while True:
                seen = _written(folder)
                pages.start()
                changed = _work_until_changed(command, folder, seen)
                if not json:
                    output.aside(f"{changed} changed: starting again", "cyan")
    except KeyboardInterrupt:
        pages.end(told=True)
        raise typer.Exit(130) from None
    finally:
        pages.end()
        signal.signal(signal.SIGTERM, before)


class _Pages:
    """The dashboard beside the worker, in a process of its own, with a token for this run alone."""

    def __init__(self, target: str, log_format: str, *, json: bool) -> None:
        self._command = [sys.executable, "-m", "penstock", "dashboard", target, "--json"]
        self._command += ["--log-format", log_format]
        self._json = json
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it, unless it is there; what it has to say, once it is."""
        from importlib.util import find_spec

        if self._process is not None and self._process.poll() is None:
            return
        if any(find_spec(module) is None for module in ("starlette", "jinja2", "uvicorn")):
            if not self._json and self._process is None:
                from penstock.cli import output

                output.aside("pip install 'penstock-queue[web]' would show a dashboard here")
            return
        from penstock.cli.dashboard import token_for_now

        entry, text = token_for_now()
        environment = os.environ
        if entry is not None:
            environment = {**environment, "PENSTOCK_DASHBOARD_TOKENS": entry}
        self._process = subprocess.Popen(
            self._command, env=environment, stdout=subprocess.PIPE, text=True
        )
        threading.Thread(target=self._say, args=(self._process, text), daemon=True).start()

    def _say(self, process: subprocess.Popen[str], text: str | None) -> None:
        import msgspec

        from penstock.cli import output

        line = "" if process.stdout is None else process.stdout.readline()
        if not line:
            return  # it has said why on its own stderr
        address = msgspec.json.decode(line, type=dict[str, str | None])["url"]
        token = "" if text is None else f"?token={text}"
        if self._json:
            output.put_json({"event": "dashboard", "url": f"{address}{token}"})
        else:
            output.aside(f"dashboard: {address}{token}", "cyan")

    def end(self, *, told: bool = False) -> None:
        process, self._process = self._process, None
        if process is not None:
            _end(process, told=told)
            if process.stdout is not None:
                process.stdout.close()


def _work_until_changed(command: list[str], folder: Path, seen: dict[str, float]) -> str:
    """Work; gives the file that changed. What was claimed is settled or handed back by then."""
    from penstock.cli import output

    worker = subprocess.Popen(command)
    told = False
    try:
        while (changed := _changed(seen, _written(folder))) is None:
            if worker.poll() is not None and not told:
                told = True
                output.aside("the worker has ended; waiting for a change", "yellow")
            time.sleep(_LOOK_SECONDS)
        return changed
    finally:
        _end(worker, told=isinstance(sys.exception(), KeyboardInterrupt))


def _end(worker: subprocess.Popen[Any], *, told: bool) -> None:
    """Have the worker end. A Ctrl-C in a terminal has reached it too: a second word means "now"."""
    if not told:
        worker.terminate()
    for patience in (6, 15):
        try:
            worker.wait(patience)
        except subprocess.TimeoutExpired:
            worker.terminate()
        else:
            return
    worker.kill()
    worker.wait()


def _leave(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise typer.Exit(0)


def _written(folder: Path) -> dict[str, float]:
    """When each of the folder's Python files was last written."""
    return dict(_files(str(folder)))


def _files(folder: str) -> Iterator[tuple[str, float]]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        try:
            if entry.name.startswith(".") or entry.name in _LEFT_OUT:
                continue
            if entry.is_dir(follow_symlinks=False):
                if not os.path.exists(f"{entry.path}/pyvenv.cfg"):  # noqa: PTH110  asked often
                    yield from _files(entry.path)
            elif entry.name.endswith(".py"):
                yield entry.path, entry.stat().st_mtime
        except OSError:
            continue  # gone in the meantime


def _changed(before: dict[str, float], now: dict[str, float]) -> str | None:
    for path in before.keys() | now.keys():
        if before.get(path) != now.get(path):
            return os.path.relpath(path)
    return None
