"""What Hypercorn's protocol classes expect around them: config, worker context, clearable event.

Their stock counterparts bring logging set-up, access logs and a Date header formatted for every
answer; these bring what the protocol classes really use. Nothing here runs by itself.
"""

import time
from collections.abc import Awaitable, Callable
from wsgiref.handlers import format_date_time

import attrs
import trio
from hypercorn import typing as hypercorn_typing
from hypercorn.config import Config
from hypercorn.events import Event
from hypercorn.logging import Logger

from .budget import Budget
from .serving_settings import ServingSettings


class QuietLogger(Logger):
    """Hypercorn's logger without an output: the connection logs faults itself."""

    async def access(
        self,
        request: hypercorn_typing.WWWScope,
        response: hypercorn_typing.ResponseSummary,
        request_time: float,
    ) -> None:
        """Log nothing: the application knows more about a request than this level does."""


class ProtocolConfig(Config):
    """Hypercorn's configuration, reduced to what the protocol classes read."""

    accesslog = None
    errorlog = None
    include_server_header = False
    logger_class = QuietLogger
    # `HTTP1` counts itself; `H2Protocol` would cut its streams short at the limit.
    keep_alive_max_requests = 2**62

    def __init__(self, settings: ServingSettings) -> None:
        self.h11_max_incomplete_size = settings.max_header_bytes
        self.h2_max_header_list_size = settings.max_header_bytes
        self.h2_max_concurrent_streams = settings.max_concurrent_streams
        self.websocket_max_message_size = settings.max_websocket_message_bytes
        self.messages = Budget(settings.max_total_websocket_bytes)
        """What WebSocket messages hold that have yet to arrive whole."""
        self._date_second = 0
        self._date_headers: list[tuple[bytes, bytes]] = []

    def response_headers(self, protocol: str) -> list[tuple[bytes, bytes]]:
        """Return the Date header, formatted once a second. The list is not to be changed."""
        del protocol
        now = int(time.time())
        if now != self._date_second:
            self._date_second = now
            self._date_headers = [(b"date", format_date_time(now).encode("ascii"))]
        return self._date_headers


class Signal:
    """Hypercorn's clearable event, on a `trio.Event`."""

    def __init__(self) -> None:
        self._event = trio.Event()

    async def wait(self) -> None:
        """Wait until set. Cancellable."""
        await self._event.wait()

    async def set(self) -> None:
        """Set, without waiting."""
        self._event.set()

    async def clear(self) -> None:
        """Unset; those who wait already are not affected."""
        if self._event.is_set():
            self._event = trio.Event()

    def is_set(self) -> bool:
        """Whether `wait` would return at once."""
        return self._event.is_set()

    def notify(self) -> None:
        """Set, for callers that are not async."""
        self._event.set()


class NoTimer:
    """Hypercorn's restartable task, of which only its QUIC transport makes use."""

    async def restart(
        self, task_group: hypercorn_typing.TaskGroup, action: Callable[..., object]
    ) -> None:
        """Refuse: our deadlines belong to the reader's scope."""
        raise NotImplementedError

    async def stop(self) -> None:
        """Nothing was started."""


class WorkerContext:
    """Hypercorn's view of the process: one per service."""

    event_class: type[hypercorn_typing.Event] = Signal
    single_task_class: type[hypercorn_typing.SingleTask] = NoTimer

    def __init__(self) -> None:
        self.terminate: hypercorn_typing.Event = Signal()
        self.draining = Signal()
        self.terminated: hypercorn_typing.Event = self.draining
        """Set by drain: answers say ``Connection: close``, new HTTP/2 streams are refused."""

    async def mark_request(self) -> None:
        """Hypercorn counts requests to recycle its worker; we have none."""

    @staticmethod
    async def sleep(wait: float) -> None:
        """Sleep ``wait`` seconds."""
        await trio.sleep(wait)

    @staticmethod
    def time() -> float:
        """Return the Trio clock."""
        return trio.current_time()


@attrs.frozen(kw_only=True)
class Surroundings:
    """What a protocol object is given of its connection and its service."""

    app: hypercorn_typing.AppWrapper
    """Passed back unused to `tasks`, which knows the application."""

    settings: ServingSettings
    """The limits."""

    config: ProtocolConfig
    """The same limits in Hypercorn's words."""

    context: WorkerContext
    """The process, in Hypercorn's words."""

    tasks: hypercorn_typing.TaskGroup
    """The connection, as the spawner of application tasks."""

    ssl: bool
    """Whether the scheme is https."""

    client: tuple[str, int] | None
    """The peer's address."""

    server: tuple[str, int] | None
    """Our address."""

    send: Callable[[Event], Awaitable[None]]
    """Takes bytes to write, the wish to close, and news of idleness. Never suspends."""

    flush: Callable[[], Awaitable[None]]
    """Writes what `send` has collected."""

    wake_reader: Callable[[], None]
    """Makes the reader call the protocol's ``resume``."""

    refused: Callable[[bytes, int], None]
    """Told the method, if it is known, and the status of a request that was refused without an
    application call."""

    def connection_state(self) -> hypercorn_typing.ConnectionState:
        """Return a new, empty ``scope["state"]``: there is no lifespan to fill it."""
        return hypercorn_typing.ConnectionState({})
