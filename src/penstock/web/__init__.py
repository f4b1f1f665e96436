"""The dashboard and its REST: an ASGI application over any broker. Needs the extra `web`.

    app.mount("/jobs", dashboard(jobs, access=whoever))

Closed by default: `access` must name a person, every route declares the role it needs, and
`checked_store` checks the role again at each call, whichever page or REST handler makes it.

    guard (host, origin, who) --> routes (role) --> pages | rest --> checked_store (role) --> broker
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
    from penstock.operate.alert_watch import AlertWatch
    from penstock.web.access import Access
    from penstock.web.site import Dashboard
    from penstock.web.store_opening import StoreOpening

LOOPBACK = ("localhost", "127.0.0.1", "::1")


def dashboard(
    store: App | Broker | StoreOpening,
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
    alerts: AlertWatch | None = None,
) -> Dashboard:
    """The dashboard of a store, as an ASGI application.

    `access` identifies the caller: `Tokens`, or any function that takes a request and returns a
    `Person`, or None for an unknown caller. `hosts` are the accepted Host header names; None leaves
    that check to the application around it. `prefix` is the path under which a reverse proxy serves
    it; not needed below a mount. `read_only` limits everybody to the role view; `hide_arguments`
    hides arguments and results from everybody. `where` is the store's name on the pages. `url` lets
    the doctor examine the store from outside; an App's is known. `lake` is a folder whose last
    report is shown. `metrics` serves /metrics for Prometheus (extra `metrics`). `alerts` are shown
    on the page Health; whoever made them starts and closes them.
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
        alerts=alerts,
    )


def need_web() -> None:
    """Refuse if a package of the extra `web` is not installed."""
    for module in ("starlette", "jinja2", "uvicorn"):
        if find_spec(module) is None:
            raise Refused(f"the dashboard needs {module}: pip install 'penstock-queue[web]'")
