"""The task of the notebook. A worker runs it: MODEL_URL=... penstock worker model.py."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from penstock import App, Retry, RetryLater, current_job

app = App()


@dataclass
class Answer:
    text: str
    tokens: int


# An OSError is a line that breaks, or a server that says 500. RetryLater counts as no failure.
@app.task(
    name="model:call", queue="model", timeout=60, retry=Retry(limit=5, delay=2, on=(OSError,))
)
def call_model(prompt: str) -> Answer:
    request = Request(  # noqa: S310  a URL of your own
        f"{os.environ['MODEL_URL']}/answer",
        data=json.dumps({"prompt": prompt}).encode(),
        # The same at each attempt: if the worker dies before it has the answer, it costs nothing.
        headers={"Idempotency-Key": current_job().idempotency_key()},
    )
    try:
        with urlopen(request, timeout=30) as answer:  # noqa: S310  as above
            return Answer(**json.load(answer))
    except HTTPError as error:
        if error.code in {402, 429}:  # the budget is used up; too many calls
            raise RetryLater(float(error.headers["Retry-After"]), note=error.reason) from None
        raise
