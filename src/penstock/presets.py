"""The policies of the five systems that Penstock grew out of, as options of queues.

Plain dictionaries: `app.queue("mail", presets.dark, timeout=60)`, where given options go before
those of the preset, or `App(queue_defaults=presets.guild)`. docs/coming-from.md has a table.
"""

from __future__ import annotations

from typing import Final

from penstock.task.option_types import QueueDeclaration
from penstock.task.retry import Repeat, Retry

_DAY = 86400.0

# Dark Queues: two retries five minutes apart, then the event is dropped; so is what succeeded.
dark: Final[QueueDeclaration] = {
    "lease": 60.0,
    "retry": Retry(limit=2, delay=300.0, then="delete"),
    "on_success": "delete",
    "keep": 7 * _DAY,
}
# Vitess queues: tried for ever, ever more seldom; kept for a day.
vitess: Final[QueueDeclaration] = {
    "lease": 30.0,
    "retry": Retry(limit=None, delay=30.0, factor=2.0, jitter=0.33, min=30.0, max=_DAY),
    "keep": _DAY,
}
# AVAIL's controller: two more tries at once; no time limit; kept for a week.
avail: Final[QueueDeclaration] = {
    "lease": 15.0,
    "retry": Retry(limit=2, delay=0.0),
    "keep": 7 * _DAY,
}
# Guild queues: what failed has failed; a minute for each job; kept for a day.
guild: Final[QueueDeclaration] = {
    "lease": 60.0,
    "retry": Retry(limit=0),
    "timeout": 60.0,
    "keep": _DAY,
}
# haskell-bee: deleted when done, kept when failed, two more tries for what took too long.
bee: Final[QueueDeclaration] = {
    "lease": 5.0,
    "timeout": 10.0,
    "on_success": "delete",
    "on_error": "keep",
    "on_timeout": Repeat(limit=2, then="keep"),
}
