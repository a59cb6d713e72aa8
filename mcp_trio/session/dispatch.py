"""The one dispatch: an admitted request, its handler, and the message that answers it.

Used by sessions on a line and by single HTTP exchanges alike. The boundary where any
exception of a handler becomes an answer stands here and nowhere else.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeAlias

import trio

from mcp_trio.engine.envelope import Principal
from mcp_trio.eras.admission import Admitted, ServerFacts, error_message
from mcp_trio.eras.rounds import Round, RoundSettings, binding, open_round
from mcp_trio.errors import (
    HEADER_MISMATCH,
    MISSING_CAPABILITY,
    UNSUPPORTED_VERSION,
    HandlerFailedError,
    MCPError,
    MissingCapabilityError,
    RequestTimeoutError,
    sole_cause,
)
from mcp_trio.events import EventHub
from mcp_trio.jsonrpc import codec
from mcp_trio.jsonrpc.messages import Batch, Error, Message, Result, Single
from mcp_trio.session.admission import Admission
from mcp_trio.session.asking import Asking, LiveAsking, RoundAsking
from mcp_trio.session.context import REQUEST, Context, Exchange
from mcp_trio.session.limits import UNTIMED
from mcp_trio.session.middleware import Authorizer, Middleware, demand, onion
from mcp_trio.session.notices import NoticeHub
from mcp_trio.session.targets import target_of
from mcp_trio.wire.converter import from_wire
from mcp_trio.wire.rounds import ROUND_METHODS, InputRequiredResult, InputResponseParams

logger = logging.getLogger("mcp_trio.session")

Handler: TypeAlias = Callable[[Context], Awaitable[object]]
"""Takes the context, which holds the typed parameters; gives an object of the result class."""


class Service(Protocol):
    """What a server is to the layers that carry messages to it."""

    @property
    def facts(self) -> ServerFacts:
        """What the server says about itself now."""
        ...

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """By method. The era's own methods need no entry."""
        ...

    @property
    def layers(self) -> Sequence[Middleware]:
        """The middleware, outermost first."""
        ...

    @property
    def authorizer(self) -> Authorizer | None:
        """Who says whether a caller may make a request; None if everybody may."""
        ...

    @property
    def required_scopes(self) -> frozenset[str]:
        """The scopes without which a caller can do nothing here."""
        ...

    @property
    def events(self) -> EventHub:
        """Where observers of this server are told."""
        ...

    @property
    def notices(self) -> NoticeHub:
        """Where changes of this server are told."""
        ...

    @property
    def admission(self) -> Admission:
        """Who decides what may run."""
        ...

    def timeout_of(self, method: str, target: str | None) -> float:
        """Seconds a request may take on this server; infinity for no limit."""
        ...

    @property
    def rounds(self) -> RoundSettings:
        """How questions are asked where nothing can be asked live."""
        ...


ROUND_FIELDS = {"inputResponses", "requestState"}
"""What a request brings back from an earlier round."""
ASKED_FOR = {"elicitation", "sampling", "roots"}
"""Capabilities of a client that something can be asked of. Without any there are no rounds."""


def deadline_for(service: Service, admitted: Admitted) -> float:
    """When the request has to be over, on Trio's clock."""
    method = admitted.method.name
    if method in UNTIMED:
        return float("inf")
    return trio.current_time() + service.timeout_of(method, target_of(admitted.params))


def make_context(
    service: Service,
    admitted: Admitted,
    exchange: Exchange,
    scope: trio.CancelScope,
    *,
    principal: Principal | None = None,
    caller: Hashable = None,
) -> Context:
    """The handler's view of an admitted request."""
    return Context(
        request_id=admitted.request.id,
        method=admitted.method.name,
        revision=admitted.era.revision,
        exchange=exchange,
        scope=scope,
        params=admitted.params,
        meta=admitted.meta,
        client_info=admitted.client_info,
        capabilities=admitted.client_capabilities,
        principal=principal,
        caller=caller,
        server=service,
        progress_token=admitted.progress_token,
        log_level=admitted.log_level,
        began=trio.current_time(),
    )


async def dispatch(service: Service, admitted: Admitted, context: Context) -> Result | Error:
    """Run the handler and answer for it. Only `trio.Cancelled` gets out."""
    method, request = admitted.method, admitted.request
    outer = REQUEST.set(context)
    try:
        result = await _handle(service, admitted, context)
        _check_result(admitted, result)
        return Result(request.id, admitted.era.seal(method, result, service.facts))
    except MCPError as error:
        return error_message(request.id, admitted.era.fault(_of_handler(error)))
    except Exception as error:  # noqa: BLE001 - the boundary: a handler may raise anything
        known = sole_cause(error)
        if isinstance(known, MCPError):
            return error_message(request.id, admitted.era.fault(_of_handler(known)))
        return error_message(request.id, handler_failed(method.name, known))
    except SystemExit as error:  # a library that gives up ends its request, not the server
        return error_message(request.id, handler_failed(method.name, error))
    except BaseExceptionGroup as group:
        # Failures beside a cancellation: the failures are answered for, and the cancellation
        # comes again at the next checkpoint. KeyboardInterrupt and its like go on.
        _, rest = group.split(trio.Cancelled)
        if rest is None or rest.split((Exception, SystemExit))[1] is not None:
            raise
        return error_message(request.id, handler_failed(method.name, rest))
    finally:
        REQUEST.reset(outer)


