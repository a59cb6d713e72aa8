"""`MCPClient`: connect, find the era, call typed methods.

The connection is a nursery of the `async with` block: leaving the block ends every
call and closes the transport, from which the server knows that nobody waits any more.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from types import TracebackType
from typing import Self

import trio

from mcp_trio.abc import Transport
from mcp_trio.client.answers import Answers, ClientCallbacks
from mcp_trio.client.block import leave
from mcp_trio.client.cache import ResponseCache
from mcp_trio.client.connection import Connection, Making
from mcp_trio.client.layers import ClientMiddleware, around
from mcp_trio.client.listening import MISSED, Listening
from mcp_trio.client.negotiation import Agreed, Negotiation
from mcp_trio.client.options import ClientOptions
from mcp_trio.client.targets import Lines, Target
from mcp_trio.client.tidings import KINDS, Tidings
from mcp_trio.engine.subscriptions import TOOLS_CHANGED
from mcp_trio.errors import (
    AlreadyConnectedError,
    MCPError,
    MethodNotFoundError,
    RequestTimeoutError,
    SessionExpiredError,
    TransportClosedError,
    sole_cause,
)
from mcp_trio.events import EventHub, Reporter
from mcp_trio.jsonrpc.messages import Error, Notification, Request, Result
from mcp_trio.session.call import ProgressCallback, TimeLimit, time_limit
from mcp_trio.session.inbound import Inbound, Runner
from mcp_trio.session.middleware import without
from mcp_trio.session.session import Dispatcher
from mcp_trio.wire import Implementation, JSONObject, Revision, ServerCapabilities

logger = logging.getLogger("mcp_trio.client")


class MCPClient(Listening):
    """A connection to an MCP server.

    Use it as `async with MCPClient(target) as client`. Cancelling the block, or leaving
    it, ends every call. A failure in it surfaces as itself, not inside a group.
    """

    def __init__(
        self,
        target: Target,
        *,
        callbacks: ClientCallbacks | None = None,
        options: ClientOptions | None = None,
    ) -> None:
        """Make a client; nothing is opened yet.

        Args:
            target: a URL (`http://host/mcp` for Streamable HTTP, `ws://host/mcp`,
                `unix:///path`, `tcp://host:port`, and `https` and `wss`), a program (a list of
                text, or a `Command`), a server of this process, or any `Transport`, which is
                taken over.
            callbacks: answer what the server asks; just that is declared to it.
            options: rarely needed settings.

        Raises:
            ConfigurationError: a target of another kind, or `auth` with one that is no http URL.
        """
        super().__init__()
        self.options = options or ClientOptions()
        self._checks_output = self.options.check_output
        self._backoff = self.options.reconnect
        self._answers = Answers(callbacks or ClientCallbacks())
        self._tidings = Tidings(self._answers.callbacks)
        making = Making(
            session=self._make_session, negotiation=self._negotiate, opened=self._opened
        )
        lines = Lines(target, self.options)
        self._cache = ResponseCache(self.options.cache, lines) if self.options.cache else None
        self._connection = Connection(lines, self.options, making)
        self._nursery: trio.Nursery | None = None
        self._exits = contextlib.AsyncExitStack()
        self._entered = False
        self._revision: Revision | None = None
        self._layers: tuple[ClientMiddleware, ...] = ()
        self.events = EventHub()
        """What happens, for observers; see `mcp_trio.events`."""
        self.capabilities = ServerCapabilities()
        """What the server offers; empty until connected."""
        self.server_info: Implementation | None = None
        """Who the server says it is; for display only."""
        self.instructions: str | None = None
        """The server's advice for the model."""

    # -- connecting ----------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Connect and find out the era.

        Raises:
            AlreadyConnectedError: the object has been connected before.
            VersionMismatchError: no revision in common.
            UnauthorizedError: the server wants to know first who asks.
            TransportError: the server cannot be reached.
            MCPError: whatever else the server answered.
        """
        if self._entered:
            raise AlreadyConnectedError("this client has been connected before; make another one")
        self._entered = True
        await self._exits.__aenter__()
        try:
            await self._connect()
        except BaseException as error:
            cause = sole_cause(error)
            try:
                await self._exits.__aexit__(type(error), error, error.__traceback__)
            except BaseExceptionGroup as group:
                cause = sole_cause(group)
            if cause is error:
                raise
            raise cause from None
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        """Close the connection, in the order opposite to opening; bounded in time.

        Raises:
            RuntimeError: it is not its turn; nothing has been closed yet. Says what to do.
        """
        self._check_turn()
        return await leave(self._exits, kind, error, traceback)

    def _check_turn(self) -> None:
        """Notice what would confuse Trio, while everything is still in order."""
        nurseries = trio.lowlevel.current_task().child_nurseries
        if self._nursery is None or nurseries[-1:] == [self._nursery]:
            return
        if self._nursery in nurseries:
            raise RuntimeError(
                "what was opened after this client, in the same task, has to be closed before it: "
                "leave the blocks in the order opposite to entering them, or put them on one "
                "AsyncExitStack, or give each client a task of its own"
            )
        raise RuntimeError(
            "a client is closed by the task that opened it: to share it, open it in one task and "
            "hand it to the others, which may all call it"
        )

    async def _connect(self) -> None:
        self._nursery = await self._exits.enter_async_context(trio.open_nursery())
        self._exits.callback(self._nursery.cancel_scope.cancel)
        self._nursery.start_soon(self._tidings.run)
        await self._nursery.start(self._run)
        self._exits.push_async_callback(self._connection.close)
        if self.revision.stateless and self._answers.callbacks.list_changed is not None:
            self._nursery.start_soon(self._listen_for_callback)

    async def _run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        try:
            await self._connection.run(task_status=task_status)
        finally:
            self._session_over()

    def _make_session(self, transport: Transport) -> Dispatcher:
        return Dispatcher(transport, _Callbacks(self), reporter=Reporter(self.events, "client"))

    def _negotiate(self, transport: Transport, session: Dispatcher) -> Negotiation:
        return Negotiation(
            transport=transport,
            session=session,
            options=self.options,
            declared=self._answers.callbacks.capabilities,
            mirrored=self._mirrored,
            settled=self._settled,
        )

    def _settled(self, revision: Revision) -> None:
        self._revision = revision

    async def _opened(self, session: Dispatcher, agreed: Agreed) -> None:
        """Take in what the server says of itself, and watch again what was watched (D4)."""
        self._revision = agreed.revision
        self.capabilities = agreed.capabilities
        self.server_info = agreed.server_info
        self.instructions = agreed.instructions
        self.forget()
        await self._resume(session, within=self.options.probe_timeout)

    @property
    def session(self) -> Dispatcher:
        """The session below, for methods this class does not have.

        Raises:
            TransportClosedError: not connected.
        """
        return self._connection.session

    @property
    def revision(self) -> Revision:
        """The revision in use.

        Raises:
            TransportClosedError: not connected.
        """
        if self._revision is None:
            raise TransportClosedError("the client is not connected")
        return self._revision

    # -- calling -------------------------------------------------------------------

    async def call(
        self,
        method: str,
        params: JSONObject | None = None,
        *,
        timeout: float | TimeLimit | None = None,  # noqa: ASYNC109 - the server has to be told
        on_progress: ProgressCallback | None = None,
        cache: bool = True,
    ) -> JSONObject:
        """Call any method and get its result as it came; see `Dispatcher.call`.

        What the server asks meanwhile is answered by the callbacks, within the same time.

        Args:
            method: its name.
            params: its parameters.
            timeout: seconds for all of it, or a `TimeLimit`; else `ClientOptions.timeout`.
            on_progress: called in this task with progress, total and message.
            cache: False asks the server even if a fresh answer is kept.

        Raises:
            ProtocolError: the server asks for what was not declared, or too often.
            Exception: in the stateless era whatever a callback raises.
        """
        limit = await self._usable(time_limit(self.options.timeout if timeout is None else timeout))

        async def core(method: str, params: JSONObject | None) -> JSONObject:
            sent = 0
            deadline = trio.current_time() + limit.total

            async def send(params: JSONObject | None, within: TimeLimit) -> JSONObject:
                nonlocal sent
                sent += 1
                return await self._asked(method, params, within, on_progress)

            async def ask() -> tuple[JSONObject, bool]:
                answer = await self._answers.in_rounds(
                    send,
                    params,
                    self.revision,
                    limit=limit.until(deadline),
                    max_rounds=self.options.max_rounds,
                )
                return answer, sent == 1

            if not self.revision.stateless:
                return await send(params, limit)
            if self._cache is None:
                return (await ask())[0]
            return await self._cache.through(method, params, ask, use=cache, deadline=deadline)

        return await around(self._layers, core)(method, params)

    async def _asked(
        self,
        method: str,
        params: JSONObject | None,
        limit: TimeLimit,
        on_progress: ProgressCallback | None,
    ) -> JSONObject:
        """Send a request, once more in another session if the server has forgotten this one."""
        session = self.session
        deadline = trio.current_time() + limit.total
        try:
            return await session.call(method, params, timeout=limit, on_progress=on_progress)
        except SessionExpiredError as error:
            with trio.move_on_at(deadline) as scope:
                if not await self._connection.replaced(session):
                    raise
            if scope.cancelled_caught:
                raise RequestTimeoutError(
                    f"there was no other session within {limit.total} s"
                ) from error
        left = limit.until(deadline)
        return await self.session.call(method, params, timeout=left, on_progress=on_progress)

    def forget(self, method: str | None = None) -> None:
        """Drop the answers that are kept, or those to one method.

        With those to `tools/list` goes what they promise of structured content.

        Args:
            method: None for every method.
        """
        if method in {None, "tools/list"}:
            self._outputs.forget()
        if self._cache is not None:
            self._cache.forget(method)

    async def _usable(self, limit: TimeLimit) -> TimeLimit:
        """Wait, within the limit, while the line is opened again; what is left of it."""
        if not self.session.closed:
            return limit
        deadline = trio.current_time() + limit.total
        with trio.move_on_at(deadline) as scope:
            await self._connection.usable()
        if scope.cancelled_caught:
            raise RequestTimeoutError(f"the server was not there again within {limit.total} s")
        return limit.until(deadline)

    async def _renewed(self, session: Dispatcher) -> bool:
        return await self._connection.renewed(session)

    def add_middleware(self, layer: ClientMiddleware) -> None:
        """Put a layer around every call, inside those added before."""
        self._layers = (*self._layers, layer)

    def remove_middleware(self, layer: ClientMiddleware) -> None:
        """Take a layer away.

        Raises:
            NotFoundError: it was not added.
        """
        self._layers = without(self._layers, layer)

    # -- what the server tells -------------------------------------------------------

    def _heard(self, notification: Notification) -> None:
        if notification.method == TOOLS_CHANGED:
            self._outputs.forget()
        if self._cache is not None:
            self._cache.outdate(notification)
        # A server may speak before it is known how it speaks; what it says reads the same then.
        revision = self._revision or self.options.revisions[0]
        # Without a session each stream tells of lists; the callback has one of its own.
        if notification.method not in KINDS or not revision.stateless:
            self._tidings.tell(notification, revision)

    async def _listen_for_callback(self) -> None:
        """Hear of all lists that the server says may change, for `list_changed`."""
        offered = {
            "tools": self.capabilities.tools,
            "prompts": self.capabilities.prompts,
            "resources": self.capabilities.resources,
        }
        wanted = {kind: bool((says or {}).get("listChanged")) for kind, says in offered.items()}
        if not any(wanted.values()):
            return
        methods = [method for method, kind in KINDS.items() if wanted[kind]]
        try:
            async with self.listen(
                tools=wanted["tools"], prompts=wanted["prompts"], resources=wanted["resources"]
            ) as changes:
                async for change in changes:
                    for method in methods if change == MISSED else [change]:
                        self._tidings.tell(Notification(method), self.revision)
        except MCPError as error:
            logger.warning("the server cannot be listened to for changes: %s", error)

    @property
    def takes_batches(self) -> bool:
        """Whether the server may send several messages in an array."""
        return self._revision is not None and self._revision.batches

    def answer_live(self, request: Request) -> Runner:
        """Accept a request of the server. Called by the session, in wire order.

        Raises:
            MethodNotFoundError: nothing that this client answers in this revision.
        """
        if self._revision is None:
            raise MethodNotFoundError("Method not found")
        return self._answers.admit(request, self._revision)

    async def notify_roots_changed(self) -> None:
        """Tell the server that its next look at the roots will show others (F8).

        Does nothing where a server looks anew in each call.
        """
        if not self.revision.stateless:
            await self.session.notify("notifications/roots/list_changed")


class _Callbacks:
    """What the client answers when the server asks live: a ping, and what `answers` can."""

    def __init__(self, client: MCPClient) -> None:
        self._client = client

    @property
    def batches(self) -> bool:
        """Whether the revision in use has batches (B5)."""
        return self._client.takes_batches

    def admit(self, request: Request, headers: Mapping[str, str] | None) -> Runner:  # noqa: ARG002 - the contract
        if request.method != "ping":
            return self._client.answer_live(request)

        async def run(inbound: Inbound) -> Result | Error:  # noqa: ARG001 - the contract
            await trio.lowlevel.checkpoint()
            return Result(request.id, {})

        return run

    def notified(self, notification: Notification) -> None:
        self._client.told(notification)
