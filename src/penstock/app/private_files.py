"""Files at paths that others can predict: no link is followed, and what is not ours is refused.

Whoever may write to a folder can lay a link, a pipe or a file of theirs at a name before us. So a
name is opened first, and what was opened is looked at then: never the name, which may lead
elsewhere by now. A file is cut only after that look, and so never opened with O_TRUNC.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.errors import Refused

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_PASSED = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
# Opening a pipe would wait for its other end.
_CAREFUL = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_LINK = {errno.ELOOP, errno.EMLINK}  # as kernels say that O_NOFOLLOW met one
_OTHERS_WRITE = 0o022


def is_ours(status: os.stat_result) -> bool:
    """Whether it is ours, and nobody else may write to it."""
    return status.st_uid == os.geteuid() and not status.st_mode & _OTHERS_WRITE


def is_credible(path: Path) -> bool:
    """Whether a file that was found was put there by somebody who may decide for us.

    Where everybody may write, that is root and ourselves; elsewhere whoever owns the folder.
    """
    try:
        shared = path.parent.stat().st_mode & stat.S_IWOTH
        return not shared or path.lstat().st_uid in {0, os.geteuid()}
    except OSError:
        return False


@contextmanager
def private_folder(path: Path, remedy: str, *, make: bool = True) -> Generator[int]:
    """A descriptor of a folder that is ours alone; made if need be, and refused if it is not ours.

    One of ours that others may write to is closed to them: what they laid there before is refused
    file by file. `remedy` says how another folder is chosen.
    """
    folder = _walked(path.absolute(), remedy, make=make)
    try:
        status = os.fstat(folder)
        if status.st_uid != os.geteuid():
            raise _foreign(path, status, remedy)
        if status.st_mode & _OTHERS_WRITE:
            os.fchmod(folder, stat.S_IMODE(status.st_mode) & ~_OTHERS_WRITE)
        yield folder
    finally:
        os.close(folder)


def open_own(name: str | Path, flags: int, folder: int | None = None, *, shown: str = "") -> int:
    """Open a file of ours, or make it, readable by nobody else; see `open_regular`."""
    return open_regular(
        name, flags, folder, owners={os.geteuid()}, single=True, mode=0o600, shown=shown
    )


def open_regular(
    name: str | Path,
    flags: int,
    folder: int | None = None,
    *,
    owners: Collection[int] | None = None,
    single: bool = False,
    mode: int = 0o600,
    shown: str = "",
) -> int:
    """A descriptor of a regular file of one of these owners; a link is not followed.

    `folder` is the descriptor of the folder that it is in. `single`: refuse a file that has a
    second name, which may be somebody's file elsewhere. `shown` is its path, for people.
    """
    shown = shown or str(name)
    try:
        file = os.open(name, flags | _CAREFUL, mode, dir_fd=folder)
    except OSError as error:
        if error.errno in _LINK:
            raise Refused(f"{shown} is a link, and is not followed: remove it") from None
        if error.errno == errno.ENXIO:  # a pipe without a reader, or a socket
            raise Refused(f"{shown} is no regular file: remove it") from None
        raise
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise Refused(f"{shown} is no regular file: remove it")
        if owners is not None and status.st_uid not in owners:
            raise Refused(
                f"{shown} belongs to the user {status.st_uid}, and is left alone: remove it"
            )
        if single and status.st_nlink > 1:
            raise Refused(f"{shown} is the same file as one elsewhere (a hard link): remove it")
        os.set_blocking(file, True)
    except BaseException:
        os.close(file)
        raise
    return file


def open_below(root: Path, *parts: str) -> int:
    """A file below a folder, to be read: no link on the way, and of the folder's owner or ours."""
    folder = os.open(root, _FOLDER)
    shown = root
    try:
        owners = {os.fstat(folder).st_uid, os.geteuid()}
        for part in parts[:-1]:
            shown /= part
            try:
                below = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
            except NotADirectoryError:  # what Linux says of a link, too
                raise Refused(f"{shown} is no folder, or a link to one") from None
            os.close(folder)
            folder = below
        name = str(shown / parts[-1])
        return open_regular(parts[-1], os.O_RDONLY, folder, owners=owners, single=True, shown=name)
    finally:
        os.close(folder)


def write_new(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Write a file that is new, in place of whatever lies at its name: to be moved from there."""
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o666), "wb") as file:
        file.write(data)
        file.flush()
        if sync:
            os.fsync(file.fileno())


def _walked(path: Path, remedy: str, *, make: bool) -> int:
    """Go down to a folder. What lies where everybody may write must be ours, or root's."""
    shown = Path(path.anchor)
    folder = os.open(shown, _PASSED)
    try:
        for part in path.parts[1:]:
            shown /= part
            shared = os.fstat(folder).st_mode & stat.S_IWOTH
            found = _found(part, folder, make=make)
            last = shown == path
            if last and stat.S_ISLNK(found.st_mode):
                raise Refused(f"{shown} is a link, and is not followed: remove it, or {remedy}")
            flags = _FOLDER | os.O_NOFOLLOW if last else _PASSED
            below = os.open(part, flags, dir_fd=folder)
            os.close(folder)
            folder = below
            for status in (found, os.fstat(folder)):
                if shared and status.st_uid not in {0, os.geteuid()}:
                    raise _foreign(shown, status, remedy)
    except BaseException:
        os.close(folder)
        raise
    return folder


def _found(name: str, folder: int, *, make: bool) -> os.stat_result:
    """What a name is, in a folder; made a folder if there is none."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        if not make:
            raise
    with suppress(FileExistsError):  # another process was quicker
        os.mkdir(name, 0o700, dir_fd=folder)
    return os.stat(name, dir_fd=folder, follow_symlinks=False)


def _foreign(path: Path, status: os.stat_result, remedy: str) -> Refused:
    return Refused(
        f"{path} belongs to the user {status.st_uid}, who could change what is in it: remove it, "
        f"or {remedy}"
    )
