"""The Model Context Protocol on structured concurrency, native to Trio.

A request is a cancel scope: whatever ends it ends every task it started. The names
below are the whole front door; more special things live in `mcp_trio.wire`,
`mcp_trio.abc`, `mcp_trio.testing` and `mcp_trio.catalog`.
"""

import importlib

from mcp_trio import abc as abc
from mcp_trio import wire as wire
from mcp_trio.client.answers import ClientCallbacks as ClientCallbacks
from mcp_trio.client.client import MCPClient as MCPClient
from mcp_trio.client.options import ClientOptions as ClientOptions
from mcp_trio.engine.envelope import Principal as Principal
from mcp_trio.eras.negotiate import EraCache as EraCache
from mcp_trio.errors import ConfigurationError as ConfigurationError
from mcp_trio.errors import ErrorCode as ErrorCode
from mcp_trio.errors import MCPError as MCPError
from mcp_trio.errors import NotFoundError as NotFoundError
from mcp_trio.errors import RemoteError as RemoteError
from mcp_trio.errors import RequestTimeoutError as RequestTimeoutError
from mcp_trio.errors import ToolError as ToolError
from mcp_trio.errors import UnauthorizedError as UnauthorizedError
from mcp_trio.http.options import HTTPOptions as HTTPOptions
from mcp_trio.http.serving_settings import ServingSettings as ServingSettings
from mcp_trio.server.line_servers import LineOptions as LineOptions
from mcp_trio.server.media import Audio as Audio
from mcp_trio.server.media import File as File
from mcp_trio.server.media import Image as Image
from mcp_trio.server.media import Link as Link
from mcp_trio.server.server import MCPServer as MCPServer
from mcp_trio.server.server import ServerOptions as ServerOptions
from mcp_trio.session.context import Context as Context
from mcp_trio.session.forms import Elicited as Elicited
from mcp_trio.session.inbound import FunctionHandler as FunctionHandler
from mcp_trio.session.session import Dispatcher as Dispatcher
from mcp_trio.session.session import SessionLimits as SessionLimits
from mcp_trio.transports.memory import MemoryTransport as MemoryTransport
from mcp_trio.transports.stdio_client import Command as Command

__version__ = "0.1.0"

for _name, _thing in tuple(globals().items()):
    # Tracebacks and documentation show where a name is to be imported from.
    if not _name.startswith("_") and getattr(_thing, "__module__", "").startswith("mcp_trio."):
        _thing.__module__ = __name__

_ON_DEMAND = frozenset({"auth", "catalog", "runtime", "testing"})


def __getattr__(name: str) -> object:
    """Import the special parts when they are first asked for."""
    if name in _ON_DEMAND:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
