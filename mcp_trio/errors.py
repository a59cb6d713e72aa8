"""Every exception the package raises, and the 15 local error codes.

    MCPError                     has .code (ErrorCode), .rpc_code and .data
    ├─ ProtocolError             the peer broke the protocol, or we refuse what it asked
    │  ├─ MethodNotFoundError
    │  ├─ InvalidParamsError
    │  ├─ NotFoundError
    │  │  └─ ResourceNotFoundError
    │  ├─ NotInitializedError
    │  ├─ VersionMismatchError
    │  ├─ HeaderMismatchError
    │  ├─ MissingCapabilityError
    │  ├─ URLRequiredError
    │  └─ UnauthorizedError
    ├─ RemoteError               the peer answered our request with an error
    ├─ RequestTimeoutError       a request had more time than it was given
    ├─ RequestCancelledError     local only, never sent
    ├─ TransportClosedError      local: sending after close
    ├─ TransportError            the world: the transport broke under us
    │  └─ SessionExpiredError    the server has forgotten the session
    ├─ AlreadyConnectedError     local misuse: connect twice
    ├─ DuplicateRegistrationError  local misuse: name taken
    ├─ HandlerFailedError        a handler raised; wraps the cause
    └─ OverloadedError           a limit of ours was reached
    ToolError                    not an MCPError: text meant for the model
    ConfigurationError           not an MCPError: settings that cannot work

A class says who is at fault, the code says what happened. Nothing here knows a
transport, a revision or an HTTP status. JSON-RPC numbers that differ between
revisions are chosen in `eras`.
"""

from __future__ import annotations

import contextlib
import enum
import math
from collections.abc import Generator, Mapping
from typing import Any

__all__ = [
    "AlreadyConnectedError",
    "ConfigurationError",
    "DuplicateRegistrationError",
    "ErrorCode",
    "HandlerFailedError",
    "HeaderMismatchError",
    "InvalidParamsError",
    "MCPError",
    "MethodNotFoundError",
    "MissingCapabilityError",
    "NotFoundError",
    "NotInitializedError",
    "OverloadedError",
    "ProtocolError",
    "RemoteError",
    "RequestCancelledError",
    "RequestTimeoutError",
    "ResourceNotFoundError",
    "SessionExpiredError",
    "ToolError",
    "TransportClosedError",
    "TransportError",
    "URLRequiredError",
    "UnauthorizedError",
    "VersionMismatchError",
]


class ErrorCode(enum.StrEnum):
    """The local kinds of failure. They travel as `data.code` where a revision leaves room."""

    PROTOCOL_INVALID = "MCP.PROTOCOL_INVALID"
    METHOD_NOT_FOUND = "MCP.METHOD_NOT_FOUND"
    INVALID_PARAMS = "MCP.INVALID_PARAMS"
    INTERNAL_ERROR = "MCP.INTERNAL_ERROR"
    UNAUTHORIZED = "MCP.UNAUTHORIZED"
    REQUEST_CANCELLED = "MCP.REQUEST_CANCELLED"
    TIMEOUT = "MCP.TIMEOUT"
    TRANSPORT_CLOSED = "MCP.TRANSPORT_CLOSED"
    TRANSPORT_ERROR = "MCP.TRANSPORT_ERROR"
    NOT_INITIALIZED = "MCP.NOT_INITIALIZED"
    ALREADY_CONNECTED = "MCP.ALREADY_CONNECTED"
    DUPLICATE_REGISTRATION = "MCP.DUPLICATE_REGISTRATION"
    NOT_FOUND = "MCP.NOT_FOUND"
    PROTOCOL_VERSION_MISMATCH = "MCP.PROTOCOL_VERSION_MISMATCH"
    HANDLER_FAILED = "MCP.HANDLER_FAILED"


# JSON-RPC 2.0, section 5.1, and the range the specification keeps for itself
# (2026-07-28, basic/index, "Error Codes").
PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022
URL_REQUIRED = -32042  # of one handshake revision only; see `eras`
# Ours, outside -32768..-32000 as the specification asks of applications.
UNAUTHORIZED = 1401


