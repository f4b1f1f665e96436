"""pyarrow as Any, since it ships no type annotations."""

from __future__ import annotations

from importlib import import_module
from typing import Any

arrow: Any = import_module("pyarrow")
compute: Any = import_module("pyarrow.compute")
types: Any = import_module("pyarrow.types")
