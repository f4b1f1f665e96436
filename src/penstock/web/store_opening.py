"""Opens the store of a dashboard that starts while it is away, as soon as it answers.

Until then every page answers 503 and says so. One thread tries, not the requests: each of them
would wait for the deadline of a connection.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from penstock.app.app import App
from penstock.app.store_retry import open_when_reachable
from penstock.broker.protocol import Broker
from penstock.errors import StoreFull, StoreUnreachable, WrongUrl
from penstock.worker.outage_log import OutageLog


class StoreOpening:
    """A store that is opened here, at once or later; `app` is the one it belongs to, if any.

    The constructor raises what waiting cannot mend; `on_refusal` is for when that turns out later.
    """

    def __init__(self, open_store: Callable[[], Broker], app: App | None = None) -> None:
        self.app = app
        self.error: Exception | None = None  # what waiting cannot mend
        self._open_store = open_store
        self._broker: Broker | None = None
        self._unreachable = ""
        self._closed = threading.Event()
        self._outage = OutageLog("pages say so until it does", "penstock.web")
        self._refused: Callable[[], object] = lambda: None
        try:
            self._broker = open_store()
        except WrongUrl:
            raise
        except (StoreUnreachable, StoreFull) as error:
            self._failed(error)
            threading.Thread(target=self._open_later, name="penstock-opening", daemon=True).start()

    @property
    def broker(self) -> Broker:
        """The open store; until there is one, StoreUnreachable says why."""
        if self._broker is None:
            raise StoreUnreachable(self._unreachable)
        return self._broker

    def on_refusal(self, call: Callable[[], object]) -> None:
        """Have this called, perhaps twice, when `error` is set."""
        self._refused = call
        if self.error is not None:
            call()

    def close(self) -> None:
        """Stop trying, and close the store unless it is an app's."""
        self._closed.set()
        if self._broker is not None and self.app is None:
            self._broker.close()

    def _failed(self, error: Exception) -> None:
        self._unreachable = str(error)
        self._outage.log(error)

    def _open_later(self) -> None:
        def open_store() -> None:
            self._broker = self._open_store()

        try:
            open_when_reachable(open_store, self._failed, self._closed.wait)
        except Exception as error:
            self._unreachable, self.error = str(error), error
            self._refused()