class MCPError(Exception):
    """Base of everything that can go wrong between two MCP peers.

    Attributes:
        code: the local kind.
        rpc_code: the JSON-RPC number to send, or that was received.
        message: one sentence, safe to show to the peer.
        data: JSON-able details for the peer, or None.
    """

    code: ErrorCode = ErrorCode.INTERNAL_ERROR
    rpc_code: int = INTERNAL_ERROR

    def __init__(
        self,
        message: str,
        *,
        data: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.data = data


class ProtocolError(MCPError):
    """A malformed message, or one this side refuses; the connection goes on."""

    code = ErrorCode.PROTOCOL_INVALID
    rpc_code = INVALID_REQUEST


class MethodNotFoundError(ProtocolError):
    """The method is not registered, or belongs to a capability nobody declared."""

    code = ErrorCode.METHOD_NOT_FOUND
    rpc_code = METHOD_NOT_FOUND


class InvalidParamsError(ProtocolError):
    """The parameters do not fit the method."""

    code = ErrorCode.INVALID_PARAMS
    rpc_code = INVALID_PARAMS


class NotFoundError(ProtocolError):
    """No such tool, prompt, resource or root."""

    code = ErrorCode.NOT_FOUND
    rpc_code = INVALID_PARAMS


class ResourceNotFoundError(NotFoundError):
    """No such resource. Its JSON-RPC code is the revision's (O2)."""

    def __init__(
        self,
        uri: str,
        message: str = "Resource not found",
        *,
        rpc_code: int,
        data: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message, data={**(data or {}), "uri": uri})
        self.rpc_code = rpc_code


class NotInitializedError(ProtocolError):
    """A request that needs the handshake came before it."""

    code = ErrorCode.NOT_INITIALIZED
    rpc_code = INVALID_REQUEST


class VersionMismatchError(ProtocolError):
    """The two sides share no revision."""

    code = ErrorCode.PROTOCOL_VERSION_MISMATCH
    rpc_code = UNSUPPORTED_VERSION


class HeaderMismatchError(ProtocolError):
    """An HTTP header contradicts the message body, or a required one is missing."""

    rpc_code = HEADER_MISMATCH


class MissingCapabilityError(ProtocolError):
    """The call needs something this client did not declare for this request.

    `data["requiredCapabilities"]` is a ClientCapabilities object of what is missing, empty if
    that is not said.
    """

    rpc_code = MISSING_CAPABILITY

    def __init__(self, message: str, *, data: Mapping[str, object] | None = None) -> None:
        super().__init__(message, data={"requiredCapabilities": {}, **(data or {})})


class URLRequiredError(ProtocolError):
    """The user has to visit a page before the call can be made; then it is made again (F7).

    `data["elicitations"]` are the parameters of URL elicitations. See `Context.require_url`.
    """

    rpc_code = URL_REQUIRED


class UnauthorizedError(ProtocolError):
    """`authorize()` said no; an authorizer may raise it itself, to say why.

    On a client: no token is to be had that the server takes.
    """

    code = ErrorCode.UNAUTHORIZED
    rpc_code = UNAUTHORIZED


class RemoteError(MCPError):
    """The peer answered with a JSON-RPC error; `rpc_code` and `data` are the peer's own.

    `code` is the kind that the peer named in `data`, else the one its number means.
    """

    def __init__(
        self, message: str, *, rpc_code: int, data: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(message, data=data)
        self.rpc_code = rpc_code
        told = (data or {}).get("code")
        known = {str(code): code for code in ErrorCode}
        # A peer that names no kind of ours is judged by its number.
        by_number = _KINDS.get(rpc_code, ErrorCode.INTERNAL_ERROR)
        self.code = known.get(told, by_number) if isinstance(told, str) else by_number


_KINDS = {
    PARSE_ERROR: ErrorCode.PROTOCOL_INVALID,
    INVALID_REQUEST: ErrorCode.PROTOCOL_INVALID,
    HEADER_MISMATCH: ErrorCode.PROTOCOL_INVALID,
    METHOD_NOT_FOUND: ErrorCode.METHOD_NOT_FOUND,
    INVALID_PARAMS: ErrorCode.INVALID_PARAMS,
    UNSUPPORTED_VERSION: ErrorCode.PROTOCOL_VERSION_MISMATCH,
    UNAUTHORIZED: ErrorCode.UNAUTHORIZED,
}


class RequestTimeoutError(MCPError):
    """A request did not finish within its time; its scope has been cancelled."""

    code = ErrorCode.TIMEOUT


class RequestCancelledError(MCPError):
    """A request was cancelled by somebody else than the awaiting scope. Never sent."""

    code = ErrorCode.REQUEST_CANCELLED


class TransportClosedError(MCPError):
    """This side already closed the transport."""

    code = ErrorCode.TRANSPORT_CLOSED


class TransportError(MCPError):
    """The transport broke, or the peer went away before it answered."""

    code = ErrorCode.TRANSPORT_ERROR


class SessionExpiredError(TransportError):
    """The server has forgotten the session, and done nothing for the request that was in it.

    A client opens another session by itself and asks once more; this is what comes of it if
    that one is forgotten, too, or cannot be opened.
    """


class AlreadyConnectedError(MCPError):
    """The object is in use; make a second one instead."""

    code = ErrorCode.ALREADY_CONNECTED


class DuplicateRegistrationError(MCPError):
    """A tool, resource or prompt of that name exists; the first one stays."""

    code = ErrorCode.DUPLICATE_REGISTRATION


class HandlerFailedError(MCPError):
    """A handler raised. The cause stays on this side; the peer gets a reference id."""

    code = ErrorCode.HANDLER_FAILED


OVERLOADED = "overloaded"
"""Why a request was refused that is over a limit: `data.reason`, and the code in what is told."""


class OverloadedError(MCPError):
    """A limit on sessions or requests was reached.

    Attributes:
        retry_after: seconds until it may be tried again.
        limit: the name of the limit of load that a request was over; None for any other.
    """

    def __init__(self, message: str, *, retry_after: float = 1.0, limit: str | None = None) -> None:
        # Rounded up, but for the noise of arithmetic: who comes back in time must not be early.
        data = {"reason": OVERLOADED, "retryAfterMs": math.ceil(retry_after * 1000 - 1e-3)}
        super().__init__(message, data=data if limit is None else {**data, "limit": limit})
        self.retry_after = retry_after
        self.limit = limit


class ToolError(Exception):
    """Raised by a tool to tell the model what went wrong; the text is sent as it is.

    Any other exception of a handler is replaced by generic text with a reference id.
    """


class ConfigurationError(Exception):
    """Settings, a registry or a connection that cannot work; the text says what to change."""


def sole_cause(error: BaseException) -> BaseException:
    """Unwrap groups of one: a single failure is itself."""
    inner: Any = getattr(error, "exceptions", ())
    return sole_cause(inner[0]) if len(inner) == 1 else error


@contextlib.contextmanager
def plainly() -> Generator[None, None, None]:
    """Let a single failure come out of the nurseries inside as itself; several stay a group."""
    try:
        yield
    except BaseExceptionGroup as group:
        cause = sole_cause(group)
        if cause is group:
            raise
        raise cause from cause.__cause__
