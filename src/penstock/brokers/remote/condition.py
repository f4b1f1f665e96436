"""The condition of a store behind a manager: what the manager says of itself."""

from __future__ import annotations

from importlib import import_module

from penstock.app.settings import mask
from penstock.app.version import RELEASE
from penstock.brokers.condition import Fact, StoreCondition, Trouble
from penstock.brokers.remote.address import parse_address
from penstock.brokers.remote.connection import ManagerConnection
from penstock.errors import PenstockError
from penstock.manager.contract import store_pb2 as messages

PROMISE = "an accepted job survives whatever the store of the manager survives"
_SECONDS = 10.0


def condition(url: str) -> StoreCondition:
    """Ask the manager; nothing is changed."""
    connection = ManagerConnection(parse_address(url))
    try:
        request = messages.HelloRequest(release=RELEASE)
        hello = connection.unary("Hello", request, messages.HelloAnswer, _SECONDS)
    except PenstockError as error:
        unseen = Trouble(str(error), "start the manager (penstock manager), or correct the address")
        return StoreCondition(
            kind="penstock", where=mask(url), promise=PROMISE, exists=False, unseen=unseen
        )
    finally:
        connection.close()
    trouble: tuple[Trouble, ...] = ()
    if hello.release != RELEASE:
        trouble = (
            Trouble(
                f"the manager runs Penstock {hello.release}, and this is {RELEASE}",
                "upgrade managers first, then their clients",
                grave=False,
            ),
        )
    grpc = import_module("grpc")
    facts = (
        Fact("manager", f"{connection.where} serves {hello.store}"),
        Fact("grpc", str(grpc.__version__)),
    )
    return StoreCondition(
        kind="penstock",
        where=mask(url),
        promise=PROMISE,
        exists=True,
        trouble=trouble,
        facts=facts,
    )
