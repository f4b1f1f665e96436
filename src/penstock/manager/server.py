"""The gRPC server of a manager, on an event loop in a thread of its own.

Handlers are declared here by hand: a method of the contract is a name, two messages and a function.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from importlib import import_module
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Self

import msgspec

from penstock.broker.protocol import Broker
from penstock.errors import Refused
from penstock.manager.access import ManagerAccess, ManagerToken
from penstock.manager.contract import receivers_pb2 as receivers_messages
from penstock.manager.contract import store_pb2 as messages
from penstock.manager.dispatch import Calls, Choice, Dispatch
from penstock.manager.receivers_service import ReceiversService
from penstock.manager.store_service import MOST_BYTES, StoreService

MOST_CALLS = 4000  # at once, streams included
_GRACE_SECONDS = 2.0  # for calls that are under way when it stops
_END_SECONDS = 1.0
OPTIONS = (
    ("grpc.max_receive_message_length", MOST_BYTES),
    ("grpc.max_send_message_length", MOST_BYTES),
    ("grpc.so_reuseport", 0),
    # A client that is gone without a word is noticed; one that pings too often is cut off.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.max_concurrent_streams", 1000),
    ("grpc.max_metadata_size", 16 * 1024),
)


class ManagerTls(msgspec.Struct, frozen=True):
    """PEM files: what the server shows, and whose certificates it wants clients to show."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def credentials(self) -> Any:
        grpc: Any = import_module("grpc")
        return grpc.ssl_server_credentials(
            [(_pem(self.key), _pem(self.certificate))],
            root_certificates=None if self.client_ca is None else _pem(self.client_ca),
            require_client_auth=self.client_ca is not None,
        )


def _pem(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}") from None


def check_listen(
    listen: str, tokens: Sequence[ManagerToken], tls: ManagerTls | None, *, plain: bool
) -> None:
    """Refuse to listen for other machines without tokens, or without TLS."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise Refused(f"--listen {listen!r}: write host:port, as 127.0.0.1:7450")
    if is_loopback(host):
        return
    if not tokens:
        raise Refused(
            f"--listen {listen} lets other machines connect: set tokens with --token-file "
            "(name:role:queues:token, a line each)"
        )
    if tls is None and not plain:
        raise Refused(
            f"--listen {listen} lets other machines connect, and without TLS the network sees "
            "tokens and jobs: give --tls-certificate and --tls-key; --plain allows it where the "
            "network is encrypted by other means"
        )


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Manager:
    """Serves a store at an address: `with Manager(broker, "127.0.0.1:0") as manager`."""

    def __init__(
        self,
        broker: Broker,
        listen: str,
        *,
        tokens: Sequence[ManagerToken] = (),
        tls: ManagerTls | None = None,
        plain: bool = False,
        choice: Choice = "least-busy",
    ) -> None:
        check_listen(listen, tokens, tls, plain=plain)
        self._broker = broker
        self._tls = tls
        self.access = ManagerAccess(tokens)
        self._listen = listen
        self._choice: Choice = choice
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="penstock-manager", daemon=True)
        self._service: StoreService | None = None
        self.dispatch: Dispatch | None = None
        self._receivers: ReceiversService | None = None
        self._server: Any = None
        self.port = 0

    @property
    def url(self) -> str:
        """What a client on this machine opens, without a token."""
        return f"penstock://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Listen; returns when clients can connect."""
        self._thread.start()
        try:
            self._on_loop(self._start())
        except BaseException:
            self._end_loop()
            raise

    def stop(self) -> None:
        """Finish the calls that are under way, for a moment, and end."""
        self._on_loop(self._stop())
        self._end_loop()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    def _on_loop(self, work: Any) -> Any:
        done: Future[Any] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return done.result()

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _deliver(self, calls: Calls) -> None:
        """Called by the thread that hands out jobs: the calls run on the event loop, in order."""
        with suppress(RuntimeError):  # the loop has ended, and all streams with it
            self._loop.call_soon_threadsafe(_run_all, calls)

    async def _start(self) -> None:
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its log lines say what its errors say
        aio: Any = import_module("grpc.aio")
        self._service = service = StoreService(self._broker, self._loop, self.access)
        self._server = server = aio.server(options=OPTIONS, maximum_concurrent_rpcs=MOST_CALLS)
        self.dispatch = dispatch = Dispatch(
            self._broker, service.watching.version, self._deliver, self._choice
        )
        self._receivers = receivers = ReceiversService(
            self._broker, dispatch, self.access, service.run
        )
        server.add_generic_rpc_handlers((_store_handlers(service), _receivers_handlers(receivers)))
        try:
            if self._tls is None:
                self.port = server.add_insecure_port(self._listen)
            else:
                self.port = server.add_secure_port(self._listen, self._tls.credentials())
        except RuntimeError as error:
            raise Refused(
                f"cannot listen at {self._listen}: the port is in use, or the address is not one of"
                " this machine; choose another with --listen HOST:PORT"
            ) from error
        await server.start()

    async def _stop(self) -> None:
        if self._service is not None and self.dispatch is not None:
            if self._receivers is not None:
                self._receivers.stop()
            self.dispatch.stop()
            self._service.watching.stop()
        await self._server.stop(_GRACE_SECONDS)
        if self._service is not None:
            await asyncio.to_thread(self._service.stop)
        # What gRPC still does for streams that were cut ends here, not with the loop.
        if left := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(left, timeout=_END_SECONDS)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


def _run_all(calls: Calls) -> None:
    for call in calls:
        call()


def _serialized(message: Any) -> bytes:
    return message.SerializeToString()


def _unary(work: Callable[..., Any], request: Any) -> Any:
    grpc: Any = import_module("grpc")
    return grpc.unary_unary_rpc_method_handler(work, request.FromString, _serialized)


def _stream(work: Callable[..., Any], request: Any) -> Any:
    grpc: Any = import_module("grpc")
    return grpc.unary_stream_rpc_method_handler(work, request.FromString, _serialized)


def _both_ways(work: Callable[..., Any], request: Any) -> Any:
    grpc: Any = import_module("grpc")
    return grpc.stream_stream_rpc_method_handler(work, request.FromString, _serialized)


def _handlers(service: str, methods: dict[str, Any]) -> Any:
    grpc: Any = import_module("grpc")
    return grpc.method_handlers_generic_handler(f"penstock.v1.{service}", methods)


def _store_handlers(service: StoreService) -> Any:
    methods = {
        "Hello": _unary(service.hello, messages.HelloRequest),
        "Call": _unary(service.call, messages.CallRequest),
        "Watch": _stream(service.watch, messages.WatchRequest),
        "Heard": _unary(service.heard, messages.HeardRequest),
        "Scan": _stream(service.scan, messages.ScanRequest),
    }
    return _handlers("Store", methods)


def _receivers_handlers(service: ReceiversService) -> Any:
    methods = {
        "Enqueue": _unary(service.enqueue, receivers_messages.EnqueueRequest),
        "Receive": _both_ways(service.receive, receivers_messages.ReceiveRequest),
        "Settle": _unary(service.settle, receivers_messages.SettleRequest),
    }
    return _handlers("Receivers", methods)
