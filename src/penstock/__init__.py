"""Penstock: durable background work for Python."""

from penstock.app.app import App
from penstock.app.key_ring import KeyRing
from penstock.app.resources import use
from penstock.broker.values import Batch
from penstock.broker.views import Why
from penstock.enqueue.handle import Handle
from penstock.errors import (
    JobCancelled,
    JobFailed,
    PenstockError,
    Refused,
    ResultGone,
    RetryLater,
    SchemaTooNew,
    StaleLease,
    StoreFull,
    StoreUnreachable,
    UnknownOutcome,
)
from penstock.flows.compose import Group, Jobs, chain, group
from penstock.flows.named import FlowHandle, FlowJob, NamedFlow
from penstock.flows.signals import wait_for
from penstock.job import Job, Outcome, State
from penstock.run.current import CurrentJob, current_job, current_jobs
from penstock.run.job_notes import Progress
from penstock.run.wait_for_jobs import EndedJob
from penstock.task.batch import BatchTask
from penstock.task.dataset import Dataset, Expect, Source
from penstock.task.interval import Interval
from penstock.task.retry import Repeat, Retry
from penstock.task.task import Task

__all__ = [
    "App",
    "Batch",
    "BatchTask",
    "CurrentJob",
    "Dataset",
    "EndedJob",
    "Expect",
    "FlowHandle",
    "FlowJob",
    "Group",
    "Handle",
    "Interval",
    "Job",
    "JobCancelled",
    "JobFailed",
    "Jobs",
    "KeyRing",
    "NamedFlow",
    "Outcome",
    "PenstockError",
    "Progress",
    "Refused",
    "Repeat",
    "ResultGone",
    "Retry",
    "RetryLater",
    "SchemaTooNew",
    "Source",
    "StaleLease",
    "State",
    "StoreFull",
    "StoreUnreachable",
    "Task",
    "UnknownOutcome",
    "Why",
    "chain",
    "current_job",
    "current_jobs",
    "group",
    "use",
    "wait_for",
]
