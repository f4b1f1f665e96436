"""What Django does with the app when it starts, and when it migrates."""

# Django brings no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate
from django.utils.module_loading import autodiscover_modules

from penstock.integrations.django import app, is_in_memory


class PenstockConfig(AppConfig):
    """Imports `tasks` of every installed app; `manage.py migrate` brings the store forward."""

    name = "penstock.integrations.django"
    label = "penstock"

    def ready(self) -> None:
        autodiscover_modules("tasks")
        post_migrate.connect(_migrate, sender=self)


def _migrate(using: str, **_: Any) -> None:
    """Create the store's tables, outside any transaction: inside one SQLite could not."""
    if app.alias != using or is_in_memory(using):
        return
    _store = app.broker  # opening it creates the tables
    app.close()  # a connection that stays open would keep a test's database from being dropped
