"""Arrow, which says nothing about its types: whoever uses it takes it from here, as Any."""

from __future__ import annotations

from importlib import import_module
from typing import Any

arrow: Any = import_module("pyarrow")
compute: Any = import_module("pyarrow.compute")
types: Any = import_module("pyarrow.types")
