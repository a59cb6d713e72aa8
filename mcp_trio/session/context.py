"""What a handler is given besides its arguments.

A `Context` belongs to one request and dies with it. It holds no transport: telling the
client something goes through the `Exchange` it was made with.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar, Unpack, overload

import attrs
import trio

from mcp_trio.engine.envelope import Principal
from mcp_trio.errors import InvalidParamsError
from mcp_trio.session import questions
from mcp_trio.session.asking import Asking
from mcp_trio.session.forms import Elicited, Form
from mcp_trio.session.questions import SamplingOptions
from mcp_trio.session.targets import target_of
from mcp_trio.wire import ClientCapabilities, Implementation, JSONObject, RequestId, Revision
from mcp_trio.wire.converter import from_wire, to_wire
from mcp_trio.wire.notices import LOG_LEVELS, LogParams, ProgressParams
from mcp_trio.wire.roots import Root
from mcp_trio.wire.sampling import CreateMessageResult, SamplingMessage

T = TypeVar("T")


class Exchange(Protocol):
    """The line back to the client while one request is running."""

    @property
    def cuts_cleanly(self) -> bool:
        """Whether a cancelled `notify` has sent its message whole or not at all.

        Where it may have sent a part, cancelling it breaks the line.
        """
        ...

    async def notify(self, method: str, params: JSONObject) -> None:
        """Send a notification that belongs to the running request.

        Waits for room in a bounded buffer. A client that is gone is not an error:
        the request's scope is cancelled by whoever noticed.
        """
        ...

    async def ask(self, method: str, params: JSONObject) -> JSONObject:
        """Send a request that belongs to the running one, and wait for its result.

        Leaving early tells the client.

        Raises:
            RemoteError: the client answered with an error.
            ProtocolError: this client cannot be asked on this stream.
            TransportError: the line is gone.
        """
        ...

    def bound_cleanup(self) -> None:
        """Start the clock for the cleanup of a handler that has just been cancelled."""
        ...

    async def keep_alive(self) -> None:
        """Show on a quiet stream that it is still there; nothing where there is no stream."""
        ...

    def close_stream(self, retry_ms: int) -> None:
        """Let the connection that waits for the answer go, where the client can come back."""
        ...


class Watcher(Protocol):
    """A session that can be told of changed resources."""

    def watch(self, uri: str) -> None:
        """Tell the client when the resource changes.

        Raises:
            OverloadedError: it watches too many already.
        """
        ...

    def unwatch(self, uri: str) -> None:
        """Stop telling it."""
        ...


REQUEST: ContextVar[Context | None] = ContextVar("mcp_trio_request", default=None)
"""The request that a task runs for. Tasks which a handler starts inherit it. It is for those
who show or log what goes on; nothing is decided by it."""


def _thread_is_cancelled() -> bool:
    try:
        trio.from_thread.check_cancelled()
    except trio.Cancelled:
        return True
    return False


@attrs.define(kw_only=True, eq=False)
class Context:
    """The running request, as its handler sees it."""

    request_id: RequestId
    method: str
    revision: Revision
    exchange: Exchange
    scope: trio.CancelScope
    """The request's own scope. Whatever ends the request cancels it."""
    params: object = None
    """The typed parameters, an object of the method's class in `mcp_trio.wire`. A middleware
    may put others here."""
    meta: JSONObject = attrs.field(factory=dict[str, object])
    """The request's `_meta`, as it came."""
    client_info: JSONObject | None = None
    """Name and version of the client as it sent them; see `client`."""
    capabilities: JSONObject = attrs.field(factory=dict[str, object])
    """What the client declared, as it sent it; see `client_capabilities`."""
    principal: Principal | None = None
    caller: Hashable = None
    """What it counts as against limits of each caller, as the transport knows him."""
    server: object = None
    """The `MCPServer` that runs the handler."""
    progress_token: int | str | None = None
    log_level: Callable[[], str | None] = attrs.field(default=lambda: None)
    """The least severe level the client wants now, None for no log messages at all."""
    watcher: Watcher | None = None
    """Where a session's interest in resources is kept; None in the stateless era."""
    began: float = 0.0
    """When it was admitted, on Trio's clock."""
    asking: Asking = attrs.field(factory=Asking)
    """How questions reach the client; the dispatch chooses it."""
    _progress: float | None = None

    @property
    def target(self) -> str | None:
        """What the request is about, if it names something: the tool or prompt, or the URI.

        The URI of a resource in the one spelling that all others of it are read as (RFC 3986,
        section 6.2.2): a rule about it cannot be got round by needless encodings.
        """
        return target_of(self.params)

    @property
    def client(self) -> Implementation | None:
        """Who calls, by its own word; None if it did not say or not properly. For display only."""
        if self.client_info is None:
            return None
        try:
            return from_wire(self.client_info, Implementation, self.revision)
        except InvalidParamsError:
            return None

    @property
    def client_capabilities(self) -> ClientCapabilities:
        """What the client can be asked for.

        Raises:
            InvalidParamsError: what it declared has the wrong shape.
        """
        return from_wire(
            self.capabilities, ClientCapabilities, self.revision, where="clientCapabilities"
        )

    @property
    def cancel_requested(self) -> bool:
        """True once the request has been cancelled; for code that cannot be interrupted.

        Works in a task and in the worker thread of a synchronous tool.
        """
        try:
            return self.scope.cancel_called
        except RuntimeError:  # no Trio in this thread
            return _thread_is_cancelled()

    async def progress(
        self, value: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Tell the client how far the work has come.

        Does nothing when the client did not ask, nor once the request is over. A value that
        is not greater than the last one is dropped, because the protocol demands growth (P1).

        Raises:
            trio.Cancelled: the request is over.
        """
        # Always: a handler that does nothing but report can be cancelled, whoever listens.
        await trio.lowlevel.checkpoint()
        if self.progress_token is None or self.asking.over or not self._grows(value):
            return
        params = ProgressParams(
            progress_token=self.progress_token, progress=value, total=total, message=message
        )
        await self.exchange.notify("notifications/progress", to_wire(params, self.revision))

    def _grows(self, value: float) -> bool:
        if self._progress is not None and value <= self._progress:
            return False
        self._progress = value
        return True

    async def close_stream(self, *, retry_ms: int = 500) -> None:
        """Let the client go and come back for the rest, so that a long call holds no connection.

        What was sent so far still arrives, then a `retry` field, then the end of the
        connection; the call goes on. The client comes back with `Last-Event-ID` and gets
        what it missed, the answer too (H4, H5). Returns at once, and may be used again.

        Does nothing where no client can come back: without Streamable HTTP, in revisions
        whose streams are not meant to be closed early, for a client that takes no stream,
        and while no connection waits.

        Args:
            retry_ms: milliseconds after which the client should come back.

        Raises:
            ValueError: a negative time.
        """
        if retry_ms < 0:
            raise ValueError("retry_ms must not be negative")
        await trio.lowlevel.checkpoint()
        self.exchange.close_stream(retry_ms)

    # -- asking the client ---------------------------------------------------------

    @overload
    async def elicit(
        self, message: str, schema: JSONObject, *, key: str | None = None
    ) -> Elicited[JSONObject]: ...

    @overload
    async def elicit(
        self, message: str, schema: type[T], *, key: str | None = None
    ) -> Elicited[T]: ...

    async def elicit(
        self, message: str, schema: JSONObject | type[T], *, key: str | None = None
    ) -> Elicited[Any]:
        """Ask the user to fill in a form (F4). Never for secrets; they need `elicit_url`.

        The same call serves both eras. With a handshake the client is asked while this
        waits. Without one the handler is cancelled here, the client gets the question as
        its result, and when it comes back with an answer the handler runs again from the
        start and gets that answer here. Work before a question is therefore done again,
        except in `once`.

        Args:
            message: what the user reads.
            schema: a JSON Schema of flat, primitive fields, or an attrs class, a dataclass
                or a TypedDict that has them.
            key: a name for the question, unique in the call. Without one it is known by
                its text, which has to be the same in every run.

        Returns:
            What the user did, with the content as the class if one was given.

        Raises:
            MissingCapabilityError: the client shows no forms, or not such a one.
            InvalidParamsError: the answer does not fit the schema.
            RemoteError: the client answered with an error.
            SchemaError: the schema is no form.
            trio.Cancelled: the request is over, or this round of it; the client is told.
        """
        return await questions.elicit(self, message, Form(schema), key)

    async def elicit_url(
        self, message: str, url: str, *, elicitation_id: str | None = None, key: str | None = None
    ) -> Elicited[None]:
        """Ask the user to visit a page, for what must not pass through the client (F5, F6).

        `accept` means that the user agreed to go there, not that anything is done. See
        `elicit` for what happens in time.

        Args:
            message: what the user reads.
            url: http or https. No secret and nothing about the user may stand in it, and
                the page must find out by itself who came.
            elicitation_id: names the visit where the revision has that; made up by default.
            key: see `elicit`.

        Raises:
            ValueError: no http or https URL.
            MissingCapabilityError: the client opens no pages.
            RemoteError: the client answered with an error.
        """
        return await questions.elicit_url(self, message, url, elicitation_id, key)

    async def require_url(
        self, message: str, url: str, *, elicitation_id: str | None = None, key: str | None = None
    ) -> Elicited[None]:
        """Say that the call cannot be made before the user has visited a page (F7).

        For a handler that looks for itself whether that has been done, and calls this if not.
        Where the revision has an error for it (-32042) the call ends here with that error,
        which holds the page, and the client makes the call again once the user is through.
        Elsewhere this is `elicit_url`, which asks within the call.

        Raises:
            URLRequiredError: always, in a revision that has it.
            Exception: else as `elicit_url`.
        """
        return await questions.require_url(self, message, url, elicitation_id, key)

    async def elicitation_completed(self, elicitation_id: str) -> None:
        """Tell a client that opens pages that a visit is done, where visits have ids (F7)."""
        await questions.elicitation_completed(self, elicitation_id)

    async def sample(
        self,
        messages: str | Iterable[SamplingMessage],
        *,
        max_tokens: int,
        key: str | None = None,
        **options: Unpack[SamplingOptions],
    ) -> CreateMessageResult:
        """Ask the client's model (F2, F3). See `elicit` for what happens in time.

        Args:
            messages: the conversation; a string is one message of the user.
            max_tokens: the most the model may add.
            key: see `elicit`.
            **options: see `SamplingOptions`.

        Raises:
            ValueError: tool uses and their results do not match.
            MissingCapabilityError: the client has no model to offer, or none with tools.
            RemoteError: the client answered with an error; -1 says that the user refused.
        """
        return await questions.sample(self, messages, max_tokens, options, key)

    async def list_roots(self, *, key: str | None = None) -> list[Root]:
        """Ask where in the file system the client lets the server work (F8).

        See `elicit` for what happens in time.

        Raises:
            MissingCapabilityError: the client has no roots.
            RemoteError: the client answered with an error.
        """
        return await questions.list_roots(self, key)

    async def once(self, key: str, function: Callable[..., object], *args: object) -> object:
        """Run a function one time in this call, however often its handler runs.

        Its result travels with the questions, sealed, so it is there in the next run, in
        another process too. A second use of the key waits for the first and gets its
        result. A function that fails, or is cancelled, is run again. If the client comes
        back without the state, the call begins anew, and so does this.

        Args:
            key: of the side effect, unique in the call.
            function: plain or async. The result must have a JSON form and comes back as
                such: a tuple as a list.
            *args: its arguments.

        Raises:
            EncodeError: the result has no JSON form.
        """
        return await self.asking.once(key, function, *args)

    async def log(self, level: str, data: object, *, logger: str | None = None) -> None:
        """Send a line to the client's log, if it asked for that level (G1).

        Does nothing once the request is over.

        Args:
            level: one of the eight syslog levels, `debug` to `emergency`.
            data: any JSON value. Never put secrets in it.
            logger: the name of the part that speaks.

        Raises:
            ValueError: the level does not exist.
        """
        if level not in LOG_LEVELS:
            raise ValueError(f"level must be one of {', '.join(LOG_LEVELS)}")
        severity = LOG_LEVELS.index(level)
        wanted = self.log_level()
        await trio.lowlevel.checkpoint()
        if wanted is None or self.asking.over or severity < LOG_LEVELS.index(wanted):
            return
        params = LogParams(level=level, data=data, logger=logger)
        await self.exchange.notify("notifications/message", to_wire(params, self.revision))
