"""manager: lend a store to clients on other machines."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from penstock.cli.options import Json, LogFormat, Profile, Url

if TYPE_CHECKING:
    from penstock.broker.protocol import Broker
    from penstock.manager.server import Manager


def manager(
    *,
    listen: Annotated[
        str, typer.Option(help="The address to listen on; port 0: any.")
    ] = "127.0.0.1:7450",
    token_file: Annotated[
        Path | None,
        typer.Option(help="A file of name:role:queues:token lines.", show_default=False),
    ] = None,
    tls_certificate: Annotated[
        Path | None,
        typer.Option(help="Serve TLS with this certificate chain (PEM).", show_default=False),
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(help="The key of the certificate.", show_default=False)
    ] = None,
    client_ca: Annotated[
        Path | None,
        typer.Option(
            help="Only clients with a certificate of this authority (PEM).", show_default=False
        ),
    ] = None,
    plain: Annotated[
        bool,
        typer.Option("--plain", help="Allow an address other than loopback without TLS."),
    ] = False,
    choose: Annotated[
        Literal["least-busy", "random"],
        typer.Option(help="Which receiver is handed the next job."),
    ] = "least-busy",
    health_port: Annotated[
        int | None,
        typer.Option(
            help="Serve /live, /ready and /metrics on loopback at this port; 0: any.",
            show_default=False,
        ),
    ] = None,
    log_format: LogFormat = "text",
    url: Url = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Lend a store to clients on other machines: producers, workers, every command.

    Clients open penstock://:TOKEN@host:7450. Without tokens only this machine can connect.

    Example: penstock manager --url sqlite:///jobs.db --token-file tokens
    """
    from penstock.app.environment import check_environment
    from penstock.app.log_lines import LogOutput, log_to_stderr
    from penstock.app.settings import mask
    from penstock.brokers import need_driver, open_broker
    from penstock.brokers.schemes import REMOTE
    from penstock.cli import output
    from penstock.cli.store_choice import print_store, store_url
    from penstock.errors import Refused

    log_to_stderr(LogOutput("info", log_format))
    need_driver(REMOTE)
    from penstock.manager.access import read_manager_tokens
    from penstock.manager.server import Manager, ManagerTls

    if (tls_certificate is None) != (tls_key is None):
        raise Refused("--tls-certificate and --tls-key go together: give both files")
    tls = None
    if tls_certificate is not None and tls_key is not None:
        tls = ManagerTls(tls_certificate, tls_key, client_ca)
    elif client_ca is not None:
        raise Refused("--client-ca needs --tls-certificate and --tls-key")
    resolved = store_url(url, profile, None)
    if url is None:
        print_store(resolved)
    stopped = threading.Event()

    def stop(*_: object) -> None:
        stopped.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    tokens = [] if token_file is None else read_manager_tokens(token_file)
    broker = open_broker(resolved.url)
    try:
        check_environment(broker, resolved)
        made = Manager(broker, listen, tokens=tokens, tls=tls, plain=plain, choice=choose)
        with made as serving, _health(broker, serving, health_port) as health:
            host = listen.rpartition(":")[0]
            address = f"penstock://{':TOKEN@' if tokens else ''}{host}:{serving.port}"
            address += "" if tls is None else "?tls=yes"
            if json:
                there = {"url": address, "store": mask(resolved.url)}
                output.print_json(there if health is None else {**there, "health": health})
            else:
                output.print_text(f"manager: {address}")
                if health is not None:
                    output.print_note(f"health: {health}/live, /ready, /metrics")
                if not tokens:
                    output.print_note("no tokens: every user of this machine may do everything")
            stopped.wait()
    finally:
        broker.close()


@contextmanager
def _health(broker: Broker, serving: Manager, port: int | None) -> Generator[str | None]:
    """Meanwhile its health is served; the address of that, if a port was named."""
    if port is None or serving.dispatch is None:
        yield None
        return
    from penstock.errors import Refused
    from penstock.manager.health import ManagerHealth
    from penstock.worker.health_server import serve

    health = ManagerHealth(broker, serving.dispatch, lambda: serving.access.wrong)
    try:
        with serve(port, health.live, health.ready, {"/metrics": health.metrics}) as served:
            yield f"http://127.0.0.1:{served}"
    except (OSError, OverflowError) as error:
        raise Refused(
            f"--health-port {port} cannot be served: {error}; 0 takes any free port"
        ) from error
