"""The methods of the protocol as methods of a client, typed; listings stand in `listings`.

How a call travels is written in `client`; what is sent and read is written here.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping
from typing import TypeVar

import trio

from mcp_trio.client.listings import Listings
from mcp_trio.client.outputs import hold_to
from mcp_trio.errors import (
    HEADER_MISMATCH,
    InvalidParamsError,
    MCPError,
    MethodNotFoundError,
    RemoteError,
)
from mcp_trio.session.call import ProgressCallback, TimeLimit, time_limit
from mcp_trio.session.session import Dispatcher
from mcp_trio.wire import METHODS, CallToolResult, DiscoverResult, JSONObject
from mcp_trio.wire.completion import (
    CompletedArgument,
    CompleteParams,
    CompleteResult,
    Completion,
    CompletionContext,
    Reference,
)
from mcp_trio.wire.converter import to_wire
from mcp_trio.wire.notices import LOG_LEVELS
from mcp_trio.wire.prompts import GetPromptResult
from mcp_trio.wire.resources import ReadResourceResult

T = TypeVar("T")


class Calls(Listings):
    """The part of `MCPClient` that knows the methods."""

    _checks_output: bool = True
    """Whether structured content is held to what the listing promised."""

    def __init__(self) -> None:
        super().__init__()
        self._log_level: str | None = None

    @property
    @abc.abstractmethod
    def session(self) -> Dispatcher:
        """The session below."""

    async def _typed(
        self,
        method: str,
        params: JSONObject | None,
        cls: type[T],
        *,
        timeout: float | TimeLimit | None,  # noqa: ASYNC109 - handed on
        cache: bool = True,
    ) -> T:
        answer = await self.call(method, params, timeout=timeout, cache=cache)
        try:
            return self._read(answer, cls)
        except MCPError:
            self.forget(method)  # or the same would come again for as long as it is fresh
            raise

    def _demand(self, method: str, instead: str) -> None:
        if not METHODS[method].exists_in(self.revision):
            raise MethodNotFoundError(f"{method} is not in {self.revision}; {instead}")

    # -- the server itself ---------------------------------------------------------

    async def ping(self, *, timeout: float | TimeLimit | None = None) -> None:  # noqa: ASYNC109 - the server has to be told
        """Ask for a sign of life; in the stateless era that is `server/discover`.

        Raises:
            RequestTimeoutError: none came in time.
        """
        method = "server/discover" if self.revision.stateless else "ping"
        await self.call(method, timeout=timeout, cache=False)

    async def discover(
        self,
        *,
        timeout: float | TimeLimit | None = None,  # noqa: ASYNC109 - the server has to be told
        cache: bool = True,
    ) -> DiscoverResult:
        """Ask what the server offers now. There is no such question with a handshake.

        Raises:
            MethodNotFoundError: the revision does not have it; nothing was sent.
        """
        self._demand("server/discover", "the handshake has told all there is")
        return await self._typed(
            "server/discover", None, DiscoverResult, timeout=timeout, cache=cache
        )

    async def set_log_level(self, level: str) -> None:
        """Say which log lines are wanted: those of this level and above.

        With a handshake the server is told; in the stateless era every later request of this
        client says it. The lines go to `ClientCallbacks.logging`.

        Raises:
            InvalidParamsError: no such level.
            RemoteError: the server has no logging.
        """
        if level not in LOG_LEVELS:
            raise InvalidParamsError(f"no such level; there are {', '.join(LOG_LEVELS)}")
        if self.session.stamp is not None and self.session.stamp.ask_for_logs(level):
            await trio.lowlevel.checkpoint()
        else:
            await self.call("logging/setLevel", {"level": level})
        self._log_level = level

    # -- prompts, resources, completion ---------------------------------------------

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        timeout: float | TimeLimit | None = None,  # noqa: ASYNC109 - the server has to be told
    ) -> GetPromptResult:
        """Fill a prompt in.

        Args:
            name: of the prompt.
            arguments: by name; the values are text.
            timeout: as for `call`.

        Raises:
            RemoteError: no such prompt, or an argument is missing.
        """
        params: JSONObject = {"name": name, "arguments": dict(arguments or {})}
        return await self._typed("prompts/get", params, GetPromptResult, timeout=timeout)

    async def read_resource(
        self,
        uri: str,
        *,
        timeout: float | TimeLimit | None = None,  # noqa: ASYNC109 - the server has to be told
        cache: bool = True,
    ) -> ReadResourceResult:
        """Read a resource.

        Args:
            uri: of the resource.
            timeout: as for `call`.
            cache: False asks the server even if fresh contents are kept.

        Raises:
            RemoteError: no such resource, with the number of the server's revision.
        """
        return await self._typed(
            "resources/read", {"uri": uri}, ReadResourceResult, timeout=timeout, cache=cache
        )

    async def complete(
        self,
        argument: str,
        value: str,
        *,
        prompt: str | None = None,
        resource: str | None = None,
        known: Mapping[str, str] | None = None,
        timeout: float | TimeLimit | None = None,  # noqa: ASYNC109 - the server has to be told
    ) -> Completion:
        """Ask how an argument of a prompt or of a resource template could go on.

        Args:
            argument: its name.
            value: what was typed so far.
            prompt: the name of the prompt it belongs to.
            resource: or the URI template.
            known: other arguments that are known already; the first revisions cannot say them.
            timeout: as for `call`.

        Raises:
            InvalidParamsError: neither or both of prompt and resource.
            RemoteError: no such prompt or template, or the server completes nothing.
        """
        if (prompt is None) == (resource is None):
            raise InvalidParamsError("complete an argument of either a prompt or a resource")
        ref = (
            Reference(type="ref/resource", uri=resource)
            if prompt is None
            else Reference(type="ref/prompt", name=prompt)
        )
        context = None if known is None else CompletionContext(arguments=dict(known))
        params = CompleteParams(
            ref=ref, argument=CompletedArgument(name=argument, value=value), context=context
        )
        wire = to_wire(params, self.revision)
        found = await self._typed("completion/complete", wire, CompleteResult, timeout=timeout)
        return found.completion

    # -- tools ---------------------------------------------------------------------

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        *,
        timeout: float | TimeLimit | None = None,  # noqa: ASYNC109 - the server has to be told
        on_progress: ProgressCallback | None = None,
        meta: Mapping[str, object] | None = None,
    ) -> CallToolResult:
        """Call a tool.

        Leaving early cancels the call on the server, whatever the transport. A call that a
        server without sessions refuses for its headers never ran: the tools are listed, in which
        it says which arguments are mirrored, and the call is sent once more (N17), within the
        same time.

        Structured content is held to the tool's `output_schema`, if the tool has been listed
        since the list last changed, and `ClientOptions.check_output` is not off.

        Args:
            name: of the tool.
            arguments: by name.
            timeout: seconds for all of it, or a `TimeLimit`.
            on_progress: called with progress, total and message.
            meta: what else the request says in its `_meta`.

        Returns:
            What the tool answered; `is_error` when it failed.

        Raises:
            RemoteError: no such tool, or a fault of the protocol.
            ProtocolError: the tool's schema cannot be used, and nothing was sent; or what came
                does not fit it.
            RequestTimeoutError: no answer in time.
            TransportError: the line broke first.
        """
        params: JSONObject = {"name": name, "arguments": dict(arguments or {})}
        if meta:
            params["_meta"] = dict(meta)
        limit = None if timeout is None else time_limit(timeout)
        deadline = math.inf if limit is None else trio.current_time() + limit.total
        if self._checks_output:
            self._outputs.validator(name)
        try:
            answer = await self.call("tools/call", params, timeout=limit, on_progress=on_progress)
        except RemoteError as error:
            # In a session the number means whatever the server likes, and the call may have run.
            if error.rpc_code != HEADER_MISMATCH or not self.revision.stateless:
                raise
            if limit is not None:
                limit = limit.until(deadline)
            try:
                async for _ in self.tools(timeout=limit, cache=False):
                    pass  # each page is taken note of
            except RemoteError as refusal:
                raise error from refusal
            if limit is not None:
                limit = limit.until(deadline)
            answer = await self.call("tools/call", params, timeout=limit, on_progress=on_progress)
        result = self._read(answer, CallToolResult)
        validator = self._outputs.validator(name) if self._checks_output else None
        if validator is not None:
            hold_to(validator, name, result)
        return result
