"""One call's way to its upstream: circuit, rate, a place, attempts, and one deadline over all."""

from __future__ import annotations

from functools import partial

import attrs
import trio

from mcp_trio.engine.envelope import Principal
from mcp_trio.runtime import watching
from mcp_trio.runtime.adapters.base import Answer, Send
from mcp_trio.runtime.circuit import Circuit
from mcp_trio.runtime.policies import RETRYABLE_STATUSES, Gatekeeper, Settings
from mcp_trio.runtime.retries import CIRCUIT_OPEN, send_with_retries
from mcp_trio.runtime.stages import Stage, StageError

_UPSTREAMS_FAULT = frozenset({"connect", "timeout", "disconnected", "tls", "malformed_reply"})
"""Subs of adapter failures that a circuit counts."""


@attrs.frozen(kw_only=True, eq=False)
class Sender:
    """Sends the requests of one operation. Immutable; what it remembers is the gatekeeper's."""

    operation_id: str
    upstream: str
    """Name of the connection; empty if there is none."""
    settings: Settings
    idempotent: bool
    gatekeeper: Gatekeeper

    async def send(self, send: Send, principal: Principal | None) -> Answer:
        """Send until there is an answer, within the operation's time and the caller's.

        Raises:
            StageError: there is none, or the policies do not let the call through.
        """
        circuit = self._circuit()
        attempt = _Attempt(partial(self._watched, send), circuit)
        total = self.settings.timeouts.total
        with trio.move_on_after(total) as scope:
            self._check_circuit(circuit)
            self._take_rate(principal)
            try:
                return await self._admitted(attempt.run)
            finally:
                attempt.close(too_slow=trio.current_time() >= scope.deadline)
        raise StageError(
            Stage.ADAPTER_EXECUTION,
            f"the upstream did not answer within {total:g} seconds",
            sub="timeout",
            code="total",
            retryable=self.idempotent,
        )

    async def _watched(self, send: Send) -> Answer:
        with watching.attempt(self.operation_id, self.upstream) as told:
            answer = await send()
            told(answer)
            return answer

    def _circuit(self) -> Circuit | None:
        policy = self.settings.circuit
        if policy is None:
            return None
        return self.gatekeeper.circuit(self.upstream, self.operation_id, policy)

    def _check_circuit(self, circuit: Circuit | None) -> None:
        wait = None if circuit is None else circuit.refusal(trio.current_time())
        if wait is not None:
            raise _circuit_open(wait)

    def _take_rate(self, principal: Principal | None) -> None:
        policy = self.settings.rate
        if policy is None:
            return
        whose = None if principal is None or not policy.per_caller else principal.identity
        wait = self.gatekeeper.take_rate(self.upstream, self.operation_id, whose, policy)
        if wait is not None:
            raise StageError(
                Stage.ADAPTER_EXECUTION,
                f"only {policy.per_minute:g} calls a minute are let through"
                + (" for each caller" if policy.per_caller else ""),
                sub="rate_limited",
                retryable=True,
                retry_after=wait,
            )

    async def _admitted(self, send: Send) -> Answer:
        gate, settings = self.gatekeeper, self.settings
        budget, retry = gate.budget(self.upstream), settings.retry
        async with gate.place(self.upstream, self.operation_id, settings.concurrency):
            budget.note_call()
            # What may not be sent twice has one attempt, whatever the operation asks for.
            if not self.idempotent or retry.max_attempts == 1:
                return await send()
            return await send_with_retries(send, retry, budget, gate.chance())


class _Attempt:
    """Sends once at a time and tells the circuit how that went."""

    def __init__(self, send: Send, circuit: Circuit | None) -> None:
        self._send = send
        self._circuit = circuit
        self._number: int | None = None
        """Of the attempt that the upstream is being asked by; stays when that is interrupted."""

    async def run(self) -> Answer:
        circuit = self._circuit
        if circuit is None:
            return await self._send()
        wait = circuit.refusal(trio.current_time())
        if wait is not None:
            raise _circuit_open(wait)
        self._number = circuit.enter()
        try:
            answer = await self._send()
        except StageError as error:
            self._end(good=error.sub not in _UPSTREAMS_FAULT)
            raise
        self._end(good=answer.ok or not _is_upstreams_fault(answer))
        return answer

    def close(self, *, too_slow: bool) -> None:
        """End an attempt that was interrupted: by the operation's time, or else by its caller."""
        if too_slow:
            self._end(good=False)
        elif self._circuit is not None and self._number is not None:
            self._circuit.abandon(self._number)
            self._number = None

    def _end(self, *, good: bool) -> None:
        if self._circuit is not None and self._number is not None:
            self._circuit.record(self._number, trio.current_time(), good=good)
            self._number = None


def _is_upstreams_fault(answer: Answer) -> bool:
    if answer.retryable is not None:
        return answer.retryable
    status = answer.status
    return status is not None and (status in RETRYABLE_STATUSES or status >= 500)


def _circuit_open(wait: float) -> StageError:
    return StageError(
        Stage.ADAPTER_EXECUTION,
        "the upstream has failed too often and is left alone for a while",
        sub=CIRCUIT_OPEN,
        retryable=True,
        retry_after=wait,
    )
