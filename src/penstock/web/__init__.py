"""The dashboard and its REST: an ASGI application over any broker. Needs the extra `web`.

    app.mount("/jobs", dashboard(jobs, access=whoever))

Closed by default: nobody is let in whom `access` does not name, every route declares the role it
needs, and what a role may do is checked at the verb (`verbs`), not at the page.

    guard (host, origin, who) --> routes (role) --> pages | rest --> verbs (role again) --> broker
"""

from __future__ import annotations

from collections.abc import Collection
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import Refused

if TYPE_CHECKING:
    from penstock.app.app import App
    from penstock.broker.protocol import Broker
    from penstock.web.access import Access
    from penstock.web.site import Dashboard

LOOPBACK = ("localhost", "127.0.0.1", "::1")


def dashboard(
    store: App | Broker,
    *,
    access: Access,
    hosts: Collection[str] | None = LOOPBACK,
    prefix: str = "",
    read_only: bool = False,
    hide_arguments: bool = False,
    where: str = "",
    url: str | None = None,
    lake: Path | None = None,
    metrics: bool = False,
) -> Dashboard:
    """The dashboard of a store, as an ASGI application.

    `access` says who asks: `Tokens`, or any function of a request that returns a `Person`, or None
    for somebody unknown. `hosts` are the names under which it may be asked for; None leaves that to
    the application around it. `prefix` is the path at which a proxy in front serves it; below a
    mount it is known already. `read_only` makes everybody a viewer, and with `hide_arguments`
    nobody sees what jobs carry. `where` is what pages say of the store. `url` lets the doctor look
    at the store from outside; of an App it is known already. `lake` is a folder whose last report
    is shown, and `metrics` are for Prometheus (extra `metrics`).
    """
    need_web()
    from penstock.web.site import Dashboard

    return Dashboard(
        store,
        access=access,
        hosts=hosts,
        prefix=prefix,
        read_only=read_only,
        hide_arguments=hide_arguments,
        where=where,
        url=url,
        lake=lake,
        metrics=metrics,
    )


def need_web() -> None:
    """Refuse in a sentence where what the dashboard needs is not installed."""
    for module in ("starlette", "jinja2", "uvicorn"):
        if find_spec(module) is None:
            raise Refused(f"the dashboard needs {module}: pip install 'penstock-queue[web]'")
