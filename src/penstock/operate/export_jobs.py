"""Export: every job that has not ended, as lines of a file (`job_file`). Changes nothing.

Pages of `find`, newest first: a job is met at most once, in the state that it has then. What is
enqueued meanwhile is not in the file, and what ends before its page is read is not either.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from penstock.app.encrypted_broker import EncryptedBroker
from penstock.broker.filter import Filter
from penstock.broker.protocol import Broker
from penstock.errors import Refused
from penstock.operate.find_pages import find_jobs
from penstock.operate.job_file import OPEN_STATES, FlowLine, JobLine, LeftOut, flow_line, job_line


def open_jobs(filter: Filter) -> Filter:
    """The filter, of jobs that have not ended."""
    if ended := [state for state in filter.state if state not in OPEN_STATES]:
        raise Refused(
            f"state:{ended[0]}: only jobs that have not ended are exported, which are"
            f" {', '.join(OPEN_STATES)}; ended ones are history, see penstock pipeline run"
        )
    return msgspec.structs.replace(filter, state=filter.state or OPEN_STATES)


def exported(broker: Broker, filter: Filter) -> Iterator[JobLine | FlowLine | LeftOut]:
    """The lines of all jobs that match, a flow's before its first job.

    Encrypted arguments stay encrypted, whatever keys there are here.
    """
    store = broker.store if isinstance(broker, EncryptedBroker) else broker
    now = store.clock.now()
    flows: set[str] = set()
    for job in find_jobs(store.find, open_jobs(filter)):
        line = job_line(job, now)
        if isinstance(line, JobLine) and line.flow is not None and line.flow not in flows:
            flows.add(line.flow)
            row = store.flow(line.flow)
            if row is not None:
                yield flow_line(row)
        yield line
