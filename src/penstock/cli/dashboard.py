"""dashboard: serve the pages and REST of a store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import Json, LogFormat, Profile, Url, author

if TYPE_CHECKING:
    import socket

    from penstock.app.app import App
    from penstock.broker.protocol import Broker
    from penstock.operate.alert_watch import AlertWatch
    from penstock.web.oidc import OidcLogin
    from penstock.web.serve import DashboardServer, DashboardTokens
    from penstock.web.site import Dashboard
    from penstock.web.store_opening import StoreOpening


def dashboard(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="TARGET",
            help="The app: module:app, a module, or a file. Needed only to enqueue jobs.",
            show_default=False,
        ),
    ] = None,
    *,
    bind: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            help="The port; if it is in use, the next free one. 0: any.", min=0, max=65535
        ),
    ] = 8484,
    host_name: Annotated[
        list[str] | None,
        typer.Option(help="Also serve this host name; may be repeated.", show_default=False),
    ] = None,
    prefix: Annotated[
        str, typer.Option(help="The path under which a reverse proxy serves it.")
    ] = "",
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Nobody can change anything, whatever the role.")
    ] = False,
    hide_arguments: Annotated[
        bool, typer.Option("--hide-arguments", help="Hide arguments and results from everybody.")
    ] = False,
    token_file: Annotated[
        Path | None, typer.Option(help="A file of name:role:token lines.", show_default=False)
    ] = None,
    new_token: Annotated[
        bool, typer.Option("--new-token", help="Make a new token; the old one is void.")
    ] = False,
    tls_certificate: Annotated[
        Path | None,
        typer.Option(help="Serve HTTPS with this certificate chain (PEM).", show_default=False),
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(help="The key of the certificate.", show_default=False)
    ] = None,
    plain_http: Annotated[
        bool,
        typer.Option(
            "--plain-http",
            help="Allow an address other than loopback without TLS: only a TLS proxy can connect.",
        ),
    ] = False,
    lake: Annotated[
        Path | None,
        typer.Option(help="A lake's folder: show its last report.", show_default=False),
    ] = None,
    metrics: Annotated[
        bool,
        typer.Option("--metrics", help="Serve /metrics for Prometheus; it needs a token, too."),
    ] = False,
    log_format: LogFormat = "text",
    open_: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    url: Url = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Serve the dashboard and REST of a store, to callers with a token.

    By default it listens on this machine only, and prints an address with a new token.

    Example: penstock dashboard --read-only
    """
    from penstock.app.log_lines import LogOutput, log_to_stderr
    from penstock.app.settings import alert_settings, dashboard_settings, mask
    from penstock.cli.store_choice import (
        check_not_memory,
        opener,
        print_store,
        store_url,
        use_store,
    )
    from penstock.operate.alert_watch import AlertWatch
    from penstock.operate.alerts import parse_alerts
    from penstock.web import LOOPBACK, dashboard, need_web

    log_to_stderr(LogOutput("warning", log_format))
    need_web()
    from penstock.web.access import Tokens
    from penstock.web.serve import (
        DashboardServer,
        check_bind,
        listen,
        load_or_make_tokens,
        load_tls,
    )
    from penstock.web.store_opening import StoreOpening

    tls = load_tls(tls_certificate, tls_key)
    settings = parse_alerts(*alert_settings())
    oidc = _oidc(*dashboard_settings())

    def serve(open_store: Callable[[], Broker], where: str, app: App | None) -> None:
        keys = load_or_make_tokens(where, author(), file=token_file, anew=new_token)
        check_bind(bind, keys, tls=tls, plain_http=plain_http, oidc=oidc is not None)
        access = Tokens(keys.tokens, oidc=oidc)
        opening = StoreOpening(open_store, app)
        alerts = AlertWatch(settings, lambda: opening.broker, mask(where))
        site = dashboard(
            opening,
            access=access,
            hosts=(*LOOPBACK, bind, *(host_name or ())),
            prefix=prefix,
            read_only=read_only,
            hide_arguments=hide_arguments,
            where=mask(where),
            url=where,
            lake=lake,
            metrics=metrics,
            alerts=alerts,
        )
        with listen(bind, port) as listening:
            address = f"{'http' if tls is None else 'https'}://{_bound_to(listening)}"
            address += f"{prefix.rstrip('/')}/"
            _print_address(address, listening, port, keys, where=mask(where), json=json)
            if open_:
                # Other users can see a browser's command line: it gets a one-time ticket.
                ticket = None if keys.kept is None else access.ticket(keys.tokens[0])
                typer.launch(address if ticket is None else f"{address}?token={ticket}")
            server = DashboardServer(site, tls=tls)
            opening.on_refusal(server.stop)
            _run(server, listening, opening, site, alerts)

    if target is None:
        resolved = store_url(url, profile, None)
        check_not_memory(resolved.url)
        if url is None:
            print_store(resolved)
        serve(opener(resolved), resolved.url, None)
        return
    with use_store(url, profile):
        app = _app(target, url, quiet=json)
        try:
            serve(lambda: app.broker, app.resolved_url.url, app)
        finally:
            app.close()


