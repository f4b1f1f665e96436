"""The channel to a manager, or to the next one of the list where that does not answer.

A channel has threads, which a forked child has not: the child forgets it, and makes its own.
`forking` has what gRPC needs for that.
"""

from __future__ import annotations

import os
import random
import threading
import weakref
from pathlib import Path
from typing import Any

from penstock.brokers.remote.address import ManagerAddress
from penstock.brokers.remote.errors import CallLost, translated
from penstock.brokers.remote.forking import calls_under_way, grpc_for_clients
from penstock.errors import Refused, StoreUnreachable

MOST_BYTES = 64 * 1024 * 1024  # of one message; the manager's is the same
_OPTIONS = (
    ("grpc.max_receive_message_length", MOST_BYTES),
    ("grpc.max_send_message_length", MOST_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 100),  # gRPC adds jitter of a fifth
    ("grpc.min_reconnect_backoff_ms", 5_000),  # that an attempt to connect may take
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.enable_retries", 0),  # whether to send again is decided here
    ("grpc.use_local_subchannel_pool", 1),
)
_SERVICE = "/penstock.v1.Store/"


class ManagerConnection:
    """Calls methods of the service Store at the first address that answers."""

    def __init__(self, address: ManagerAddress) -> None:
        self.address = address
        self._metadata = (("authorization", f"Bearer {address.token}"),) if address.token else ()
        self._lock = threading.Lock()
        self._channel: Any = None
        self._methods: dict[str, Any] = {}
        # Clients of a list spread over it; each goes on with the next one when its own is gone.
        self._at = random.randrange(len(address.targets))  # noqa: S311  no secret
        self._changes = 0  # of the address
        self._closed = False
        _connections.add(self)

    @property
    def where(self) -> str:
        return self.address.targets[self._at]

    def unary(
        self, method: str, request: Any, answer: Any, seconds: float, *, patient: bool = False
    ) -> Any:
        """Call it; raises CallLost if it may have been carried out.

        `patient`: wait for a connection, instead of failing while there is none.
        """
        grpc = grpc_for_clients()
        tries = len(self.address.targets)
        while True:
            changes, where = self._changes, self.where
            if seconds <= 0:
                raise StoreUnreachable(f"no time is left to ask the manager {where}")
            try:
                with calls_under_way.one():
                    return self._method("unary_unary", method, answer)(
                        request, timeout=seconds, metadata=self._metadata, wait_for_ready=patient
                    )
            except grpc.RpcError as error:
                failure = translated(error, where)
                self._after(failure, changes)
                tries -= 1
                if isinstance(failure, CallLost) or not _is_away(failure) or not tries:
                    raise failure from None
            except ValueError as error:  # by gRPC, of a closed channel
                raise StoreUnreachable(f"the connection to {where} is closed") from error

    def stream(self, method: str, request: Any, answer: Any, seconds: float | None) -> Any:
        """Its answers, and a call that can be cancelled; errors are raised by whoever iterates."""
        return self._method("unary_stream", method, answer)(
            request, timeout=seconds, metadata=self._metadata
        )

    def lost(self, error: Any) -> Exception:
        """What a stream was ended by; the next call goes to the next address."""
        failure = translated(error, self.where)
        self._after(failure, self._changes)
        return failure

    def _after(self, failure: Exception, changes: int) -> None:
        """Turn to the next address, unless another thread has done so already.

        The only one is connected to anew where a connection broke, as it may not know that yet.
        """
        if not _is_away(failure):
            return
        if len(self.address.targets) == 1 and not isinstance(failure, CallLost):
            return  # there is no connection, and gRPC waits a little longer before each attempt
        with self._lock:
            if changes == self._changes:
                self._at = (self._at + 1) % len(self.address.targets)
                self._changes += 1
                self._drop()

    def _drop(self) -> None:
        # Not closed: another thread's call may be under way on it. gRPC closes what nobody holds.
        self._channel = None
        self._methods = {}

    def _method(self, form: str, name: str, answer: Any) -> Any:
        known = self._methods.get(name)
        if known is not None:
            return known
        with self._lock:
            if self._closed:
                raise StoreUnreachable(f"the connection to {self.where} is closed")
            if self._channel is None:
                self._channel = _channel(self.address, self.where)
            made = self._methods[name] = getattr(self._channel, form)(
                _SERVICE + name,
                request_serializer=_serialized,
                response_deserializer=answer.FromString,
            )
            return made

    def after_fork_in_child(self) -> None:
        self._lock = threading.Lock()
        self._inherited = self._channel  # kept: to take it apart needs threads that are not here
        self._drop()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            channel = self._channel
            self._drop()
        if channel is not None:
            channel.close()


def _serialized(message: Any) -> bytes:
    return message.SerializeToString()


def _is_away(failure: Exception) -> bool:
    return type(failure) in {StoreUnreachable, CallLost}


def _channel(address: ManagerAddress, target: str) -> Any:
    grpc = grpc_for_clients()
    if not address.tls:
        return grpc.insecure_channel(target, _OPTIONS)
    credentials = grpc.ssl_channel_credentials(
        root_certificates=_pem(address.ca),
        private_key=_pem(address.key),
        certificate_chain=_pem(address.cert),
    )
    return grpc.secure_channel(target, credentials, _OPTIONS)


def _pem(path: str | None) -> bytes | None:
    if path is None:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from error


_connections: weakref.WeakSet[ManagerConnection] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for connection in list(_connections):
        connection.after_fork_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)
