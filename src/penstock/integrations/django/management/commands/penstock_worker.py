"""manage.py penstock_worker: `penstock worker`, with the same options, for Django's tasks."""

# Django brings no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand

TARGET = "penstock.integrations.django.worker:app"


class Command(BaseCommand):
    """Run jobs until it is stopped."""

    help = "Runs jobs: a supervisor and its child processes. Options as those of penstock worker."

    def run_from_argv(self, argv: list[str]) -> None:
        # Its children find the project where manage.py is, wherever they are started.
        paths = [str(Path(argv[0]).resolve().parent), os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        self.handle(*argv[2:])

    def handle(self, *args: Any, **options: Any) -> None:
        from penstock.cli.root import root

        del options
        sys.argv[0] = "manage.py penstock_worker"
        root(args=["worker", TARGET, *args])
