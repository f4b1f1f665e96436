"""Options that several commands share, spelled the same everywhere; and who the caller is."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, NamedTuple, get_type_hints

import typer

from penstock.broker.checks import legible
from penstock.operate.roles import Person, Role

Url = Annotated[
    str | None,
    typer.Option(
        "--url", help="The store's URL, for example sqlite:///jobs.db.", show_default=False
    ),
]
Profile = Annotated[
    str | None,
    typer.Option("--profile", help="Use this profile of penstock.toml.", show_default=False),
]
AppTarget = Annotated[
    str | None,
    typer.Option("--app", help="The app, for example tasks:app.", show_default=False),
]


class Store(NamedTuple):
    """The options that choose the store."""

    url: Url = None
    profile: Profile = None
    app: AppTarget = None


LogLevel = Annotated[str, typer.Option(help="debug, info, warning or error.")]
LogFormat = Annotated[str, typer.Option(help="text, or json: one object per line.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs; times in UTC.")]
Reason = Annotated[str, typer.Option("--reason", help="Why you do this; kept in the history.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]

# Words such as -5 and -task:ping are values, so the option parser must ignore them. For the same
# reason no option has a one-letter form: -task:shop would be read as -t, -a, -s, -k and so on.
TAKES_WORDS = {"ignore_unknown_options": True}

_NUMBER = re.compile(r"-\d|-\.\d|-Infinity")


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each NamedTuple parameter of the command by its fields, as options."""
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []

    def add(name: str, annotation: Any, default: Any) -> None:
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter(name, kind, default=default, annotation=annotation))

    written, hints = inspect.signature(command).parameters, _hints(command)
    for name, parameter in written.items():
        if isinstance(hints[name], type) and issubclass(hints[name], tuple):
            groups[name] = group = hints[name]
            for field, annotation in _hints(group).items():
                add(field, annotation, group._field_defaults[field])
        else:
            add(name, hints[name], parameter.default)

    @wraps(command)
    def grouped(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(*(given.pop(field) for field in group._fields))
        command(**given)

    grouped.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue]  what typer reads
    grouped.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return grouped


def _hints(annotated: Any) -> dict[str, Any]:
    return get_type_hints(annotated, include_extras=True)


def reject_unknown_options(words: list[str]) -> list[str]:
    """The words; refused if one of them looks like an option."""
    for word in words:
        if word.startswith("--") or (
            word.startswith("-") and ":" not in word and not _NUMBER.match(word) and len(word) > 1
        ):
            raise typer.BadParameter(f"no such option: {word}; --help lists the options")
    return words


def author() -> str:
    """The user's name, for the history."""
    import getpass

    try:
        return legible(getpass.getuser())
    except (KeyError, OSError):  # no such user here, as in many containers
        return f"user {os.getuid()}"


def person(name: str | None = None, *, admin: bool = False) -> Person:
    """The caller. The role is what they claim: who can open the store can do anything to it."""
    return Person(author() if name is None else name, Role.ADMIN if admin else Role.OPERATE)
