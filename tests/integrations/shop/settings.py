"""Settings of the shop: one database on PostgreSQL, one in a file, both said by the tests."""

import os
from urllib.parse import urlsplit

_parts = urlsplit(os.environ["SHOP_POSTGRES"])

SECRET_KEY = "not a secret"
USE_TZ = True
INSTALLED_APPS = ["penstock.integrations.django", "django_tasks", "tests.integrations.shop"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _parts.path.lstrip("/"),
        "USER": _parts.username,
        "PASSWORD": _parts.password or "",
        "HOST": _parts.hostname,
        "PORT": _parts.port,
        "OPTIONS": {"connect_timeout": 5, "pool": False},
    },
    "file": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["SHOP_FILE"]},
}
TASKS = {
    "default": {
        "BACKEND": "penstock.integrations.django.backend.PenstockBackend",
        "QUEUES": ["default", "mail"],
    }
}
PENSTOCK = {"DATABASE": os.environ.get("SHOP_DATABASE", "default")}
