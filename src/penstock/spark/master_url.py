"""The URL of a cluster: refused at once if it can be none, before Java starts.

Spark itself says so too, after it has started a JVM, in a Java stack trace.
"""

from __future__ import annotations

import re

from penstock.errors import Refused

_LOCAL = r"local(\[(\d+|\*)(\s*,\s*\d+)?\]|-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\])?"
_HOST = r"[\w.-]+|\[[0-9A-Fa-f:.]+\]"
_STANDALONE = rf"spark://({_HOST}):\d+(,({_HOST}):\d+)*"
_MASTER = re.compile(rf"{_LOCAL}|{_STANDALONE}|yarn|k8s://.+|sc://.+")
_EXAMPLES = "spark://host:7077, local[4], yarn, k8s://https://host:443 or sc://host:15002"


def check_master(master: str) -> None:
    """Refuse what Spark could not connect to, with what is missing if that is clear."""
    if _MASTER.fullmatch(master.strip()):
        return
    hint = ""
    if re.fullmatch(rf"spark://({_HOST})/?", master):
        hint = " It has no port: a standalone master listens on 7077 unless told otherwise."
    elif "://" not in master and re.fullmatch(rf"({_HOST}):\d+", master):
        hint = f" Did you mean spark://{master}?"
    elif master.startswith(("http://", "https://")):
        hint = " That is the address of a web page; its first line shows the spark:// URL."
    raise Refused(f"{master[:200]!r} is not the URL of a cluster, such as {_EXAMPLES}.{hint}")
