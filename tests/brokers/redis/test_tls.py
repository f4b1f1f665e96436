"""`rediss://`, through a proxy that speaks TLS: the servers that come as wheels do not."""

from __future__ import annotations

import datetime as dt
import ipaddress
import socket
import ssl
import threading

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from penstock.errors import StoreUnreachable


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A key and a certificate of 127.0.0.1, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return folder


@pytest.fixture
def tls_port(own_redis, certificate):
    """A port that passes on to the server what comes over TLS."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            while True:
                try:
                    plain, _ = listening.accept()
                except OSError:
                    return
                threading.Thread(target=pass_on, args=(plain,), daemon=True).start()

        def pass_on(plain):
            try:
                with (
                    context.wrap_socket(plain, server_side=True) as outside,
                    socket.socket(socket.AF_UNIX) as inside,
                ):
                    inside.connect(str(own_redis.socket))
                    while data := outside.recv(65536):
                        inside.sendall(data)
                        inside.settimeout(0.05)
                        try:
                            while answer := inside.recv(65536):
                                outside.sendall(answer)
                        except TimeoutError:
                            pass
            except OSError:
                return

        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


def test_a_server_behind_tls_is_reached_and_checked(tls_port, certificate, connect):
    server = connect(f"rediss://127.0.0.1:{tls_port}?ca_file={certificate / 'cert.pem'}")

    assert server.call("SET", "a", b"x" * 300_000) == b"OK"
    assert server.call("GET", "a") == b"x" * 300_000


def test_a_server_that_nobody_vouches_for_is_not_talked_to(tls_port, connect):
    with pytest.raises(StoreUnreachable, match="certificate verify failed"):
        connect(f"rediss://127.0.0.1:{tls_port}").call("PING")
