"""TLS that the URL asks for is had, or nothing is sent: all parameters go to libpq as they are."""

from __future__ import annotations

import pytest

from penstock.brokers import open_broker
from penstock.errors import WrongUrl


@pytest.mark.parametrize("mode", ["require", "verify-ca", "verify-full"])
def test_a_server_without_tls_is_refused_where_the_url_wants_it(postgres_store_url, mode):
    url = f"{postgres_store_url}?sslmode={mode}&sslrootcert=system"
    if mode != "verify-full":
        url = url.partition("&")[0]

    with pytest.raises(WrongUrl, match=r"(?i)server does not support SSL"):
        open_broker(url)


def test_it_is_the_same_behind_a_pooler(postgres_store_url):
    with pytest.raises(WrongUrl, match=r"(?i)server does not support SSL"):
        open_broker(f"{postgres_store_url}?pooler=true&sslmode=require")
