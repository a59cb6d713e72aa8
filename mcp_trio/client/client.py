"""`MCPClient`: connect, find the era, call typed methods.

The connection is a nursery of the `async with` block: leaving the block ends every
call, tells the server what is still running, and closes the transport.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping
from types import TracebackType
from typing import Self

import trio

from mcp_trio.abc import Transport
from mcp_trio.client.answers import Answers, ClientCallbacks
from mcp_trio.client.calls import Calls
from mcp_trio.client.connection import Connection, Making
from mcp_trio.client.layers import ClientMiddleware, around
from mcp_trio.client.listening import Changes
from mcp_trio.client.negotiation import Agreed, Negotiation
from mcp_trio.client.options import ClientOptions
from mcp_trio.client.targets import Lines, Target
from mcp_trio.errors import (
    AlreadyConnectedError,
    MCPError,
    MethodNotFoundError,
    TransportClosedError,
    TransportError,
    sole_cause,
)
from mcp_trio.events import EventHub, Reporter
from mcp_trio.jsonrpc.messages import Error, Notification, Request, Result
from mcp_trio.session.call import ProgressCallback
from mcp_trio.session.inbound import Inbound, Runner
from mcp_trio.session.middleware import without
from mcp_trio.session.session import Dispatcher
from mcp_trio.wire import Implementation, JSONObject, Revision, ServerCapabilities
from mcp_trio.wire.converter import to_wire
from mcp_trio.wire.notices import SubscriptionFilter


class MCPClient(Calls):
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
        self._answers = Answers(callbacks or ClientCallbacks())
        making = Making(
            session=self._make_session, negotiation=self._negotiate, opened=self._opened
        )
        self._connection = Connection(Lines(target, self.options.auth), self.options, making)
        self._nursery: trio.Nursery | None = None
        self._exits = contextlib.AsyncExitStack()
        self._entered = False
        self._revision: Revision | None = None
        self._listeners: set[Changes] = set()
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
        try:
            return await self._exits.__aexit__(kind, error, traceback)
        except BaseExceptionGroup as group:
            cause = sole_cause(group)
            if cause is error:
                return False
            raise cause from None

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
        await self._nursery.start(self._connection.run)
        self._exits.push_async_callback(self._connection.close)

    def _make_session(self, transport: Transport) -> Dispatcher:
        return Dispatcher(transport, _Callbacks(self), reporter=Reporter(self.events, "client"))

    def _negotiate(self, transport: Transport, session: Dispatcher) -> Negotiation:
        return Negotiation(
            transport=transport,
            session=session,
            options=self.options,
            declared=self._answers.callbacks.capabilities,
            mirrored=self._mirrored,
        )

    async def _opened(self, session: Dispatcher, agreed: Agreed) -> None:
        """Take in what the server says of itself, and watch again what was watched (D4)."""
        self._revision = agreed.revision
        self.capabilities = agreed.capabilities
        self.server_info = agreed.server_info
        self.instructions = agreed.instructions
        for changes in tuple(self._listeners):
            if changes.resource is not None:
                try:
                    await session.call(
                        "resources/subscribe",
                        {"uri": changes.resource},
                        timeout=self.options.probe_timeout,
                    )
                except MCPError as error:
                    changes.fail(error)

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
        timeout: float | None = None,  # noqa: ASYNC109 - the server has to be told
        on_progress: ProgressCallback | None = None,
    ) -> JSONObject:
        """Call any method and get its result as it came; see `Dispatcher.call`.

        What the server asks meanwhile is answered by the callbacks, within the same time.

        Raises:
            ProtocolError: the server asks for what was not declared, or too often.
            Exception: in the stateless era whatever a callback raises.
        """
        limit = self.options.timeout if timeout is None else timeout
        await self._connection.usable()

        async def core(method: str, params: JSONObject | None) -> JSONObject:
            async def send(params: JSONObject | None, within: float) -> JSONObject:
                return await self.session.call(
                    method, params, timeout=within, on_progress=on_progress
                )

            if not self.revision.stateless:
                return await send(params, limit)
            return await self._answers.in_rounds(
                send, params, self.revision, timeout=limit, max_rounds=self.options.max_rounds
            )

        return await around(self._layers, core)(method, params)

    def add_middleware(self, layer: ClientMiddleware) -> None:
        """Put a layer around every call, inside those added before."""
        self._layers = (*self._layers, layer)

    def remove_middleware(self, layer: ClientMiddleware) -> None:
        """Take a layer away.

        Raises:
            NotFoundError: it was not added.
        """
        self._layers = without(self._layers, layer)

    @contextlib.asynccontextmanager
    async def listen(
        self,
        *,
        tools: bool = False,
        prompts: bool = False,
        resources: bool = False,
        resource: str | None = None,
    ) -> AsyncGenerator[Changes, None]:
        """Hear of changes while the block runs; of the tool list if nothing is named.

        Iterating gives the method name of each change, followed by the URI if it has one; a
        burst that nobody has looked at yet is one change.

        Args:
            tools: changes of the tool list.
            prompts: changes of the prompt list.
            resources: changes of the resource list.
            resource: changes of the resource with this URI.
        """
        nothing = not (tools or prompts or resources or resource)
        wanted = SubscriptionFilter(
            tools_list_changed=tools or nothing,
            prompts_list_changed=prompts,
            resources_list_changed=resources,
            resource_subscriptions=[resource] if resource else None,
        )
        changes = Changes(wanted)
        if not self.revision.stateless:
            async with self._watching(changes, resource):
                yield changes
            return
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._subscribe, changes, wanted)
                await changes.started()
                yield changes
                nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            cause = sole_cause(group)
            if cause is group:
                raise
            raise cause from cause.__cause__

    @contextlib.asynccontextmanager
    async def _watching(self, changes: Changes, resource: str | None) -> AsyncGenerator[None, None]:
        """Listen in a session, where lists are told anyway and resources when asked for."""
        self._listeners.add(changes)
        try:
            if resource is not None:
                await self.call("resources/subscribe", {"uri": resource})
            yield
            if resource is not None:
                await self.call("resources/unsubscribe", {"uri": resource})
        finally:
            self._listeners.discard(changes)

    async def _subscribe(self, changes: Changes, wanted: SubscriptionFilter) -> None:
        while True:
            session = self.session
            try:
                await session.call(
                    "subscriptions/listen",
                    {"notifications": to_wire(wanted, self.revision)},
                    on_notification=changes.deliver,
                )
            except TransportError as error:
                if not await self._connection.renewed(session):
                    changes.fail(error)
                    return
            except MCPError as error:
                changes.fail(error)
                return
            else:
                changes.end()
                return

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

    def told(self, notification: Notification) -> None:
        """Take a notification that belongs to no request. Called by the session."""
        for changes in self._listeners:
            changes.deliver(notification)


class _Callbacks:
    """What the client answers when the server asks live: a ping, and what `answers` can."""

    batches = False

    def __init__(self, client: MCPClient) -> None:
        self._client = client

    def admit(self, request: Request, headers: Mapping[str, str] | None) -> Runner:  # noqa: ARG002 - the contract
        if request.method != "ping":
            return self._client.answer_live(request)

        async def run(inbound: Inbound) -> Result | Error:  # noqa: ARG001 - the contract
            await trio.lowlevel.checkpoint()
            return Result(request.id, {})

        return run

    def notified(self, notification: Notification) -> None:
        self._client.told(notification)
