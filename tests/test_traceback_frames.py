"""The frames of a traceback that are the user's own."""

from __future__ import annotations

import json

from penstock.run.describe_error import Described
from penstock.run.error_text import traceback_in
from penstock.run.traceback_frames import own_frames

SHOP = """Traceback (most recent call last):
  File "/srv/shop/orders.py", line 12, in charge
    pay(order)
    ~~~^^^^^^^
  File "/srv/shop/.venv/lib/python3.12/site-packages/stripe/api.py", line 9, in pay
    raise Declined
stripe.Declined: no
"""


def test_libraries_are_left_out():
    assert [(frame.place, frame.name, frame.source) for frame in own_frames(SHOP)] == [
        ("/srv/shop/orders.py:12", "charge", "pay(order)")
    ]


def test_a_real_one_has_the_innermost_call_first():
    def inner() -> None:
        json.loads("{")

    try:
        inner()
    except ValueError as error:
        text = Described(error, str).text

    names = [frame.name for frame in own_frames(traceback_in(text))]
    assert names == ["inner", "test_a_real_one_has_the_innermost_call_first"]


def test_of_a_chain_it_is_the_exception_that_ended_the_attempt():
    def first() -> None:
        raise KeyError("order")

    def second() -> None:
        try:
            first()
        except KeyError as error:
            raise ValueError("no such order") from error

    try:
        second()
    except ValueError as error:
        text = Described(error, str).text

    assert own_frames(traceback_in(text))[0].name == "second"


def test_if_that_has_none_it_is_the_one_before():
    library = """Traceback (most recent call last):
  File "/usr/lib/python3.12/json/decoder.py", line 3, in decode
    raise ValueError
ValueError: no
"""

    middle = "\nDuring handling of the above exception, another exception occurred:\n\n"
    assert own_frames(SHOP + middle + library)[0].name == "charge"


def test_without_frames_there_are_none():
    assert own_frames("") == []
    assert own_frames("the worker died") == []
    assert own_frames('  File "/srv/a.py", line 1, in f') != []