def _oidc(table: Mapping[str, Any], file: Path | None) -> OidcLogin | None:
    """Login at the provider that penstock.toml names."""
    from importlib.util import find_spec

    from penstock.web.oidc_settings import parse_oidc

    settings = parse_oidc(table.get("oidc"), file)
    if settings is None:
        return None
    if find_spec("jwt") is None:
        from penstock.errors import Refused

        raise Refused(f"{file}: [dashboard.oidc] needs PyJWT: pip install 'penstock-queue[oidc]'")
    from penstock.web.oidc import OidcLogin

    return OidcLogin(settings)


def _run(
    server: DashboardServer,
    listening: socket.socket,
    opening: StoreOpening,
    site: Dashboard,
    alerts: AlertWatch,
) -> None:
    """Serve until it is stopped, with alerts if any are set; then close all of them."""
    if alerts.settings.alerts:
        alerts.start()
    try:
        server.run(sockets=[listening])
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    finally:
        alerts.close()
        site.close()
        opening.close()
    if opening.error is not None:
        raise opening.error


def token_for_now() -> tuple[str | None, str | None]:
    """A token for one run: its line for PENSTOCK_DASHBOARD_TOKENS, and its text.

    None and None if tokens are configured.
    """
    import os

    from penstock.web.access import new_token
    from penstock.web.serve import TOKENS

    if os.environ.get(TOKENS):
        return None, None
    token, text = new_token(author())
    return token.line, text


def _app(target: str, url: str | None, *, quiet: bool) -> App:
    from penstock.cli.store_choice import check_app_url, check_not_memory, import_app, print_store

    app = check_app_url(import_app(target), url)
    check_not_memory(app.resolved_url.url)
    if url is None and not quiet:
        print_store(app.resolved_url)
    return app


def _bound_to(listening: socket.socket) -> str:
    host, port, *_ = listening.getsockname()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _print_address(
    address: str,
    listening: socket.socket,
    wanted: int,
    keys: DashboardTokens,
    *,
    where: str,
    json: bool,
) -> None:
    """Print the address with its token."""
    from penstock.cli import output

    port = listening.getsockname()[1]
    entrance = address if keys.text is None else f"{address}?token={keys.text}"
    if json:
        output.print_json({"url": address, "token": keys.text, "store": where})
        return
    if wanted not in {0, port}:
        output.print_note(f"port {wanted} is in use: using {port}", "yellow")
    if keys.text is not None:
        output.print_note("the token is shown only now; --new-token makes another")
    elif keys.kept is not None:
        output.print_note("use the token that the first start printed; --new-token makes another")
    output.print_text(f"dashboard: {entrance}")
