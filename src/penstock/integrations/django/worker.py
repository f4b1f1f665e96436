"""The target of workers and of `penstock --app`: Django set up, every task known.

DJANGO_SETTINGS_MODULE=shop.settings penstock worker penstock.integrations.django.worker
"""

# Django brings no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import django

django.setup()

from penstock.integrations.django import app  # noqa: E402  not before Django is set up

__all__ = ["app"]
