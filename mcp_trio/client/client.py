"""`MCPClient`: connect, find the era, call typed methods.

The connection is a nursery of the `async with` block: leaving the block ends every
call, tells the server what is still running, and closes the transport.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Self, TypeAlias, TypeVar, cast

import attrs
import trio

from mcp_trio.abc import Transport
from mcp_trio.client.answers import Answers, ClientCallbacks
from mcp_trio.client.layers import ClientMiddleware, around
from mcp_trio.client.listening import Changes
from mcp_trio.client.targets import check_url, open_url
from mcp_trio.eras.negotiate import (
    Step,
    best_common,
    classify,
    following,
    nothing_common,
    supported_by,
)
from mcp_trio.eras.stamps import HandshakeStamp, StatelessStamp
from mcp_trio.errors import (
    HEADER_MISMATCH,
    AlreadyConnectedError,
    ConfigurationError,
    MCPError,
    MethodNotFoundError,
    NotFoundError,
    ProtocolError,
    RemoteError,
    TransportClosedError,
    sole_cause,
)
from mcp_trio.events import EventHub, Reporter
from mcp_trio.framing.param_headers import ParamHeader, ParamHeaderError, param_headers
from mcp_trio.jsonrpc.messages import Error, Notification, Request, Result
from mcp_trio.server.server import MCPServer
from mcp_trio.session.call import ProgressCallback
from mcp_trio.session.inbound import Inbound, Runner
from mcp_trio.session.session import Dispatcher
from mcp_trio.transports.memory import MemoryTransport
from mcp_trio.transports.streamable_http import StreamableHTTPTransport
from mcp_trio.wire import (
    REVISIONS,
    CallToolResult,
    DiscoverResult,
    Implementation,
    InitializeResult,
    JSONObject,
    ListToolsResult,
    Revision,
    ServerCapabilities,
    Tool,
)
from mcp_trio.wire.converter import from_wire, to_wire
from mcp_trio.wire.meta import SERVER_INFO
from mcp_trio.wire.notices import SubscriptionFilter
from mcp_trio.wire.revisions import BY_DATE

logger = logging.getLogger("mcp_trio.client")
T = TypeVar("T")

Target: TypeAlias = "str | MCPServer | Transport"


def _revisions(given: Iterable[Revision | str]) -> tuple[Revision, ...]:
    """Take revisions by object or by date.

    Raises:
        ConfigurationError: a date that is no revision, or none at all.
    """
    found: list[Revision] = []
    for item in given:
        revision = BY_DATE.get(item) if isinstance(item, str) else item
        if revision is None:
            raise ConfigurationError(f"{item!r} is no revision; there are {', '.join(BY_DATE)}")
        found.append(revision)
    if not found:
        raise ConfigurationError("a client has to speak at least one revision")
    return tuple(found)


@attrs.frozen(kw_only=True)
class ClientOptions:
    """Rarely needed settings of a client."""

    info: Implementation = attrs.field(factory=lambda: Implementation(name="mcp_trio", version="0"))
    """How the program calls itself."""
    revisions: tuple[Revision, ...] = attrs.field(default=REVISIONS, converter=_revisions)
    """Revisions to speak, newest first, as `Revision`s or by date. One alone forces it, without
    asking the server first."""
    timeout: float = math.inf
    """Seconds for a call that names no timeout of its own."""
    probe_timeout: float = 10.0
    """Seconds to wait for an answer while finding out the era."""
    max_rounds: int = 16
    """Questions in a row that are answered in one call of the stateless era."""


class MCPClient:
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
                `unix:///path`, `tcp://host:port`, and `https` and `wss`), a server of this
                process, or any `Transport`, which is taken over.
            callbacks: answer what the server asks; just that is declared to it.
            options: rarely needed settings.

        Raises:
            ConfigurationError: a target of another kind.
        """
        if isinstance(target, str):
            check_url(target)
        self.options = options or ClientOptions()
        self._answers = Answers(callbacks or ClientCallbacks())
        self._target = target
        self._exits = contextlib.AsyncExitStack()
        self._entered = False
        self._session: Dispatcher | None = None
        self._revision: Revision | None = None
        self._annotations: dict[str, tuple[ParamHeader, ...]] = {}
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
            TransportError: the server cannot be reached.
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
        """Close the connection, in the order opposite to opening; bounded in time."""
        try:
            return await self._exits.__aexit__(kind, error, traceback)
        except BaseExceptionGroup as group:
            cause = sole_cause(group)
            if cause is error:
                return False
            raise cause from None

    async def _connect(self) -> None:
        transport = await self._transport()
        nursery = await self._exits.enter_async_context(trio.open_nursery())
        self._exits.callback(nursery.cancel_scope.cancel)
        if isinstance(self._target, MCPServer):
            ours, theirs = MemoryTransport.pair()
            transport = ours
            await nursery.start(_serve, self._target, theirs)
        reporter = Reporter(self.events, "client")
        session = Dispatcher(cast("Transport", transport), _Callbacks(self), reporter=reporter)
        self._session = session
        await nursery.start(session.run)
        await self._negotiate(transport)

    async def _transport(self) -> Transport | None:
        if isinstance(self._target, MCPServer):
            return None
        if isinstance(self._target, str):
            return await open_url(self._target, self._exits)
        return self._target

    async def _negotiate(self, transport: Transport | None) -> None:
        ours = self.options.revisions
        stateless = next((r for r in ours if r.stateless), None)
        step = Step.INITIALIZE if stateless is None else Step.DISCOVER
        error: MCPError | None = None
        while step not in {Step.STATELESS, Step.HANDSHAKE, Step.FAIL}:
            if step is Step.INITIALIZE:
                await self._initialize(transport)
                return
            try:
                await self._discover(cast("Revision", stateless))
            except MCPError as failure:
                error = failure
                reply = classify(failure, ours)
                stateless = best_common(supported_by(failure), ours) or stateless
                step = following(step, reply)
                if step is Step.INITIALIZE and all(r.stateless for r in ours):
                    raise
            else:
                return
        if error is not None and supported_by(error):
            raise nothing_common(ours, supported_by(error)) from error
        raise error or ProtocolError("the server's era could not be found out")

    async def _discover(self, revision: Revision) -> None:
        info = to_wire(self.options.info, revision)
        declared = self._answers.callbacks.capabilities
        self.session.stamp = StatelessStamp(
            revision, info, declared(revision), lambda name: self._annotations.get(name, ())
        )
        self._revision = revision
        answer = await self.session.call("server/discover", timeout=self.options.probe_timeout)
        found = self._read(answer, DiscoverResult)
        chosen = best_common(
            found.supported_versions, (r for r in self.options.revisions if r.stateless)
        )
        if chosen is not None and chosen is not revision:
            self._revision = chosen
            self.session.stamp = StatelessStamp(
                chosen, info, declared(chosen), lambda name: self._annotations.get(name, ())
            )
        self.capabilities = found.capabilities
        self.instructions = found.instructions
        server_info = (found.meta or {}).get(SERVER_INFO)
        if isinstance(server_info, dict):
            info = cast("JSONObject", server_info)
            self.server_info = from_wire(info, Implementation, self.revision)

    async def _initialize(self, transport: Transport | None) -> None:
        handshake = [r for r in self.options.revisions if not r.stateless]
        session = self.session
        session.stamp = HandshakeStamp(None)
        answer = await session.call(
            "initialize",
            {
                "protocolVersion": handshake[0].date,
                "capabilities": self._answers.callbacks.capabilities(handshake[0]),
                "clientInfo": to_wire(self.options.info, handshake[0]),
            },
            timeout=self.options.probe_timeout,
        )
        found = from_wire(answer, InitializeResult, handshake[0], where="result")
        revision = BY_DATE.get(found.protocol_version)
        if revision not in handshake:
            raise nothing_common(self.options.revisions, [found.protocol_version])
        self._revision = revision
        stamp = session.stamp = HandshakeStamp(revision)
        self.capabilities = found.capabilities
        self.server_info = found.server_info
        self.instructions = found.instructions
        initialized = Notification("notifications/initialized")
        await session.notify(initialized.method)
        if isinstance(transport, StreamableHTTPTransport) and transport.session_id is not None:
            await transport.listen(stamp.headers(initialized))

    @property
    def session(self) -> Dispatcher:
        """The session below, for methods this class does not have.

        Raises:
            TransportClosedError: not connected.
        """
        if self._session is None:
            raise TransportClosedError("the client is not connected")
        return self._session

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

    def _read(self, answer: JSONObject, cls: type[T]) -> T:
        kind = answer.pop("resultType", "complete")
        if kind != "complete":
            raise ProtocolError("the server sent a result of a type that was not asked for")
        return from_wire(answer, cls, self.revision, where="result")

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
        if layer not in self._layers:
            raise NotFoundError("this middleware was not added here")
        kept = list(self._layers)
        kept.remove(layer)
        self._layers = tuple(kept)

    async def ping(self) -> None:
        """Ask for a sign of life; in the stateless era that is `server/discover`."""
        await self.call("server/discover" if self.revision.stateless else "ping")

    async def list_tools(self, cursor: str | None = None) -> ListToolsResult:
        """Get one page of tools.

        A tool whose definition breaks the rules is left out, with a warning, and so costs
        nobody the others.

        Raises:
            RemoteError: a cursor the server does not know.
        """
        answer = await self.call("tools/list", None if cursor is None else {"cursor": cursor})
        listed = answer.get("tools")
        if isinstance(listed, list):
            tools = [tool for item in cast("list[object]", listed) if (tool := self._tool(item))]
            result = self._read({**answer, "tools": []}, ListToolsResult)
            return attrs.evolve(result, tools=tools)
        return self._read(answer, ListToolsResult)

    def _tool(self, item: object) -> Tool | None:
        try:
            tool = from_wire(cast("JSONObject", item), Tool, self.revision, where="tool")
            self._annotations[tool.name] = param_headers(tool.input_schema)
        except (MCPError, ParamHeaderError) as error:
            name = cast("JSONObject", item).get("name") if isinstance(item, dict) else None
            logger.warning("tool %.100r is left out: %s", name, error)
            return None
        return tool

    async def tools(self) -> AsyncIterator[Tool]:
        """Walk over all tools, page by page.

        Raises:
            ProtocolError: the server gives the same cursor twice.
        """
        cursor: str | None = None
        seen: set[str] = set()
        while True:
            page = await self.list_tools(cursor)
            for tool in cast("list[Tool]", page.tools):
                yield tool
            cursor = page.next_cursor
            if cursor is None:
                return
            if cursor in seen:
                raise ProtocolError("the server's pages go round in circles")
            seen.add(cursor)

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - the server has to be told
        on_progress: ProgressCallback | None = None,
    ) -> CallToolResult:
        """Call a tool.

        Leaving early cancels the call on the server, whatever the transport. A call that the
        server refuses for its headers never ran: the tools are listed, in which it says which
        arguments are mirrored, and the call is sent once more (N17).

        Args:
            name: of the tool.
            arguments: by name.
            timeout: seconds to wait, each time.
            on_progress: called with progress, total and message.

        Returns:
            What the tool answered; `is_error` when it failed.

        Raises:
            RemoteError: no such tool, or a fault of the protocol.
            RequestTimeoutError: no answer in time.
            TransportError: the line broke first.
        """
        params: JSONObject = {"name": name, "arguments": dict(arguments or {})}
        send = partial(self.call, "tools/call", params, timeout=timeout, on_progress=on_progress)
        try:
            answer = await send()
        except RemoteError as error:
            if error.rpc_code != HEADER_MISMATCH:
                raise
            async for _ in self.tools():
                pass  # each page is taken note of
            answer = await send()
        return self._read(answer, CallToolResult)

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
        try:
            await self.session.call(
                "subscriptions/listen",
                {"notifications": to_wire(wanted, self.revision)},
                on_notification=changes.deliver,
            )
        except MCPError as error:
            changes.fail(error)
        else:
            changes.end()

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


async def _serve(
    server: MCPServer,
    transport: Transport,
    *,
    task_status: trio.TaskStatus[Dispatcher] = trio.TASK_STATUS_IGNORED,
) -> None:
    await server.serve(transport, task_status=task_status)


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
