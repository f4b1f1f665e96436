"""Flask: the store's URL is in Flask's config, and tasks run inside the application context.

    jobs = FlaskApp()              # beside db = SQLAlchemy()
    jobs.init_app(flask_app)       # PENSTOCK_URL in its config, else as App() finds it

PENSTOCK_KEYS (a key ring, or keys) or PENSTOCK_KEY_FILE in the config encrypts what is stored.

In a view, `task.options(connection=db.session).enqueue(...)` commits the job with the session.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask import Flask

from penstock.app.app import App
from penstock.app.key_file import chosen_keys
from penstock.app.key_ring import KeyRing
from penstock.app.settings import ResolvedUrl
from penstock.errors import Refused
from penstock.job import Job
from penstock.task.task import needs_keys


class FlaskApp(App):
    """An App whose tasks run inside Flask's application context, with its config and teardowns.

    So each job has a session of Flask-SQLAlchemy of its own, which is closed when the job ends.
    """

    def __init__(self, flask: Flask | None = None) -> None:
        super().__init__()
        self._flask = flask
        self.middleware(self._in_context)
        self.middleware(self._in_context_async)
        if flask is not None:
            self.init_app(flask)

    def init_app(self, flask: Flask) -> None:
        """Bind to this application; once, before anything is enqueued or run."""
        self._flask = flask
        for task in self.tasks.values():
            if task.keep_secrets is not None and not self.seals:
                raise needs_keys(task.name)
        flask.extensions["penstock"] = self

    @property
    def resolved_url(self) -> ResolvedUrl:
        config: Any = {} if self._flask is None else self._flask.config
        if url := config.get("PENSTOCK_URL"):
            return ResolvedUrl(url, "PENSTOCK_URL of Flask's config")
        return super().resolved_url

    def configured_keys(self) -> KeyRing | None:
        config: Any = {} if self._flask is None else self._flask.config
        named = config.get("PENSTOCK_KEYS"), config.get("PENSTOCK_KEY_FILE")
        return chosen_keys(*named, "of Flask's config") or super().configured_keys()

    @property
    def seals(self) -> bool:
        return self._flask is None or super().seals  # until it is bound, nobody knows

    @property
    def _context(self) -> Any:
        if self._flask is None:
            raise Refused("FlaskApp() is not bound to an application: call init_app(flask_app)")
        return self._flask.app_context()

    def _in_context(self, call_next: Callable[[], Any], job: Job[Any]) -> Any:
        del job
        with self._context:
            return call_next()

    async def _in_context_async(self, call_next: Callable[[], Any], job: Job[Any]) -> Any:
        del job
        with self._context:
            return await call_next()
