"""The dashboard: the pages and the REST of a store, for whoever has a token."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import Json, LogFormat, Profile, Url, author

if TYPE_CHECKING:
    import socket

    from penstock.app.app import App
    from penstock.broker.protocol import Broker
    from penstock.web.serve import DashboardTokens


def dashboard(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="TARGET",
            help="module:app, a module, or a file: then jobs can be enqueued, too.",
            show_default=False,
        ),
    ] = None,
    *,
    bind: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="The port, or the next free one; 0 for any.", min=0, max=65535)
    ] = 8484,
    host_name: Annotated[
        list[str] | None,
        typer.Option(help="A name that it answers to; may be given again.", show_default=False),
    ] = None,
    prefix: Annotated[str, typer.Option(help="The path at which a proxy in front serves it.")] = "",
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Nobody changes anything here.")
    ] = False,
    hide_arguments: Annotated[
        bool, typer.Option("--hide-arguments", help="Nobody sees arguments and results.")
    ] = False,
    token_file: Annotated[
        Path | None, typer.Option(help="A file of name:role:token lines.", show_default=False)
    ] = None,
    new_token: Annotated[
        bool, typer.Option("--new-token", help="Make another token; the one before is void.")
    ] = False,
    lake: Annotated[
        Path | None,
        typer.Option(help="A lake's folder, whose last report is shown.", show_default=False),
    ] = None,
    metrics: Annotated[
        bool, typer.Option("--metrics", help="Serve /metrics for Prometheus, with a token, too.")
    ] = False,
    log_format: LogFormat = "text",
    open_: Annotated[bool, typer.Option("--open", help="Show it in the browser.")] = False,
    url: Url = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Serve the pages and the REST of a store, to whoever has a token; here alone by default.

    Example: penstock dashboard --read-only
    """
    from penstock.app.log_lines import LogOutput, log_to_stderr
    from penstock.app.settings import mask
    from penstock.cli.store_choice import chosen, opened
    from penstock.web import LOOPBACK, dashboard, need_web

    log_to_stderr(LogOutput("warning", log_format))
    need_web()
    from penstock.web.access import Tokens
    from penstock.web.serve import DashboardServer, check_bind, keys_for, listening

    def serve(store: App | Broker, where: str) -> None:
        keys = keys_for(where, author(), file=token_file, anew=new_token)
        check_bind(bind, keys)
        access = Tokens(keys.tokens)
        site = dashboard(
            store,
            access=access,
            hosts=(*LOOPBACK, bind, *(host_name or ())),
            prefix=prefix,
            read_only=read_only,
            hide_arguments=hide_arguments,
            where=mask(where),
            url=where,
            lake=lake,
            metrics=metrics,
        )
        with listening(bind, port) as heard:
            address = _say(heard, port, keys, prefix, where=mask(where), json=json)
            if open_:
                # Whoever lists this machine's processes sees the address that a browser is given.
                ticket = None if keys.kept is None else access.ticket(keys.tokens[0])
                typer.launch(address if ticket is None else f"{address}?token={ticket}")
            try:
                DashboardServer(site).run(sockets=[heard])
            except KeyboardInterrupt:
                raise typer.Exit(130) from None
            finally:
                site.close()

    if target is None:
        from penstock.cli.store_choice import store_url

        with opened(url, profile) as broker:
            serve(broker, store_url(url, profile, None).url)
        return
    with chosen(url, profile):
        app = _app(target, url, quiet=json)
        try:
            serve(app, app.resolved_url.url)
        finally:
            app.close()


def token_for_now() -> tuple[str | None, str | None]:
    """A token that nobody keeps, as another process is told of it, and its text.

    Neither, if somebody said tokens.
    """
    import os

    from penstock.web.access import new_token
    from penstock.web.serve import TOKENS

    if os.environ.get(TOKENS):
        return None, None
    token, text = new_token(author())
    return token.line, text


def _app(target: str, url: str | None, *, quiet: bool) -> App:
    from penstock.brokers.schemes import in_process
    from penstock.cli.store_choice import checked, load, say_where
    from penstock.errors import Refused

    app = checked(load(target), url)
    if in_process(app.resolved_url.url):
        raise Refused("a memory: store is inside the process that made it: nobody else can look")
    if url is None and not quiet:
        say_where(app.resolved_url)
    return app


def _say(
    heard: socket.socket, wanted: int, keys: DashboardTokens, prefix: str, *, where: str, json: bool
) -> str:
    """Say where it is; the address without its token."""
    from penstock.cli import output as shown

    host, port, *_ = heard.getsockname()
    name = f"[{host}]" if ":" in host else host
    address = f"http://{name}:{port}{prefix.rstrip('/')}/"
    entrance = address if keys.text is None else f"{address}?token={keys.text}"
    if json:
        shown.put_json({"url": address, "token": keys.text, "store": where})
    else:
        if wanted not in {0, port}:
            shown.aside(f"port {wanted} is taken, and {port} is not", "yellow")
        if keys.text is not None:
            shown.aside("this is the only time that its token is shown; --new-token makes another")
        elif keys.kept is not None:
            shown.aside("with the token of the first start; --new-token makes another")
        shown.say(f"dashboard: {entrance}")
    return address
