"""A dashboard behind a real server on loopback, and browsers without a screen: plain HTTP."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
import uvicorn

from penstock.broker.protocol import Broker
from penstock.web import dashboard
from penstock.web.access import Role, Token, Tokens, new_token
from penstock.web.serve import listen
from penstock.web.site import Dashboard

# Plain HTTP needs no certificates, and reading those of the system takes a client 23 ms.
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
TYPED = {"sec-fetch-site": "none"}  # what browsers say of an address that somebody typed
NAMES = {Role.VIEW: "vera", Role.OPERATE: "otto", Role.ADMIN: "ada"}


ONE_STORE = "sqlite"
# Here each store gathers the facts itself.
OF_EVERY_STORE = ("test_why.py",)


def pytest_itemcollected(item: pytest.Item) -> None:
    """The dashboard knows no store: `make test` shows it one, `make test-stores` all of them."""
    store = item.callspec.params.get("broker") if hasattr(item, "callspec") else None
    if store not in (None, ONE_STORE) and item.path.name not in OF_EVERY_STORE:
        item.add_marker("soak")
        item.add_marker("every_store")


class Web:
    """A dashboard that is served; `client` asks as somebody of this role, or as nobody."""

    def __init__(self, site: Dashboard, address: str, texts: dict[Role, str]) -> None:
        self.site = site
        self.address = address
        self.texts = texts
        self._clients: list[httpx.Client] = []

    def client(self, role: Role | None = None) -> httpx.Client:
        """As a program asks: with a token in its head."""
        headers = {} if role is None else {"authorization": f"Bearer {self.texts[role]}"}
        return self._made(headers)

    def browser(self, role: Role) -> httpx.Client:
        """As a browser asks: with the cookie that it got for a token, and saying where from."""
        made = self._made({"origin": self.address})
        answer = made.get("/", params={"token": self.texts[role]}, headers=TYPED)
        assert answer.status_code == 303
        return made

    def _made(self, headers: dict[str, str]) -> httpx.Client:
        made = httpx.Client(base_url=self.address, headers=headers, timeout=30, verify=NO_TLS)
        self._clients.append(made)
        return made

    def close(self) -> None:
        for client in self._clients:
            client.close()


class PromptServer(uvicorn.Server):
    """Ends when it is told to: uvicorn's own looks ten times a second, twice for each end."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._loop = asyncio.new_event_loop()
        self._told = asyncio.Event()

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self.serve(sockets))

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._told.set)

    async def main_loop(self) -> None:
        await self.on_tick(0)  # makes the headers of every answer
        await self._told.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for one in (*self.servers, *(sockets or ())):
            one.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        if answers := list(self.server_state.tasks):
            await asyncio.wait(answers)
        await asyncio.sleep(0)  # connections end in the loop's next turn


@contextmanager
def serving(application: Any) -> Iterator[str]:
    """Any ASGI application behind a real server; its address."""
    with listen("127.0.0.1", 0) as heard:
        config = uvicorn.Config(application, log_level="warning", lifespan="off", ws="none")
        server = PromptServer(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [heard]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{heard.getsockname()[1]}"
        finally:
            server.end()
            thread.join()


@contextmanager
def served(store: Any, **options: Any) -> Iterator[Web]:
    """This store behind a server of the test's own."""
    made = {role: new_token(name, role) for role, name in NAMES.items()}
    tokens: list[Token] = [token for token, _ in made.values()]
    site = dashboard(store, **{"access": Tokens(tokens), **options})
    with serving(site) as address:
        web = Web(site, address, {role: text for role, (_, text) in made.items()})
        try:
            yield web
        finally:
            web.close()
            site.end_streams()
    site.close()


@pytest.fixture
def serve() -> Iterator[Callable[..., Web]]:
    """Serves stores, as many as a test wants, until it ends."""
    from contextlib import ExitStack

    with ExitStack() as stack:
        yield lambda store, **options: stack.enter_context(served(store, **options))


@pytest.fixture
def web(broker: Broker) -> Iterator[Web]:
    """Each store in turn, behind a dashboard."""
    with served(broker) as made:
        yield made


@pytest.fixture
def memory_web(memory_broker: Broker) -> Iterator[Web]:
    """For what no store has a say in."""
    with served(memory_broker) as made:
        yield made
