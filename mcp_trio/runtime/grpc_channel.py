"""Channels of grpcio under Trio: its futures and threads, bridged by callbacks.

grpcio works in threads of its own. A call is sent without waiting, its end comes back by
`TrioToken.run_sync_soon`; a stream is read by one worker thread that waits until each
message is taken. Leaving a call cancels it, on the wire too. Messages are bytes here. Needs
the extra `grpc`.
"""

from __future__ import annotations

import base64
import contextlib
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, cast

import attrs
import grpc  # pyright: ignore[reportMissingTypeStubs]  # it has none
import trio

from mcp_trio.network_guard import Guard
from mcp_trio.runtime.connections import Connections
from mcp_trio.runtime.grpc_connection import GrpcConnection
from mcp_trio.runtime.stages import Stage, StageError

MAX_STREAMS = 100
"""Streams of one connection that are read at once; others wait, within their time."""
CLOSE_AFTER = 1.0
"""Seconds until a channel that nobody uses any more is closed."""
_grpc = cast("Any", grpc)
_READY = _grpc.ChannelConnectivity.READY
_LOST = (_grpc.ChannelConnectivity.TRANSIENT_FAILURE, _grpc.ChannelConnectivity.SHUTDOWN)
_IDLE = _grpc.ChannelConnectivity.IDLE


class _Running(Protocol):
    """The part of grpcio's futures and streams that is used here."""

    def __iter__(self) -> Iterator[bytes]: ...
    def add_done_callback(self, done: Callable[[object], None]) -> None: ...
    def add_callback(self, done: Callable[[], None]) -> bool: ...
    def cancel(self) -> bool: ...
    def code(self) -> Any: ...
    def details(self) -> str | None: ...
    def result(self) -> bytes: ...
    def initial_metadata(self) -> Sequence[tuple[str, str | bytes]] | None: ...
    def trailing_metadata(self) -> Sequence[tuple[str, str | bytes]] | None: ...


@attrs.frozen(kw_only=True)
class Request:
    """One call, ready to send."""

    path: str
    """`/package.Service/Method`."""
    message: bytes
    metadata: Mapping[str, str]
    timeout: float
    """Seconds, sent as `grpc-timeout`."""


@attrs.frozen(kw_only=True)
class Ended:
    """How a call ended."""

    code: str
    """The name of the status: `OK`, `NOT_FOUND`."""
    details: str
    metadata: Mapping[str, str]
    """Initial and trailing, by name; of `-bin` ones the base64."""
    message: bytes = b""
    """Of a call with one answer that went well."""


