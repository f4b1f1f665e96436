"""Settings of object stores: names and values of the `deltalake` package, most of them secrets."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote

from penstock.errors import Refused

VARIABLE = "PENSTOCK_STORAGE_OPTIONS"
_SECRET = re.compile(r"key|secret|token|password|sas|credential|account_json", re.IGNORECASE)


def parse_options(given: Iterable[str]) -> dict[str, str]:
    """Options by name, from texts as AWS_REGION=eu-west-1."""
    options: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            # Not shown: it may be a key.
            raise Refused(
                f"--storage-option and {VARIABLE}: a name and a value, as in AWS_REGION=eu-west-1"
            )
        options[name] = value
    return options


def options_of_environment() -> dict[str, str]:
    """Those that every process finds where it runs, separated by spaces."""
    return parse_options(os.environ.get(VARIABLE, "").split())


def without_secrets(text: str, options: Mapping[str, str]) -> str:
    """A text of the storage's, without values that are secret."""
    for name, value in options.items():
        if value and _SECRET.search(name):
            text = text.replace(value, "***").replace(quote(value, safe=""), "***")
    return text
