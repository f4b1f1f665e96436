"""The command line: `penstock`, one small file per group of commands.

Commands import what they need when they run: `penstock --help` must not wait for the rest.
"""

from __future__ import annotations


def main() -> None:
    """What `penstock` and `python -m penstock` start."""
    import sys

    from penstock.cli.root import root_for

    root_for(sys.argv[1:])(prog_name="penstock")


__all__ = ["main"]