class Channel:
    """The channel to one server for answers up to a size. A resource of `Connections`.

    One that cannot connect is made anew by the next call, with addresses asked for anew.
    """

    def __init__(
        self, connections: Connections, connection: GrpcConnection, max_bytes: int
    ) -> None:
        self._resolve = connections.resolver
        self._connection = connection
        self._max_bytes = max_bytes
        self._token = trio.lowlevel.current_trio_token()
        self._opening = trio.Lock()
        self._readers = trio.CapacityLimiter(MAX_STREAMS)
        self._channel: Any = None
        self._state: object = None
        self._changed = trio.Event()
        self._watcher: Callable[[object], None] | None = None
        self._running: set[_Running] = set()

    async def connect(self, within: float) -> None:
        """Wait until it is connected; done at once if it is.

        Raises:
            StageError: it is not in time, or cannot be.
        """
        with trio.move_on_after(within) as waiting:
            async with self._opening:
                await self._connect()
        if waiting.cancelled_caught:
            raise StageError(
                Stage.ADAPTER_EXECUTION,
                "no connection to the upstream in time",
                sub="timeout",
                code="connect",
                retryable=True,
            )

    async def _connect(self) -> None:
        if self._channel is None:
            self._open(await self._addresses())
        if self._state is _READY:
            return
        self._subscribe()
        try:
            while self._state is not _READY:
                if self._state in _LOST:
                    self._drop()
                    raise StageError(
                        Stage.ADAPTER_EXECUTION,
                        "the upstream cannot be reached",
                        sub="connect",
                        retryable=True,
                    )
                if self._state is _IDLE:
                    self._state = None
                    self._subscribe()
                await self._changed.wait()
        finally:
            if self._channel is not None:
                self._unsubscribe()

    async def _addresses(self) -> list[str]:
        """The addresses of the host that may be reached; the guard judges each."""
        http = self._connection.http
        guard = Guard(host=http.host, policy=http.network)
        try:
            found = await self._resolve(http.host, self._connection.port)
        except OSError as error:
            raise StageError(
                Stage.ADAPTER_EXECUTION,
                "the upstream's name has no address",
                sub="connect",
                retryable=True,
            ) from error
        allowed = [address for address in found if guard.refusal(http.host, address) is None]
        if not allowed:
            reason = guard.refusal(http.host, found[0]) if found else "no address"
            raise StageError(
                Stage.ADAPTER_EXECUTION,
                f"the network policy does not allow the upstream's address: {reason}",
                sub="policy_block",
                step="operator",
            )
        # One family: grpcio takes no mixture.
        family = ":" in allowed[0]
        return [address for address in allowed if (":" in address) is family]

    def _open(self, addresses: Sequence[str]) -> None:
        connection, host = self._connection, self._connection.http.host
        if ":" in addresses[0]:
            target = "ipv6:" + ",".join(f"[{address}]:{connection.port}" for address in addresses)
        else:
            target = "ipv4:" + ",".join(f"{address}:{connection.port}" for address in addresses)
        authority = f"[{host}]" if ":" in host else host
        options = [
            ("grpc.default_authority", f"{authority}:{connection.port}"),
            ("grpc.enable_http_proxy", 0),
            # Policies of operations decide about that.
            ("grpc.enable_retries", 0),
            ("grpc.max_receive_message_length", self._max_bytes),
            ("grpc.max_send_message_length", -1),
            # Else channels to one address share sockets and their fate.
            ("grpc.use_local_subchannel_pool", 1),
        ]
        if connection.tls:
            options.append(("grpc.ssl_target_name_override", host))
            self._channel = _grpc.secure_channel(target, self._credentials(), options=options)
        else:
            self._channel = _grpc.insecure_channel(target, options=options)
        self._state = None

    def _credentials(self) -> object:
        http = self._connection.http
        files = http.client_certificate
        try:
            roots = Path(http.verify_tls).read_bytes() if isinstance(http.verify_tls, str) else None
            key = None if files is None else files.key.read_bytes()
            chain = None if files is None else files.certificate.read_bytes()
        except OSError as error:
            raise StageError(
                Stage.ADAPTER_EXECUTION,
                "a certificate of the connection cannot be read",
                sub="tls",
                step="operator",
            ) from error
        return cast(
            "object",
            _grpc.ssl_channel_credentials(
                root_certificates=roots, private_key=key, certificate_chain=chain
            ),
        )

    def _subscribe(self) -> None:
        channel = self._channel

        def changed(state: object) -> None:
            with contextlib.suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._note, channel, state)

        self._unsubscribe()
        self._watcher = changed
        channel.subscribe(changed, try_to_connect=True)

    def _unsubscribe(self) -> None:
        """Stop watching: grpcio has a thread for that as long as somebody does."""
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            self._channel.unsubscribe(watcher)

    def _note(self, channel: object, state: object) -> None:
        if channel is self._channel and state is not self._state:
            self._state = state
            self._changed.set()
            self._changed = trio.Event()

    async def call(self, request: Request) -> Ended:
        """Send a call with one answer, and wait for its end. Cancelling cancels it."""
        send = self._channel.unary_unary(request.path)
        running = cast(
            "_Running",
            send.future(
                request.message, timeout=request.timeout, metadata=tuple(request.metadata.items())
            ),
        )
        over = trio.Event()

        def done(_future: object) -> None:
            with contextlib.suppress(trio.RunFinishedError):
                self._token.run_sync_soon(over.set)

        running.add_done_callback(done)
        self._running.add(running)
        try:
            await over.wait()
        finally:
            self._running.discard(running)
            running.cancel()
        ended = _ended(running)
        self._doubt(ended.code)
        return attrs.evolve(ended, message=running.result()) if ended.code == "OK" else ended

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[Stream]:
        """Send a call with a stream of answers. Leaving the block cancels it."""
        send = self._channel.unary_stream(request.path)
        running = cast(
            "_Running",
            send(
                request.message, timeout=request.timeout, metadata=tuple(request.metadata.items())
            ),
        )
        into, out = trio.open_memory_channel[bytes](0)
        failure: Exception | None = None
        self._running.add(running)
        try:
            async with trio.open_nursery() as nursery, out:
                nursery.start_soon(self._pump, running, into)
                try:
                    yield Stream(running, out, self._doubt)
                except Exception as error:  # noqa: BLE001 - raised again, outside of the group
                    failure = error
                running.cancel()
                nursery.cancel_scope.cancel()
        finally:
            self._running.discard(running)
            running.cancel()
        if failure is not None:
            raise failure

    async def _pump(self, running: _Running, into: trio.MemorySendChannel[bytes]) -> None:
        with into:
            # Abandoned when left: cancelling the call brings the thread back at once.
            await trio.to_thread.run_sync(
                _read, running, into, abandon_on_cancel=True, limiter=self._readers
            )

    def _doubt(self, code: str) -> None:
        """Look again before the next call whether there is a connection."""
        if code == "UNAVAILABLE":
            self._state = None

    def _drop(self) -> None:
        if self._channel is None:
            return
        self._unsubscribe()
        channel, self._channel, self._state = self._channel, None, None
        for running in list(self._running):
            running.cancel()
        # Later, and not waited for: the thread that watched looks at it every 0.2 seconds, and
        # does not bear to find it closed.
        closing = threading.Timer(CLOSE_AFTER, channel.close)
        closing.daemon = True
        closing.start()

    async def aclose(self) -> None:
        """Close it, and cut what is running."""
        self._drop()
        await trio.lowlevel.checkpoint()


class Stream:
    """The answers of a call, as they come, and how it ended."""

    def __init__(
        self,
        running: _Running,
        messages: trio.MemoryReceiveChannel[bytes],
        note: Callable[[str], None],
    ) -> None:
        self._running = running
        self._note = note
        self.messages = messages
        """Ends when the call does."""

    def ended(self) -> Ended:
        """How it ended; after the last message."""
        ended = _ended(self._running)
        self._note(ended.code)
        return ended


def _read(running: _Running, into: trio.MemorySendChannel[bytes]) -> None:
    # A failure is a status, asked for when the messages have ended.
    with contextlib.suppress(_grpc.RpcError, trio.BrokenResourceError, trio.Cancelled):
        for message in running:
            trio.from_thread.run(into.send, message)


def _ended(running: _Running) -> Ended:
    metadata: dict[str, str] = {}
    for name, value in (*(running.initial_metadata() or ()), *(running.trailing_metadata() or ())):
        text = base64.b64encode(value).decode() if isinstance(value, bytes) else value
        metadata[name] = f"{metadata[name]}, {text}" if name in metadata else text
    return Ended(code=str(running.code().name), details=running.details() or "", metadata=metadata)
