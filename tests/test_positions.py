"""Positions of stores that count their history: texts that sort as their numbers do."""

from __future__ import annotations

import pytest

from penstock.broker.position import BEGINNING
from penstock.brokers.positions import FARTHEST_POSITION, number_of, position_text
from penstock.errors import Refused

NUMBERS = [0, 1, 9, 10, 99, 1 << 20, 1 << 60, FARTHEST_POSITION]


def test_a_position_is_its_number_and_back():
    assert [number_of(position_text(number)) for number in NUMBERS] == NUMBERS
    assert position_text(0) == BEGINNING


def test_positions_sort_as_their_numbers_do():
    """A lake sorts rows by them, and no store is there to be asked."""
    texts = [position_text(number) for number in NUMBERS]

    assert sorted(texts) == texts


@pytest.mark.parametrize(
    "wrong",
    ["", "7", "00", "0" * 20, "9" * 20, "1" * 21, "-" + "1" * 19, "\u0663" * 20, "1" * 20 + "\n"],
)
def test_anything_else_is_refused_and_named(wrong):
    with pytest.raises(Refused) as refused:
        number_of(wrong)

    assert str(refused.value).startswith(repr(wrong))
    assert "one has 20 digits, as in 00000000000000000001" in str(refused.value)
