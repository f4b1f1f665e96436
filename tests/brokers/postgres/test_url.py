"""URLs that libpq cannot read, or would read as something else."""

from __future__ import annotations

import pytest

from penstock.brokers.postgres import PostgresBroker
from penstock.errors import Refused


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada:s3%cret@db/shop",
        "postgresql://ada:s3 cret@db/shop",
        "postgresql://ada:s3cret@[::1]x/shop",
        "postgresql://ada:s3@cret@db/shop",
        "postgresql://ada:s3/cret@db/shop",
        "postgresql://ada:s3?cret@db/shop",
        "postgresql://ada:s3cret@db/shop?nothing=like%20that",
    ],
)
def test_a_url_that_cannot_be_read_is_refused_without_its_password(url):
    with pytest.raises(Refused, match=r"postgresql://ada:\*\*\*@") as refusal:
        PostgresBroker(url)

    assert "s3" not in str(refusal.value)
    assert "cret" not in str(refusal.value)
    assert refusal.value.__context__ is None  # which would show it as well
