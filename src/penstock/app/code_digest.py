"""Which code a program runs: a digest of the source of its packages.

Two workers with different digests are of different releases; one may read arguments that the other
cannot. Read once, when a worker starts: files may be replaced under a running one.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from pathlib import Path


def code_digest(modules: Iterable[str]) -> str:
    """A digest of all loaded modules that share a top-level package with one of these."""
    packages = {name.partition(".")[0] for name in modules} - {"penstock"}
    digest = hashlib.sha256()
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file is None or name.partition(".")[0] not in packages:
            continue
        try:
            source = Path(file).read_bytes()
        except OSError:  # in a zip file, or gone
            source = b""
        digest.update(f"{name} {len(source)}\n".encode() + source)
    return digest.hexdigest()[:16]
