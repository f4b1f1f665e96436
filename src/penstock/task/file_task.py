"""`app.file_task(folder)`: a detached task that runs files of a folder, named by their paths.

A row of the store names a file, so whoever writes to the store chooses which one runs: it must be
below a folder that the app names in its code, with no link on the way. That is checked where the
job is made, and again where it runs; what was checked there is what is run.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import inspect
import os
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import chdir
from functools import cached_property
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from penstock.app.private_files import open_below
from penstock.enqueue.codec import ArgumentCodec
from penstock.errors import Refused
from penstock.run.current import current_job
from penstock.task.task import PlainTask

if TYPE_CHECKING:
    from penstock.app.app import App

P = ParamSpec("P")
R = TypeVar("R")

FUNCTION = "main"  # what is called in a file
MODULE = "penstock_file"  # its name while it runs


class NoFunction(Exception):
    """The file has no function to call, and so no outcome."""


def folders_of(given: Sequence[str | os.PathLike[str]]) -> tuple[Path, ...]:
    """The folders whose files may run; absolute, so that no process means others by them."""
    if not given:
        raise Refused('app.file_task(): name the folder whose files may run: "/srv/etl"')
    folders = tuple(Path(folder) for folder in given)
    for folder in folders:
        if not folder.is_absolute() or ".." in folder.parts or folder == Path(folder.anchor):
            raise Refused(
                f"app.file_task({str(folder)!r}): write a folder as an absolute path without .., "
                'as "/srv/etl" or Path(__file__).resolve().parent / "etl"'
            )
    return folders


def is_below(file: str, folders: Sequence[Path]) -> bool:
    """Whether the path leads into one of these folders, as far as its text says."""
    path = Path(file)
    return any(path != folder and path.is_relative_to(folder) for folder in folders)


def checked_source(folders: Sequence[Path], file: str) -> bytes:
    """What is in the file; Refused unless it is a readable file of ours below one of the folders.

    Of two folders, one in the other, the inner one counts: below it there must be no link.
    """
    path = Path(file)
    if not path.is_absolute() or ".." in path.parts or not file.isprintable():
        raise Refused(f"{file!r}: write the file as an absolute path without ..")
    allowed = [folder for folder in folders if is_below(file, [folder])]
    if not allowed:
        listed = ", ".join(map(str, folders))
        raise Refused(
            f"{file} is in no folder whose files this app runs ({listed}): move it there, or name "
            "its folder in app.file_task(...)"
        )
    folder = max(allowed, key=lambda each: len(each.parts))
    try:
        descriptor = open_below(folder, *path.relative_to(folder).parts)
    except FileNotFoundError:
        raise Refused(f"{file}: there is no such file on this host") from None
    except OSError as error:
        raise Refused(f"{file} cannot be read here: {error.strerror or error}") from error
    with os.fdopen(descriptor, "rb") as opened:
        if os.fstat(descriptor).st_mode & stat.S_IWOTH:
            raise Refused(f"{file} can be changed by every user of this host: chmod o-w {file}")
        return opened.read()


class FileTask(PlainTask[P, R]):
    """A task whose jobs name a file of these folders, and the arguments of its function."""

    folders: tuple[Path, ...] = ()

    @cached_property
    def codec(self) -> ArgumentCodec:
        """How its arguments are stored; a wrong file is refused."""
        return _FileCodec(self.folders, self.function)


class _FileCodec(ArgumentCodec):
    def __init__(self, folders: Sequence[Path], function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._folders = folders

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        body = super().encode(args, kwargs)
        checked_source(self._folders, args[0] if args else kwargs["file"])
        return body


def function_for(app: App, folders: Sequence[Path]) -> Callable[..., Any]:
    """The function of the task."""

    def run_file(file: str, /, **arguments: Any) -> Any:
        """Call the function `main` of this file."""
        from penstock.run.attempt import Unreadable

        try:
            source = checked_source(folders, file)
        except Refused as error:  # no attempt will make it right
            raise Unreadable(str(error)) from error
        with chdir(_work_folder(app)):
            return _call(Path(file), source, arguments)

    return run_file


def _work_folder(app: App) -> Path:
    """A folder of the running job's own, the same in every attempt on this host."""
    from penstock.worker.detached.state_folder import StateFolder, state_folder

    return StateFolder(state_folder(app.resolved_url.url)).work_folder(current_job().id)


def _call(path: Path, source: bytes, arguments: Mapping[str, Any]) -> Any:
    module = _loaded(path, source)
    function = getattr(module, FUNCTION, None)
    if not callable(function):
        raise NoFunction(
            f"{path} has no function {FUNCTION}: what it returns is the outcome of the job, and "
            "without an outcome the job is not done"
        )
    value = function(**arguments)
    if inspect.iscoroutine(value):
        import asyncio

        return asyncio.run(value)
    return value


class _Loader(importlib.abc.InspectLoader):
    """Loads what was read and checked, not what the path leads to by now."""

    def __init__(self, path: Path, source: bytes) -> None:
        self._path = path
        self._source = source

    def get_source(self, fullname: str) -> str:
        del fullname
        return importlib.util.decode_source(self._source)

    def get_code(self, fullname: str) -> CodeType:
        del fullname
        return self.source_to_code(self._source, str(self._path))

    def is_package(self, fullname: str) -> bool:
        del fullname
        return False


def _loaded(path: Path, source: bytes) -> ModuleType:
    loader = _Loader(path, source)
    module = importlib.util.module_from_spec(ModuleSpec(MODULE, loader, origin=str(path)))
    module.__file__ = str(path)
    # Last, so that what stands beside the file does not hide what is installed.
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    sys.modules[MODULE] = module
    loader.exec_module(module)
    return module
