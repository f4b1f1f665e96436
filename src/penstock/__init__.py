"""Penstock: durable background work for Python."""

from penstock.app import App
from penstock.batch_task import BatchTask
from penstock.broker import Batch
from penstock.compose import Group, Jobs, chain, group
from penstock.current import CurrentJob, current_job, current_jobs
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
from penstock.handle import Handle
from penstock.job import Job, Outcome, State
from penstock.named_flow import FlowHandle, FlowJob, NamedFlow
from penstock.notes import Progress
from penstock.resource import use
from penstock.retry import Repeat, Retry
from penstock.signals import wait_for
from penstock.task import Task
from penstock.views import Why

__all__ = [
    "App",
    "Batch",
    "BatchTask",
    "CurrentJob",
    "FlowHandle",
    "FlowJob",
    "Group",
    "Handle",
    "Job",
    "JobCancelled",
    "JobFailed",
    "Jobs",
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
