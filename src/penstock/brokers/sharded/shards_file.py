"""The file that names the shards: a table of URLs in TOML.

    [shards]
    a = "postgresql://penstock@db-1/jobs"
    b = "postgresql://penstock@db-2/jobs"

It may be penstock.toml itself. Paths of SQLite files are beside the file. Each client has its own:
passwords stay there, the stores keep only the names. The URL names the file, and may say which of
the shards its client takes jobs from: `shards:///srv/shards.toml?claim=a,b`.
"""

from __future__ import annotations

import contextlib
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

from penstock.app.clock import AnyClock
from penstock.app.private_files import is_credible
from penstock.app.settings import anchor, mask
from penstock.broker.protocol import Broker
from penstock.brokers.schemes import REMOTE, SHARDS, in_process, is_ours
from penstock.brokers.sharded import ShardedBroker, open_sharded
from penstock.brokers.sharded.shards import Opens
from penstock.errors import Refused, WrongUrl

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_CLAIM = "claim="
_EXAMPLE = 'a = "postgresql://user@host/database"'


def open_file(
    url: str,
    open_store: Callable[..., Broker],
    clock: AnyClock | None = None,
    *,
    create: bool = True,
) -> ShardedBroker:
    """The shards that the file of this URL names."""
    path = path_in(url)

    def opens() -> dict[str, Opens]:
        named = read_shards(path)
        return {name: _opening(open_store, each, clock) for name, each in named.items()}

    read: list[Any] = [opens(), _changed_at(path)]

    def more() -> dict[str, Opens]:
        """What the file names by now; as before, while it is being written or cannot be read."""
        if (changed := _changed_at(path)) != read[1]:
            with contextlib.suppress(Refused):
                read[:] = [opens(), changed]
        return read[0]

    return open_sharded(read[0], clock, create=create, more=more, claim_from=claim_from(url))


def _opening(open_store: Callable[..., Broker], url: str, clock: AnyClock | None) -> Opens:
    def opens(create: bool) -> Broker:
        try:
            return open_store(url, clock, create=create)
        except Refused as error:
            if create or is_ours(url):
                raise
            raise WrongUrl(str(error)) from error  # so others say that there is no store yet

    return opens


def _changed_at(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None


def urls_in(url: str) -> dict[str, str]:
    """The URLs of the shards by name."""
    return read_shards(path_in(url))


def path_in(url: str) -> Path:
    """The file that a URL of shards names."""
    path, _, query = url.removeprefix(SHARDS).partition("?")
    if not path or (query and not query.startswith(_CLAIM)):
        raise Refused(
            f"{mask(url)}: write shards:///path/to/shards.toml, or with ?claim=a,b to take jobs "
            "from these shards alone"
        )
    return Path(unquote(path))


def claim_from(url: str) -> frozenset[str] | None:
    """The shards that a client with this URL takes jobs from; None: all."""
    _, _, query = url.partition("?")
    if not query:
        return None
    names = frozenset(unquote(query.removeprefix(_CLAIM)).split(","))
    if unknown := names - urls_in(url).keys():
        raise Refused(
            f"{mask(url)}: the file of shards names no {min(unknown)!r}; there are "
            f"{', '.join(urls_in(url))}"
        )
    return names


def read_shards(path: Path) -> dict[str, str]:
    """The URLs of the shards by name, in the order of the names."""
    try:
        # Whoever may write to it decides where jobs go.
        text = path.read_text(encoding="utf-8")
        table: Any = tomllib.loads(text) if is_credible(path) else None
    except FileNotFoundError:
        raise Refused(
            f"there is no file of shards {path}; a path from the root has four slashes,"
            " shards:////srv/shards.toml"
        ) from None
    except OSError as error:
        raise Refused(f"the file of shards {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Refused(f"the file of shards {path} cannot be read: {error}") from error
    if table is None:
        raise Refused(
            f"the file of shards {path} is somebody else's, in a folder where everybody may write:"
            " move it to one of yours"
        )
    named: Any = table.get("shards")
    if not isinstance(named, dict) or not named:
        raise Refused(f"{path} has no table [shards]: write in it a line for each, {_EXAMPLE}")
    urls: dict[str, str] = {}
    for name, url in sorted(cast("dict[str, Any]", named).items()):
        urls[name] = _checked(path, name, url)
    return urls


def _checked(path: Path, name: str, url: object) -> str:
    if not _NAME.fullmatch(name):
        raise Refused(
            f"{path}: {name[:60]!r} is no name of a shard: a letter, then up to 31 letters, digits,"
            " - and _, all of them small"
        )
    if not isinstance(url, str):
        raise Refused(f"{path}: shard {name} has no URL; write {_EXAMPLE}")
    if in_process(url) or url.startswith((SHARDS, REMOTE)):
        raise Refused(
            f"{path}: shard {name} is {mask(url)}: name the store itself, and one that other "
            "processes can open too"
        )
    return anchor(url, path.parent.absolute())
