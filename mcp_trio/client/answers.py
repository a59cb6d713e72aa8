"""What a client answers when the server asks: the model, the user, the roots.

The same callbacks answer a live request of the handshake era and a question that came as a
result. Nothing is declared that has no callback, and what was not declared is refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, TypeVar, cast

import attrs
import trio

from mcp_trio.client.consent import page_of
from mcp_trio.eras.admission import error_message
from mcp_trio.errors import (
    InvalidParamsError,
    MCPError,
    MethodNotFoundError,
    ProtocolError,
    RequestTimeoutError,
    plainly,
    sole_cause,
)
from mcp_trio.json_schema import SchemaError, Validator
from mcp_trio.jsonrpc.messages import Error, Request, Result
from mcp_trio.session.call import TimeLimit
from mcp_trio.session.dispatch import handler_failed
from mcp_trio.session.inbound import Inbound, Runner
from mcp_trio.wire import METHODS, ClientCapabilities, JSONObject, Revision
from mcp_trio.wire.converter import from_wire, to_wire
from mcp_trio.wire.elicitation import ElicitParams, ElicitResult, pages_exist
from mcp_trio.wire.notices import LogParams
from mcp_trio.wire.roots import ListRootsResult, Root
from mcp_trio.wire.rounds import ASK_METHODS, InputRequest, InputRequiredResult
from mcp_trio.wire.sampling import (
    CreateMessageParams,
    CreateMessageResult,
    message_fault,
)

Sampler: TypeAlias = Callable[
    [CreateMessageParams], CreateMessageResult | Awaitable[CreateMessageResult]
]
FormFiller: TypeAlias = Callable[
    [ElicitParams], ElicitResult | JSONObject | Awaitable[ElicitResult | JSONObject]
]
PageOpener: TypeAlias = Callable[[ElicitParams], ElicitResult | Awaitable[ElicitResult]]
RootsLister: TypeAlias = Callable[[], Sequence[Root] | Awaitable[Sequence[Root]]]
LogReader: TypeAlias = Callable[[LogParams], object]
ChangeWatcher: TypeAlias = Callable[[str], object]


MAX_QUESTIONS = 1000
"""Questions that are answered in one round, as many as may run at once in a session."""
T = TypeVar("T")


@attrs.frozen(kw_only=True)
class ClientCallbacks:
    """What a server may ask this client for, or tell it. Each may be a plain or async function.

    A callback is cancelled when the server does not wait any more, or when the call in
    which the server asked is left. An `MCPError` that it raises is the answer to a live
    question; any other exception is answered with a reference id that the log explains. In
    the stateless era both come out of the call that was asked in.
    """

    sampling: Sampler | None = None
    """Runs the model, after the user has seen what it is asked (F2)."""
    sampling_tools: bool = False
    """The model can be offered tools (F3)."""
    sampling_context: bool = False
    """The model can be shown what other servers have said."""
    elicitation: FormFiller | None = None
    """Shows the user a form; a dict is what an accepting user filled in (F4)."""
    elicitation_url: PageOpener | None = None
    """Asks the user whether to open a page, showing its whole URL, and opens it (F6); see
    `consent.with_consent`."""
    roots: RootsLister | None = None
    """Lists the places in the file system that the server may work in (F8)."""
    logging: LogReader | None = None
    """Takes the server's log lines, see `set_log_level`. See `tidings` for when it runs."""
    list_changed: ChangeWatcher | None = None
    """Hears that `tools`, `prompts` or `resources` are listed anew. In the stateless era the
    client listens for it by itself while it is connected."""
    resource_updated: ChangeWatcher | None = None
    """Hears the URI of a resource that changed, of those subscribed to or listened for."""

    def capabilities(self, revision: Revision) -> JSONObject:
        """What to declare, as a revision spells it."""
        sampling: JSONObject | None = None
        if self.sampling is not None:
            details = {"tools": self.sampling_tools, "context": self.sampling_context}
            sampling = {name: {} for name, offered in details.items() if offered}
        return to_wire(
            ClientCapabilities(
                sampling=sampling,
                elicitation=self._elicitation(revision),
                roots=self._roots(revision),
            ),
            revision,
        )

    def _elicitation(self, revision: Revision) -> JSONObject | None:
        # A client that only opens pages has nothing to declare where there are none.
        url = self.elicitation_url if pages_exist(revision) else None
        modes = {"form": self.elicitation, "url": url}
        declared: JSONObject = {mode: {} for mode, answer in modes.items() if answer is not None}
        return declared or None

    def _roots(self, revision: Revision) -> JSONObject | None:
        if self.roots is None:
            return None
        told = METHODS["notifications/roots/list_changed"].exists_in(revision)
        return {"listChanged": True} if told else {}


