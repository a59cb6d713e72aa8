"""The value an era makes of a request it accepts, and the facts it needs from the server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, cast

import attrs

from mcp_trio.errors import (
    HeaderMismatchError,
    MCPError,
    MethodNotFoundError,
    MissingCapabilityError,
    VersionMismatchError,
)
from mcp_trio.framing.param_headers import ParamHeader
from mcp_trio.jsonrpc.messages import Error, Request
from mcp_trio.wire import METHODS, Implementation, JSONObject, Method, RequestId, Revision
from mcp_trio.wire.basic import ServerCapabilities
from mcp_trio.wire.converter import from_wire, to_wire
from mcp_trio.wire.meta import PROGRESS_TOKEN
from mcp_trio.wire.methods import Sender


@attrs.frozen(kw_only=True)
class ServerFacts:
    """What a server says about itself. A new value when anything of it changes."""

    info: Implementation
    capabilities: ServerCapabilities
    revisions: tuple[Revision, ...]
    """Served revisions, newest first."""
    instructions: str | None = None
    tool_headers: Callable[[str], tuple[ParamHeader, ...]] = attrs.field(default=lambda _name: ())
    """The mirrored arguments of a tool, empty for an unknown one."""


class Era(Protocol):
    """How one conversation, or one request of a stateless one, is spoken."""

    @property
    def revision(self) -> Revision:
        """The revision in force."""
        ...

    def own(self, method: str, facts: ServerFacts) -> object | None:
        """The result of a method that the era answers by itself; None for all others."""
        ...

    def seal(self, method: Method, result: object, facts: ServerFacts) -> JSONObject:
        """Dress a result for the wire."""
        ...

    def fault(self, error: MCPError) -> MCPError:
        """The error that says this in the era's own codes."""
        ...


@attrs.frozen(kw_only=True)
class Admitted:
    """A request that may run."""

    request: Request
    method: Method
    params: object
    """An object of the method's params class."""
    era: Era
    meta: JSONObject
    progress_token: int | str | None = None
    client_info: JSONObject | None = None
    client_capabilities: JSONObject = attrs.field(factory=dict[str, object])
    log_level: Callable[[], str | None] = attrs.field(default=lambda: None)


def lookup(name: str, revision: Revision, facts: ServerFacts) -> Method:
    """Find a request method that a client may call now.

    Raises:
        MethodNotFoundError: unknown, of another revision, or of a capability that the
            server does not declare (V4).
    """
    method = METHODS.get(name)
    if (
        method is None
        or method.result is None
        or Sender.CLIENT not in method.sender
        or not method.exists_in(revision)
        or (method.capability and getattr(facts.capabilities, method.capability) is None)
    ):
        raise MethodNotFoundError("Method not found")
    return method


def admit_params(request: Request, method: Method, revision: Revision) -> object:
    """Read the parameters into the method's class.

    Raises:
        InvalidParamsError: they do not fit.
    """
    target = cast("type[object]", method.params)
    return from_wire(request.params or {}, target, revision)


def progress_token(meta: Mapping[str, object]) -> int | str | None:
    """The token under which the client wants progress; anything but int and str is none."""
    token = meta.get(PROGRESS_TOKEN)
    return token if type(token) is int or type(token) is str else None


def meta_of(request: Request) -> JSONObject:
    """The `_meta` of a request, empty if it has none or it is no object."""
    meta = (request.params or {}).get("_meta")
    return cast("JSONObject", meta) if isinstance(meta, dict) else {}


# Errors whose `data` the schema defines to the letter; nothing may be added there.
_CLOSED_DATA = (VersionMismatchError, MissingCapabilityError, HeaderMismatchError)


def error_message(id_: RequestId | None, error: MCPError) -> Error:
    """Write an exception as a JSON-RPC error, with `data.code` where the schema allows."""
    if isinstance(error, _CLOSED_DATA):
        return Error(id_, error.rpc_code, error.message, error.data)
    return Error(
        id_, error.rpc_code, error.message, {"code": error.code.value, **(error.data or {})}
    )


def unsupported(requested: str, facts: ServerFacts) -> VersionMismatchError:
    """The refusal of a version, naming the ones that work (V2)."""
    return VersionMismatchError(
        "Unsupported protocol version",
        data={
            "supported": [revision.date for revision in facts.revisions],
            "requested": requested,
        },
    )


def info_on_wire(facts: ServerFacts, revision: Revision) -> JSONObject:
    """Name and version of the server, as a revision spells them."""
    return to_wire(facts.info, revision)
