"""What becomes of an attempt that ended: pure decisions, made from the policy alone.

    an error     the retry rule first; when it lets go, the strategy `on_error`
    a timeout    the strategy `on_timeout`; without one it is an error like any other
    a success    the strategy `on_success`

What a job says for itself goes before what its task says.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec

from penstock.enqueue.codec import JobOptions, RetryWire
from penstock.job import Job, Outcome, State
from penstock.task.retry import NO_RETRY, Repeat, Retry, Strategy

_SUCCEEDED = State.SUCCEEDED  # looked up in the class it costs 0.08 us, once for every job


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What a task, or one job of it, wants done when an attempt ends."""

    retry: Retry = NO_RETRY
    on_success: Strategy = "keep"
    on_error: Strategy = "keep"
    on_timeout: Strategy | None = None  # None: a timeout is an error
    keep: float | None = None  # seconds that ended jobs are kept; None: the store's retention


def policy_for(policy: Policy, options: JobOptions) -> Policy:
    """The task's policy with what this one job says for itself."""
    if (
        options.retry is None
        and options.on_success is None
        and options.on_error is None
        and options.on_timeout is None
    ):
        return policy
    retry, wire = policy.retry, options.retry
    if wire is not None:
        retry = retry_of(wire, retry)
    return Policy(
        retry=retry,
        on_success=options.on_success or policy.on_success,
        on_error=options.on_error or policy.on_error,
        on_timeout=options.on_timeout or policy.on_timeout,
        keep=policy.keep,
    )


def retry_of(wire: RetryWire, code: Retry) -> Retry:
    """These numbers, with the exception classes of the code."""
    return Retry(**msgspec.structs.asdict(wire), on=code.on, never=code.never)


def after_success(
    policy: Policy, job: Job[Any], result: bytes | None, now: float, *, started_at: float
) -> Outcome:
    """Where an attempt leads that returned. A run asked for again starts with no failures."""
    strategy = policy.on_success
    if isinstance(strategy, Repeat):
        if _again(strategy, job):
            return Outcome(
                State.READY,
                "repeat",
                result=result,
                run_at=now + strategy.delay,
                failures=-job.failures,
                repeats=1,
                started_at=started_at,
                ended_at=now,
            )
        strategy = strategy.then
    return Outcome(
        _SUCCEEDED,
        None,
        result,
        keep=strategy == "keep",
        keep_for=policy.keep,
        started_at=started_at,
        ended_at=now,
    )


def after_error(
    policy: Policy,
    job: Job[Any],
    error: BaseException,
    traceback: str,
    now: float,
    *,
    started_at: float,
) -> Outcome:
    """Where an attempt leads that raised."""
    failure = _Failure("error", traceback, now, started_at, policy.keep)
    return _retried(policy, job, error, failure)


def after_timeout(
    policy: Policy, job: Job[Any], traceback: str, now: float, *, started_at: float
) -> Outcome:
    """Where an attempt leads that ran out of time."""
    failure = _Failure("timeout", traceback, now, started_at, policy.keep)
    if policy.on_timeout is None:
        # As the exception that it stands for, so that Retry(on=(TimeoutError,)) means it.
        return _retried(policy, job, TimeoutError(), failure)
    return _by_strategy(policy.on_timeout, job, failure)


class _Failure(NamedTuple):
    """How an attempt went wrong."""

    reason: Literal["error", "timeout"]
    traceback: str
    now: float
    started_at: float
    keep_for: float | None

    def again(self, delay: float, repeats: int = 0) -> Outcome:
        return Outcome(
            State.READY,
            self.reason,
            error=self.traceback,
            run_at=self.now + delay,
            failures=1,
            repeats=repeats,
            started_at=self.started_at,
            ended_at=self.now,
        )

    def end(self, *, keep: bool) -> Outcome:
        return Outcome(
            State.FAILED,
            self.reason,
            error=self.traceback,
            failures=1,
            keep=keep,
            keep_for=self.keep_for,
            started_at=self.started_at,
            ended_at=self.now,
        )


def _retried(policy: Policy, job: Job[Any], error: BaseException, failure: _Failure) -> Outcome:
    retry, failures = policy.retry, job.failures + 1
    if retry.allows(error, failures):
        return failure.again(retry.delay_before(failures))
    used_up = isinstance(error, retry.on) and not isinstance(error, retry.never)
    if used_up and retry.then == "delete":
        return failure.end(keep=False)
    return _by_strategy(policy.on_error, job, failure)


def _by_strategy(strategy: Strategy, job: Job[Any], failure: _Failure) -> Outcome:
    if isinstance(strategy, Repeat):
        if _again(strategy, job):
            return failure.again(strategy.delay, repeats=1)
        strategy = strategy.then
    return failure.end(keep=strategy == "keep")


def _again(strategy: Repeat, job: Job[Any]) -> bool:
    return strategy.limit is None or job.repeats < strategy.limit
