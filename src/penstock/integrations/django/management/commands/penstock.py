"""manage.py penstock: every command of `penstock`, for the project's own store and tasks.

The store is that of Django's settings, as of the app: nothing else needs to be configured.
"""

# Django brings no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand

TARGET = "penstock.integrations.django.worker:app"
_TAKES_TARGET = ("dashboard", "dev", "spark-worker", "worker")
_NO_STORE = ("bench", "demo", "init", "spark")


class EveryCommand(BaseCommand):
    """Every command of penstock."""

    help = "Commands of penstock on this project's store: manage.py penstock find state:failed."

    def run_from_argv(self, argv: list[str]) -> None:
        # Processes that it starts find the project where manage.py is, wherever they are started.
        paths = [str(Path(argv[0]).resolve().parent), os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        self.handle(*argv[2:])

    def handle(self, *args: Any, **options: Any) -> None:
        from penstock.cli.root import root

        del options
        sys.argv[0] = "manage.py penstock"
        root(args=words_with_app([str(arg) for arg in args]))


Command = EveryCommand  # the name that Django looks for


def words_with_app(words: list[str]) -> list[str]:
    """The words as `penstock` takes them, with the project's app where the command takes one."""
    from penstock.cli.root import root

    if not words or words[0].startswith("-") or "--help" in words:
        return words
    command, *rest = words
    if command in _TAKES_TARGET and not (rest and not rest[0].startswith("-")):
        return [command, TARGET, *rest]
    chosen = any(word.partition("=")[0] in {"--app", "--url", "--profile"} for word in rest)
    if command in (*_TAKES_TARGET, *_NO_STORE) or chosen:
        return words
    takes_app = any(
        each.name == command and _has_app(each.callback) for each in root.registered_commands
    )
    return [command, "--app", TARGET, *rest] if takes_app else words


def _has_app(command: Any) -> bool:
    import inspect

    return "app" in inspect.signature(command).parameters
