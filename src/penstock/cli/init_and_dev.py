"""init writes a file with a first task; dev runs a worker that reloads, and the dashboard."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
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
        raise Refused(f"{file} is not a module name: use a name such as tasks.py")
    if not file.parent.is_dir():
        raise Refused(f"there is no folder {file.parent}")
    try:
        with file.open("x", encoding="utf-8") as written:
            written.write(FIRST_TASK)
    except FileExistsError:
        raise Refused(f"{file} exists and is not changed; name another file") from None
    # As a module in this folder, else by its path.
    target = file.stem if file.parent == Path() else str(file)
    following = [f"penstock run {target}:add 2 3", f"penstock dev {target}"]
    if json:
        output.print_json({"file": str(file), "next": following})
        return
    output.print_text(f"{file} has a first task. Now:")
    output.print_text(f"  {following[0]:<32}  stores a job, runs it, prints 5")
    output.print_text(f"  {following[1]:<32}  a worker that reloads when you change the file")


def dev(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="TARGET",
            help="The app: module:app, a module, or a file. Default: app in penstock.toml, else "
            "tasks.py.",
            show_default=False,
        ),
    ] = None,
    *,
    manager: Annotated[
        bool,
        typer.Option(
            "--manager", help="Also run a manager, for receivers; everything goes through it."
        ),
    ] = False,
    log_format: LogFormat = "text",
    url: Url = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Run a worker that reloads when a file changes, and the dashboard.

    Example: penstock dev tasks:app
    """
    from penstock.app.log_lines import LogOutput, log_to_stderr
    from penstock.app.settings import resolve_app_target
    from penstock.cli import output
    from penstock.cli.store_choice import use_store

    log_to_stderr(LogOutput("warning", log_format))
    target = target or resolve_app_target()
    if target is None:
        if not Path("tasks.py").is_file():
            raise Refused(
                "there is no tasks.py: name the app, for example myapp:app, or run penstock init"
            )
        target = "tasks"
    command = [sys.executable, "-m", "penstock", "worker", target, "--processes", "1"]
    command += ["--grace", "3s", "--log-level", "warning", "--log-format", log_format]
    command += ["--json"] if json else []
    folder = Path.cwd()
    before = signal.signal(signal.SIGTERM, _exit)
    pages = _Pages(target, log_format, json=json)
    try:
        with use_store(url, profile), _lent(manager, log_format, json=json):
            while True:
                seen = _modified(folder)
                pages.start()
                changed = _work_until_changed(command, folder, seen)
                if not json:
                    output.print_note(f"{changed} changed: starting again", "cyan")
    except KeyboardInterrupt:
        pages.end(interrupted=True)
        raise typer.Exit(130) from None
    finally:
        pages.end()
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _lent(wanted: bool, log_format: str, *, json: bool) -> Generator[None]:
    """With a manager of the store that was chosen, everything started meanwhile goes through it."""
    if not wanted:
        yield
        return
    import msgspec

    from penstock.brokers import need_driver
    from penstock.brokers.schemes import REMOTE
    from penstock.cli import output
    from penstock.cli.store_choice import use_store

    need_driver(REMOTE)
    command = [sys.executable, "-m", "penstock", "manager", "--listen", "127.0.0.1:0", "--json"]
    process = subprocess.Popen(
        [*command, "--log-format", log_format], stdout=subprocess.PIPE, text=True
    )
    try:
        line = "" if process.stdout is None else process.stdout.readline()
        if not line:
            raise Refused("the manager did not start: its reason stands above")
        address = msgspec.json.decode(line, type=dict[str, str])["url"]
        if json:
            output.print_json({"event": "manager", "url": address})
        else:
            output.print_note(f"manager: {address}", "cyan")
        with use_store(address, None):
            yield
    finally:
        _end(process, interrupted=False)


class _Pages:
    """The dashboard, in a process of its own, with a token for this run."""

    def __init__(self, target: str, log_format: str, *, json: bool) -> None:
        self._command = [sys.executable, "-m", "penstock", "dashboard", target, "--json"]
        self._command += ["--log-format", log_format]
        self._json = json
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it unless it runs; a thread prints its address."""
        from importlib.util import find_spec

        if self._process is not None and self._process.poll() is None:
            return
        if any(find_spec(module) is None for module in ("starlette", "jinja2", "uvicorn")):
            if not self._json and self._process is None:
                from penstock.cli import output

                output.print_note("no dashboard: pip install 'penstock-queue[web]'")
            return
        from penstock.cli.dashboard import token_for_now

        entry, text = token_for_now()
        environment = os.environ
        if entry is not None:
            environment = {**environment, "PENSTOCK_DASHBOARD_TOKENS": entry}
        self._process = subprocess.Popen(
            self._command, env=environment, stdout=subprocess.PIPE, text=True
        )
        threading.Thread(
            target=self._print_address, args=(self._process, text), daemon=True
        ).start()

    def _print_address(self, process: subprocess.Popen[str], text: str | None) -> None:
        import msgspec

        from penstock.cli import output

        line = "" if process.stdout is None else process.stdout.readline()
        if not line:
            return  # it printed the reason to stderr
        address = msgspec.json.decode(line, type=dict[str, str | None])["url"]
        token = "" if text is None else f"?token={text}"
        if self._json:
            output.print_json({"event": "dashboard", "url": f"{address}{token}"})
        else:
            output.print_note(f"dashboard: {address}{token}", "cyan")

    def end(self, *, interrupted: bool = False) -> None:
        process, self._process = self._process, None
        if process is not None:
            _end(process, interrupted=interrupted)
            if process.stdout is not None:
                process.stdout.close()


def _work_until_changed(command: list[str], folder: Path, seen: dict[str, float]) -> str:
    """Run the worker until a file changes; returns that file, after the worker has stopped."""
    from penstock.cli import output

    worker = subprocess.Popen(command)
    noted = False
    try:
        while (changed := _changed(seen, _modified(folder))) is None:
            if worker.poll() is not None and not noted:
                noted = True
                output.print_note("the worker has ended; waiting for a change", "yellow")
            time.sleep(_LOOK_SECONDS)
        return changed
    finally:
        _end(worker, interrupted=isinstance(sys.exception(), KeyboardInterrupt))


def _end(worker: subprocess.Popen[Any], *, interrupted: bool) -> None:
    """Stop the worker. It got a Ctrl-C of the terminal, too; a second signal would mean "now"."""
    if not interrupted:
        worker.terminate()
    for seconds in (6, 15):
        try:
            worker.wait(seconds)
        except subprocess.TimeoutExpired:
            worker.terminate()
        else:
            return
    worker.kill()
    worker.wait()


def _exit(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise typer.Exit(0)


def _modified(folder: Path) -> dict[str, float]:
    """Modification times of the folder's Python files."""
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
