"""The Model Context Protocol on structured concurrency, native to Trio.

A request is a cancel scope: whatever ends it ends every task it started. The names
below are the whole public face; more special things live in `mcp_trio.wire`,
`mcp_trio.abc`, `mcp_trio.testing` and `mcp_trio.catalog`.
"""

from mcp_trio.errors import ConfigurationError as ConfigurationError
from mcp_trio.errors import ErrorCode as ErrorCode
from mcp_trio.errors import MCPError as MCPError
from mcp_trio.errors import RemoteError as RemoteError
from mcp_trio.errors import RequestTimeoutError as RequestTimeoutError
from mcp_trio.errors import ToolError as ToolError
from mcp_trio.http.options import HTTPOptions as HTTPOptions
from mcp_trio.http.serving_settings import ServingSettings as ServingSettings
from mcp_trio.server.server import MCPServer as MCPServer
from mcp_trio.server.server import ServerOptions as ServerOptions
from mcp_trio.session.context import Context as Context
from mcp_trio.session.session import Dispatcher as Dispatcher
from mcp_trio.session.session import FunctionHandler as FunctionHandler
from mcp_trio.session.session import SessionLimits as SessionLimits
from mcp_trio.transports.memory import MemoryTransport as MemoryTransport
from mcp_trio.client.client import ClientOptions as ClientOptions
from mcp_trio.client.client import MCPClient as MCPClient
