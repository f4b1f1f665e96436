"""The contract is add-only: whatever a release has sent, or understood, means the same for good.

`released.txt` is the contract of the last release, a line for each field, value and method. A
release writes it anew: python -m tests.brokers.remote.test_contract > .../released.txt
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.manager.contract import receivers_pb2, store_pb2

RELEASED = Path(__file__).with_name("released.txt")
FILES = (receivers_pb2.DESCRIPTOR, store_pb2.DESCRIPTOR)


def lines(file: Any) -> Iterator[str]:
    """What both sides of the wire rely on; comments and the order of declarations are no part."""
    for message in file.message_types_by_name.values():
        yield from _fields(message)
    for enum in file.enum_types_by_name.values():
        for value in enum.values:
            yield f"{enum.full_name} {value.number} is {value.name}"
    for service in file.services_by_name.values():
        for method in service.methods:
            takes = "stream of " * method.client_streaming + method.input_type.full_name
            gives = "stream of " * method.server_streaming + method.output_type.full_name
            yield f"{service.full_name}/{method.name} takes {takes} and answers {gives}"


def _fields(message: Any) -> Iterator[str]:
    for field in message.fields:
        kind = field.message_type or field.enum_type
        what = f"type {field.type}" if kind is None else kind.full_name
        many = "repeated " * field.is_repeated
        one_of = f" in {field.containing_oneof.name}" if field.containing_oneof else ""
        yield f"{message.full_name} {field.number} is {many}{what} {field.name}{one_of}"
    for nested in message.nested_types:
        yield from _fields(nested)


def now() -> list[str]:
    return sorted(line for file in FILES for line in lines(file))


def test_nothing_that_was_released_is_gone_or_means_something_else():
    gone = set(RELEASED.read_text().splitlines()) - set(now())

    assert not gone, "add a field with a new number instead:\n" + "\n".join(sorted(gone))


@pytest.mark.parametrize(
    "line",
    [
        "penstock.v1.ReceiveRequest 1 is type 13 credits",
        "penstock.v1.Settlement 3 is penstock.v1.Succeed succeed in outcome",
        "penstock.v1.NewJob.TagsEntry 2 is type 9 value",
        "penstock.v1.State 2 is STALE",
        "penstock.v1.Store/Call takes penstock.v1.CallRequest and answers penstock.v1.CallAnswer",
    ],
)
def test_fields_values_and_methods_are_all_compared(line):
    assert line in RELEASED.read_text().splitlines()


if __name__ == "__main__":
    print("\n".join(now()))