def _check_result(admitted: Admitted, result: object) -> None:
    """Notice a handler or middleware that returned what is no result of the method."""
    method = admitted.method
    wanted = method.result
    if wanted is None or isinstance(result, wanted):
        return
    if isinstance(result, InputRequiredResult) and _asks_in_rounds(admitted):
        return
    raise TypeError(f"{method.name} needs a {wanted.__name__}, not a {type(result).__name__}")


_OF_THE_LINE = frozenset({HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION})
"""Codes with which a server judges its own client's request."""


def _of_handler(error: MCPError) -> MCPError:
    """What a handler has raised, as it may be told to the client.

    What another server said of the handler's requests to it is not about this one.
    """
    if error.rpc_code not in _OF_THE_LINE or isinstance(error, MissingCapabilityError):
        return error
    fault = MCPError(error.message, data=error.data)
    fault.__cause__ = error
    return fault


async def _handle(service: Service, admitted: Admitted, context: Context) -> object:
    """Run the handler with the means to ask; its result may be a question."""
    asking = context.asking = _asking(service, admitted, context)
    run = onion(service.layers, partial(_innermost, service, admitted, asking))
    try:
        if isinstance(asking, RoundAsking):
            return await asking.run(partial(run, context))
        return await run(context)
    finally:
        asking.close()


async def _innermost(
    service: Service, admitted: Admitted, asking: Asking, context: Context
) -> object:
    """What the onion is around: the question whether this may be, and the handler."""
    if isinstance(asking, RoundAsking):
        asking.settle(_identity(context))
    await demand(service.authorizer, context)
    method, brought = admitted.method.name, admitted.request.params or {}
    if isinstance(asking, RoundAsking) and brought.keys() & ROUND_FIELDS:
        _ = asking.book  # what is not valid is refused before the handler runs
    own = admitted.era.own(method, service.facts)
    return await service.handlers[method](context) if own is None else own


def _asking(service: Service, admitted: Admitted, context: Context) -> Asking:
    """Choose how this request asks."""
    if not admitted.era.revision.stateless:
        return LiveAsking(context.exchange)
    brought = admitted.request.params or {}
    if not _asks_in_rounds(admitted) or not (
        context.capabilities.keys() & ASKED_FOR or brought.keys() & ROUND_FIELDS
    ):
        return Asking()
    # As the transport knows him: no layer has run yet.
    caller = _identity(context)
    return RoundAsking(context.exchange, partial(_open_round, service, admitted, caller))


def _asks_in_rounds(admitted: Admitted) -> bool:
    return admitted.era.revision.stateless and admitted.method.name in ROUND_METHODS


def _identity(context: Context) -> str | None:
    return None if context.principal is None else context.principal.identity


def _open_round(service: Service, admitted: Admitted, caller: str | None) -> Round:
    params = admitted.request.params or {}
    brought = from_wire(params, InputResponseParams, admitted.era.revision)
    return open_round(
        service.rounds,
        lambda: binding(service.facts.info.name, caller, admitted.method.name, params),
        state=brought.request_state,
        responses=brought.input_responses,
        now=time.time(),
    )


def handler_failed(what: str, error: BaseException) -> HandlerFailedError:
    """Log a failure under a reference id, and make the error that carries only the id."""
    reference = secrets.token_hex(6)
    logger.error("%s failed, reference %s", what, reference, exc_info=error)
    failed = HandlerFailedError(
        f"Internal error, reference {reference}", data={"reference": reference}
    )
    failed.__cause__ = error
    return failed


def timed_out(admitted: Admitted) -> Error:
    """The answer to a request whose time is over."""
    return error_message(
        admitted.request.id,
        RequestTimeoutError(f"{admitted.method.name} took longer than the server allows"),
    )


def encode_reply(reply: Result | Error) -> bytes:
    """Encode an answer; one that JSON cannot carry becomes an internal error."""
    try:
        return codec.encode(reply)
    except codec.EncodeError:
        return codec.encode(encodable(reply))


def encodable(reply: Message) -> Message:
    """Replace an answer that JSON cannot carry by an internal error; in a batch only that one."""
    if isinstance(reply, Batch):
        return Batch(tuple(_encodable(item) for item in reply.items))
    return _encodable(reply)


def _encodable(reply: Single) -> Single:
    try:
        codec.encode(reply)
    except codec.EncodeError as error:
        id_ = reply.id if isinstance(reply, Result | Error) else None
        return error_message(id_, handler_failed("encoding the result", error))
    return reply
