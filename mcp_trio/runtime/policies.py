"""How long, how often, how many at once: deadlines, retries and limits of calls.

`Settings` is what an operation and its connection agree on. Time is Trio's: whatever
deadline the caller's scope has lies over everything here without being passed along.
The circuit, the rates and the cache have modules of their own; `sending` uses them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import attrs
import trio

from mcp_trio.catalog.operation import Operation, OperationError
from mcp_trio.runtime.circuit import Circuit, CircuitPolicy
from mcp_trio.runtime.connections import Connection, Timeouts
from mcp_trio.runtime.result_cache import ResultCache
from mcp_trio.session.idle import Shelf
from mcp_trio.session.rates import Bucket, Rate
from mcp_trio.wire import JSONObject

RETRYABLE_STATUSES = frozenset({408, 429, 502, 503, 504})
"""Answers that say: the same request may succeed later."""
_DEFAULT_REASONS: frozenset[int | str] = frozenset({*RETRYABLE_STATUSES, "connect", "timeout"})


MAX_KEPT = 100_000
"""Circuits, and rates, that are remembered; then the one of the longest silence begins anew."""


@attrs.frozen(kw_only=True)
class Retry:
    """When to send again."""

    max_attempts: int = 1
    """Requests in all, the first one included."""
    on: frozenset[int | str] = _DEFAULT_REASONS
    """Statuses, and `connect` or `timeout`."""
    backoff: float = 0.2
    """Seconds before the first retry; doubled each time."""
    max_backoff: float = 5.0
    """Seconds; an upstream that asks to wait longer is not asked again by this call."""


_DEFAULTS = Connection(name="")
"""Where the defaults of operations without a connection come from."""


@attrs.frozen(kw_only=True)
class Settings:
    """The execution settings of one operation, defaults filled in."""

    timeouts: Timeouts
    retry: Retry
    idempotent: bool | None
    """As declared; None leaves it to the protocol."""
    idempotency_key_header: str | None
    concurrency: int | None
    request_bytes: int
    response_bytes: int
    output_validation: str
    """`strict`, `warn` or `off`."""
    auth: str
    """As whom the upstream is asked: `connection`, `on_behalf_of` the caller, or `none`."""
    required_scopes: tuple[str, ...]
    circuit: CircuitPolicy | None
    rate: Rate | None
    cache_ttl: float | None
    """Seconds that good results are kept."""
    cache_vary: tuple[str, ...]
    """Expressions over the input context that tell answers apart."""
    items: int | None
    """Most items of an array in a result."""
    truncates: bool
    """Whether what is over the limit is cut off, in place of an error."""
    stream_progress: bool
    """Whether an answer may come as a stream, whose events are reported as progress."""

    def refuse_stream(self) -> None:
        """For adapters whose answers are never streams.

        Raises:
            OperationError: the operation asks for one.
        """
        if self.stream_progress:
            raise OperationError(
                "this protocol gives no stream", place="execution_config.stream_progress"
            )


def settings_of(operation: Operation, connection: Connection | None) -> Settings:
    """Read `execution_config` over the defaults of the connection.

    Raises:
        OperationError: it asks for something that this version does not have.
    """
    base = _DEFAULTS if connection is None else connection
    config = _over(base.defaults, operation.execution_config)
    _refuse_unsupported(config)
    limits = cast("JSONObject", config.get("limits") or {})
    cache = cast("JSONObject", config.get("cache") or {})
    return Settings(
        timeouts=_timeouts(
            cast("Mapping[str, int]", config.get("timeout_ms") or {}), base.timeouts
        ),
        retry=_retry(cast("JSONObject", config.get("retry") or {})),
        idempotent=cast("bool | None", config.get("idempotent")),
        idempotency_key_header=cast("str | None", config.get("idempotency_key_header")),
        concurrency=cast("int | None", config.get("concurrency")) or base.concurrency,
        request_bytes=cast("int", limits.get("request_bytes", base.request_bytes)),
        response_bytes=cast("int", limits.get("response_bytes", base.response_bytes)),
        output_validation=cast("str", config.get("output_validation", "strict")),
        auth=cast("str", config.get("auth", "connection")),
        required_scopes=tuple(cast("list[str]", config.get("required_scopes") or [])),
        circuit=_circuit(cast("JSONObject | None", config.get("circuit"))),
        rate=_rate(cast("JSONObject | None", config.get("rate_per_minute"))),
        cache_ttl=cast("float | None", cache.get("ttl_s")),
        cache_vary=tuple(cast("list[str]", cache.get("vary") or [])),
        items=cast("int | None", limits.get("items")),
        truncates=limits.get("on_exceed") == "truncate",
        stream_progress=config.get("stream_progress") is True,
    )


def _over(defaults: JSONObject, config: JSONObject) -> JSONObject:
    """The operation's settings over the connection's, key by key, one level deep."""
    made = {**defaults, **config}
    for key in defaults.keys() & config.keys():
        below, above = defaults[key], config[key]
        if isinstance(below, dict) and isinstance(above, dict):
            made[key] = {**cast("JSONObject", below), **cast("JSONObject", above)}
    return made


def _circuit(config: JSONObject | None) -> CircuitPolicy | None:
    if config is None:
        return None
    names = {
        "failure_rate": "failure_rate",
        "min_calls": "min_calls",
        "window_s": "window",
        "cooldown_s": "cooldown",
    }
    return CircuitPolicy(**{names[key]: cast("Any", value) for key, value in config.items()})


def _rate(config: JSONObject | None) -> Rate | None:
    if config is None:
        return None
    limit = cast("int", config["limit"])
    return Rate(per_minute=limit, per_caller=config.get("per") == "principal")


def _refuse_unsupported(config: JSONObject) -> None:
    # To ignore it would be a silent lie.
    task = config.get("task", "never")
    if task != "never":
        raise OperationError(f"execution_config.task {task} is not supported by this version")


def _timeouts(milliseconds: Mapping[str, int], base: Timeouts) -> Timeouts:
    return attrs.evolve(base, **{key: value / 1000 for key, value in milliseconds.items()})


def _retry(config: JSONObject) -> Retry:
    made = Retry()
    if "max_attempts" in config:
        made = attrs.evolve(made, max_attempts=cast("int", config["max_attempts"]))
    if "on" in config:
        made = attrs.evolve(made, on=frozenset(cast("list[int | str]", config["on"])))
    if "backoff_ms" in config:
        made = attrs.evolve(made, backoff=cast("int", config["backoff_ms"]) / 1000)
    if "max_backoff_ms" in config:
        made = attrs.evolve(made, max_backoff=cast("int", config["max_backoff_ms"]) / 1000)
    return made


class RetryBudget:
    """Keeps retries a small part of the calls to one upstream, so that they cannot feed a flood.

    Starts full; every call adds a tenth of a retry, every retry takes one.
    """

    MOST = 10.0

    def __init__(self) -> None:
        self._left = self.MOST

    def note_call(self) -> None:
        """Count a first attempt."""
        self._left = min(self.MOST, self._left + 0.1)

    def take(self) -> bool:
        """Take one retry, if there is one left."""
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


class Gatekeeper:
    """The state of policies that outlives a snapshot: budgets and limiters, by name.

    Belongs to the loop's thread. What nobody uses at the moment takes no memory, except
    one budget for each connection.
    """

    def __init__(self, chance: Callable[[], float]) -> None:
        self.chance = chance
        """Gives numbers from 0 to 1 for the jitter of retries."""
        self._budgets: dict[str, RetryBudget] = {}
        self._limiters: dict[tuple[str, str], trio.CapacityLimiter] = {}
        self._circuits = Shelf[tuple[str, str], Circuit](MAX_KEPT)
        self._buckets = Shelf[tuple[str, str, str | None], Bucket](MAX_KEPT)
        self.results = ResultCache()
        """Good results of operations that are cached."""

    def circuit(self, connection: str, operation_id: str, policy: CircuitPolicy) -> Circuit:
        """The circuit of an operation, with the policy of its newest version."""
        now = trio.current_time()
        found = self._circuits.get((connection, operation_id), lambda: Circuit(policy), now)
        found.policy = policy
        return found

    def take_rate(
        self, connection: str, operation_id: str, whose: str | None, rate: Rate
    ) -> float | None:
        """Take one call of a rate; else seconds until there is one."""
        now = trio.current_time()
        key = (connection, operation_id, whose)
        return self._buckets.get(key, lambda: Bucket(rate, now), now).take(rate, now)

    def budget(self, connection: str) -> RetryBudget:
        """The retry budget of a connection."""
        return self._budgets.setdefault(connection, RetryBudget())

    @property
    def limited(self) -> int:
        """How many limiters are in use."""
        return len(self._limiters)

    @asynccontextmanager
    async def place(
        self, connection: str, operation_id: str, concurrency: int | None
    ) -> AsyncGenerator[None]:
        """Hold one of `concurrency` places; wait for one as long as the scope allows.

        A new version of an operation shares the places with calls of the old one.
        """
        if concurrency is None:
            yield
            return
        key = (connection, operation_id)
        limiter = self._limiters.setdefault(key, trio.CapacityLimiter(concurrency))
        if limiter.total_tokens != concurrency:
            limiter.total_tokens = concurrency
        try:
            # One task may hold several places, through nested calls.
            holder = object()
            await limiter.acquire_on_behalf_of(holder)
            try:
                yield
            finally:
                limiter.release_on_behalf_of(holder)
        finally:
            held = limiter.statistics()
            if held.borrowed_tokens == 0 and held.tasks_waiting == 0:
                self._limiters.pop(key, None)


def pause_before(
    retry: Retry, attempt: int, retry_after: float | None, chance: float
) -> float | None:
    """Seconds to wait after failed attempt number `attempt`, from 1; None to give up."""
    if attempt >= retry.max_attempts:
        return None
    if retry_after is not None and retry_after > retry.max_backoff:
        return None
    backoff = min(retry.backoff * 2.0 ** (attempt - 1), retry.max_backoff)
    return max(backoff * (0.5 + 0.5 * chance), retry_after or 0.0)
