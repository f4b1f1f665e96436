"""The back office, in Django, on the database of the shop."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

URL = os.environ.get("PENSTOCK_URL", "sqlite:///shop.db")


def database(url: str) -> dict[str, Any]:
    """The URL as Django writes it."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": url.removeprefix("sqlite:///")}
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path[1:],
        "USER": parts.username,
        "PASSWORD": parts.password,
        "HOST": parts.hostname,
        "PORT": parts.port,
    }


SECRET_KEY = "only for the tests"
INSTALLED_APPS = ["penstock.integrations.django", "office"]
DATABASES = {"default": database(URL)}
USE_TZ = True
