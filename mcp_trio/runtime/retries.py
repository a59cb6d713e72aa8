"""Sending again: the loop that uses a `Retry` policy and its budget. It never hides a cancel."""

from __future__ import annotations

import attrs
import trio

from mcp_trio.runtime.adapters.base import Answer, Send
from mcp_trio.runtime.policies import Retry, RetryBudget, pause_before
from mcp_trio.runtime.stages import StageError

CIRCUIT_OPEN = "circuit_open"
"""The `sub` of an attempt that was not made because of the circuit."""
_REASONS = {"connect": "connect", "disconnected": "connect", "timeout": "timeout"}
"""Names of `Retry.on` by the `sub` of a failure."""


async def send_with_retries(send: Send, retry: Retry, budget: RetryBudget, chance: float) -> Answer:
    """Send until there is an answer worth keeping, or no attempt, budget or time is left.

    A pause that would outlast the deadline is not begun: the last failure says more than
    a timeout would.

    Raises:
        StageError: of the last attempt.
    """
    outcome = await _attempt(send)
    attempt = 1
    while outcome.reason is not None and outcome.reason in retry.on:
        pause = pause_before(retry, attempt, outcome.retry_after, chance)
        if pause is None or trio.current_time() + pause >= trio.current_effective_deadline():
            break
        if not budget.take():
            break
        await trio.sleep(pause)
        latest = await _attempt(send)
        if latest.failure is not None and latest.failure.sub == CIRCUIT_OPEN:
            break  # what went wrong before says more than that nobody tried again
        outcome = latest
        attempt += 1
    return outcome.unwrap()


@attrs.frozen(kw_only=True)
class _Outcome:
    """How one attempt ended: with an answer or with a failure."""

    answer: Answer | None = None
    failure: StageError | None = None
    reason: int | str | None = None
    """What `Retry.on` calls a failure; None for one that is final, and for success."""
    retry_after: float | None = None

    def unwrap(self) -> Answer:
        if self.answer is None:
            raise self.failure or AssertionError("an attempt ends somehow")
        return self.answer


async def _attempt(send: Send) -> _Outcome:
    try:
        answer = await send()
    except StageError as error:
        return _Outcome(failure=error, reason=_REASONS.get(error.sub))
    return _Outcome(answer=answer, reason=_reason(answer), retry_after=answer.retry_after)


def _reason(answer: Answer) -> int | None:
    """The status of a failure; where there are none, what may pass counts as unavailable."""
    if answer.ok:
        return None
    return 503 if answer.status is None and answer.retryable else answer.status