def live_methods(revision: Revision) -> frozenset[str]:
    """What a server of this revision may send as a request."""
    return frozenset(name for name in ASK_METHODS if METHODS[name].exists_in(revision))


def prefilled(params: ElicitParams) -> JSONObject:
    """The defaults of a form, to begin with (F4)."""
    fields = cast("dict[str, JSONObject]", (params.requested_schema or {}).get("properties") or {})
    return {name: field["default"] for name, field in fields.items() if "default" in field}


class Answers:
    """The callbacks of one client, applied to what its server asks."""

    def __init__(self, callbacks: ClientCallbacks) -> None:
        self.callbacks = callbacks

    # -- live questions ------------------------------------------------------------

    def admit(self, request: Request, revision: Revision) -> Runner:
        """Accept a live question.

        Raises:
            MethodNotFoundError: nothing that this client answers in this revision.
        """
        if request.method not in live_methods(revision):
            raise MethodNotFoundError("Method not found")

        async def run(inbound: Inbound) -> Result | Error:  # noqa: ARG001 - the contract
            try:
                return Result(
                    request.id, await self.answer(request.method, request.params, revision)
                )
            except MCPError as error:
                return error_message(request.id, error)
            except Exception as error:  # noqa: BLE001 - the boundary: a callback may raise anything
                cause = sole_cause(error)
                if not isinstance(cause, MCPError):
                    cause = handler_failed(f"the callback for {request.method}", cause)
                return error_message(request.id, cause)

        return run

    # -- questions that came as a result -------------------------------------------

    async def in_rounds(
        self,
        call: Callable[[JSONObject | None, TimeLimit], Awaitable[JSONObject]],
        params: JSONObject | None,
        revision: Revision,
        *,
        limit: TimeLimit,
        max_rounds: int,
    ) -> JSONObject:
        """Call, and call again with the answers for as long as the result is a question (R4).

        Args:
            call: sends the parameters, within a limit, under a new id each time.
            params: of the call.
            revision: in use.
            limit: its total is for all of it, callbacks included.
            max_rounds: questions in a row that are answered.

        Raises:
            ProtocolError: the server asks too often, or for what was not declared.
            RequestTimeoutError: no end in time.
        """
        deadline = trio.current_time() + limit.total
        result = await call(params, limit)
        for _ in range(max_rounds):
            if result.get("resultType") != "input_required":
                return result
            question = from_wire(result, InputRequiredResult, revision, where="result")
            if question.input_requests is None and question.request_state is None:
                raise ProtocolError("the server asks for input and says neither which nor why")
            # The state goes back as it came, and only with this retry (R5).
            again = dict(params or {})
            with trio.move_on_at(deadline) as scope:
                if question.input_requests is not None:
                    again["inputResponses"] = await self._all(question.input_requests, revision)
            if scope.cancelled_caught:
                raise RequestTimeoutError(f"the server's question took more than {limit.total} s")
            if question.request_state is not None:
                again["requestState"] = question.request_state
            result = await call(again, limit.until(deadline))
        if result.get("resultType") == "input_required":
            raise ProtocolError(f"the server is not content after {max_rounds} rounds of answers")
        return result

    async def _all(self, requests: JSONObject, revision: Revision) -> JSONObject:
        """Answer all questions of a round, at the same time.

        If one cannot be answered the others are cancelled, and its failure ends the call:
        half an answer would only be asked for again (R8).
        """
        if len(requests) > MAX_QUESTIONS:
            raise ProtocolError(f"the server asks {len(requests)} questions at once")
        answers: JSONObject = {}

        async def put(key: str, request: InputRequest) -> None:
            answers[key] = await self.answer(request.method, request.params, revision)

        with plainly():
            async with trio.open_nursery() as nursery:
                for key, plain in requests.items():
                    if not isinstance(plain, dict):
                        raise ProtocolError("the server asks for something unreadable")
                    where = "inputRequests"
                    request = from_wire(
                        cast("JSONObject", plain), InputRequest, revision, where=where
                    )
                    nursery.start_soon(put, key, request)
        return {key: answers[key] for key in requests}

    # -- both ----------------------------------------------------------------------

    async def answer(
        self, method: str, params: JSONObject | None, revision: Revision
    ) -> JSONObject:
        """Ask the callback.

        Raises:
            MethodNotFoundError, InvalidParamsError: not declared, or not understood.
            Exception: whatever the callback raises.
        """
        given = params or {}
        match method:
            case "sampling/createMessage":
                return await self._sample(from_wire(given, CreateMessageParams, revision), revision)
            case "elicitation/create":
                return await self._elicit(from_wire(given, ElicitParams, revision), revision)
            case "roots/list" if self.callbacks.roots is not None:
                roots = list(await _called(self.callbacks.roots))
                for root in roots:
                    _insist(root, Root, method)
                if not all(root.uri.startswith("file://") for root in roots):
                    raise ValueError("a root is a file:// URI")
                return to_wire(ListRootsResult(roots=roots), revision)
            case _:
                raise MethodNotFoundError(f"{method[:64]} is not offered")

    async def _sample(self, params: CreateMessageParams, revision: Revision) -> JSONObject:
        if self.callbacks.sampling is None:
            raise MethodNotFoundError("sampling is not offered")
        if not self.callbacks.sampling_tools and (params.tools or params.tool_choice):
            raise InvalidParamsError("sampling with tools is not offered")
        fault = message_fault(params.messages)
        if fault is not None:
            raise InvalidParamsError(fault)
        result = await _called(self.callbacks.sampling, params)
        return to_wire(_insist(result, CreateMessageResult, "sampling/createMessage"), revision)

    async def _elicit(self, params: ElicitParams, revision: Revision) -> JSONObject:
        if params.mode == "url":
            if self.callbacks.elicitation_url is None or params.url is None:
                raise InvalidParamsError("elicitation by a page is not offered")
            page_of(params)  # whatever opens it is handed nothing but pages of the web
            result = await _called(self.callbacks.elicitation_url, params)
            agreed = _insist(result, ElicitResult, "elicitation/create")
            return to_wire(attrs.evolve(agreed, content=None), revision)
        if self.callbacks.elicitation is None and self.callbacks.elicitation_url is None:
            raise MethodNotFoundError("elicitation is not offered")
        if self.callbacks.elicitation is None or params.mode not in {None, "form"}:
            raise InvalidParamsError("elicitation of this mode is not offered")
        try:
            validator = Validator(params.requested_schema or {"type": "object"})
        except SchemaError as error:
            raise InvalidParamsError(f"requestedSchema cannot be used: {error}") from error
        made = await _called(self.callbacks.elicitation, params)
        answer = _as_result(made)
        if answer.action != "accept":
            answer = attrs.evolve(answer, content=None)
        elif not (validator.is_valid(answer.content or {}) and _is_flat(answer.content or {})):
            raise ValueError("what was filled in does not fit the form")
        return to_wire(answer, revision)


async def _called(function: Callable[..., object], *args: object) -> Any:
    made = function(*args)
    return await made if inspect.isawaitable(made) else made


def _is_flat(content: JSONObject) -> bool:
    """Tell whether an answer holds only what a form can be filled in with (F4)."""
    return all(
        all(isinstance(item, str) for item in cast("list[object]", value))
        if isinstance(value, list)
        else isinstance(value, str | int | float)
        for value in content.values()
    )


def _as_result(made: object) -> ElicitResult:
    if isinstance(made, dict):
        return ElicitResult(action="accept", content=cast("JSONObject", made))
    return _insist(made, ElicitResult, "elicitation/create")


def _insist(made: object, cls: type[T], method: str) -> T:
    """Take what a callback gave, if it is that: nothing at all is no consent."""
    if not isinstance(made, cls):
        raise TypeError(f"the callback for {method} gave {made!r:.100}, not {cls.__name__}")
    return made
