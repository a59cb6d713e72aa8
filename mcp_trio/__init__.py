"""The Model Context Protocol on structured concurrency, native to Trio.

A request is a cancel scope: whatever ends it ends every task it started. The names
below are the whole front door; more special things live in `mcp_trio.wire`,
`mcp_trio.abc`, `mcp_trio.testing` and `mcp_trio.catalog`.

A name is imported when it is first asked for. A program that is only a client never loads the
server, and the other way round.
"""

import importlib
import typing

from mcp_trio.errors import ConfigurationError as ConfigurationError
from mcp_trio.errors import ErrorCode as ErrorCode
from mcp_trio.errors import MCPError as MCPError
from mcp_trio.errors import NotFoundError as NotFoundError
from mcp_trio.errors import RemoteError as RemoteError
from mcp_trio.errors import RequestTimeoutError as RequestTimeoutError
from mcp_trio.errors import ToolError as ToolError
from mcp_trio.errors import UnauthorizedError as UnauthorizedError

if typing.TYPE_CHECKING:
    # What `_HOMES` says, for who reads the program without running it.
    from mcp_trio import abc as abc
    from mcp_trio import wire as wire
    from mcp_trio.client.answers import ClientCallbacks as ClientCallbacks
    from mcp_trio.client.client import MCPClient as MCPClient
    from mcp_trio.client.group import ClientGroup as ClientGroup
    from mcp_trio.client.options import ClientOptions as ClientOptions
    from mcp_trio.engine.envelope import Principal as Principal
    from mcp_trio.eras.negotiate import EraCache as EraCache
    from mcp_trio.http.options import HTTPOptions as HTTPOptions
    from mcp_trio.http.serving_settings import ServingSettings as ServingSettings
    from mcp_trio.http.tls import TLSOptions as TLSOptions
    from mcp_trio.server.line_servers import LineOptions as LineOptions
    from mcp_trio.server.media import Audio as Audio
    from mcp_trio.server.media import File as File
    from mcp_trio.server.media import Image as Image
    from mcp_trio.server.media import Link as Link
    from mcp_trio.server.server import MCPServer as MCPServer
    from mcp_trio.server.server import ServerOptions as ServerOptions
    from mcp_trio.session.call import TimeLimit as TimeLimit
    from mcp_trio.session.context import Context as Context
    from mcp_trio.session.forms import Elicited as Elicited
    from mcp_trio.session.inbound import FunctionHandler as FunctionHandler
    from mcp_trio.session.limits import LoadLimits as LoadLimits
    from mcp_trio.session.limits import SessionLimits as SessionLimits
    from mcp_trio.session.limits import ToolLimits as ToolLimits
    from mcp_trio.session.rates import Rate as Rate
    from mcp_trio.session.session import Dispatcher as Dispatcher
    from mcp_trio.transports.memory import MemoryTransport as MemoryTransport
    from mcp_trio.transports.stdio_client import Command as Command

__version__ = "0.1.0"

_HOMES = {
    "ClientCallbacks": "client.answers",
    "MCPClient": "client.client",
    "ClientGroup": "client.group",
    "ClientOptions": "client.options",
    "HTTPOptions": "http.options",
    "ServingSettings": "http.serving_settings",
    "TLSOptions": "http.tls",
    "LineOptions": "server.line_servers",
    "Audio": "server.media",
    "File": "server.media",
    "Image": "server.media",
    "Link": "server.media",
    "MCPServer": "server.server",
    "ServerOptions": "server.server",
    "TimeLimit": "session.call",
    "Context": "session.context",
    "Principal": "engine.envelope",
    "EraCache": "eras.negotiate",
    "Elicited": "session.forms",
    "FunctionHandler": "session.inbound",
    "Dispatcher": "session.session",
    "SessionLimits": "session.limits",
    "LoadLimits": "session.limits",
    "ToolLimits": "session.limits",
    "Rate": "session.rates",
    "MemoryTransport": "transports.memory",
    "Command": "transports.stdio_client",
}
"""Where each name lives that is imported on demand."""
_PARTS = frozenset({"abc", "auth", "catalog", "runtime", "testing", "wire"})
"""Modules with the special parts."""


def _here(thing: object) -> object:
    """Say where it is to be imported from, for tracebacks and documentation."""
    if getattr(thing, "__module__", "").startswith(f"{__name__}."):
        thing.__module__ = __name__
    return thing


for _thing in tuple(globals().values()):
    _here(_thing)


def __getattr__(name: str) -> object:
    """Import a name, or one of the special parts, when it is first asked for."""
    if name in _PARTS:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = importlib.import_module(f"{__name__}.{_HOMES[name]}")
    thing = globals()[name] = _here(getattr(home, name))
    return thing


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_PARTS})
