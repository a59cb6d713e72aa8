"""Sending again: the loop that uses a `Retry` policy and its budget. It never hides a cancel."""

from __future__ import annotations

import trio

from mcp_trio.runtime.adapters.base import Answer, Send
from mcp_trio.runtime.policies import Retry, RetryBudget, pause_before
from mcp_trio.runtime.stages import StageError

_REASONS = {"connect": "connect", "disconnected": "connect", "timeout": "timeout"}
"""Names of `Retry.on` by the `sub` of a failure."""


async def send_with_retries(send: Send, retry: Retry, budget: RetryBudget, chance: float) -> Answer:
    """Send until there is an answer worth keeping, or no attempt, budget or time is left.

    A pause that would outlast the deadline is not begun: the last failure says more than
    a timeout would.

    Raises:
        StageError: of the last attempt.
    """
    budget.note_call()
    attempt = 1
    while True:
        failure: StageError | None = None
        answer: Answer | None = None
        try:
            answer = await send()
            reason: int | str | None = None if answer.ok else answer.status
            retry_after = answer.retry_after
        except StageError as error:
            failure, reason, retry_after = error, _REASONS.get(error.sub), None
        pause = None
        if reason is not None and reason in retry.on:
            pause = pause_before(retry, attempt, retry_after, chance)
        too_late = pause is None or trio.current_time() + pause >= trio.current_effective_deadline()
        if pause is None or too_late or not budget.take():
            if failure is not None:
                raise failure
            if answer is not None:
                return answer
        await trio.sleep(pause or 0.0)
        attempt += 1
