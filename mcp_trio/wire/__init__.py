"""The vocabulary of the protocol: frozen attrs classes, one for all five revisions.

Pure data. Nothing here does input or output, and nothing imports trio.
"""

from mcp_trio.wire.basic import (
    ClientCapabilities as ClientCapabilities,
)
from mcp_trio.wire.basic import (
    EmptyResult as EmptyResult,
)
from mcp_trio.wire.basic import (
    Icon as Icon,
)
from mcp_trio.wire.basic import (
    Implementation as Implementation,
)
from mcp_trio.wire.basic import (
    JSONObject as JSONObject,
)
from mcp_trio.wire.basic import (
    ProgressToken as ProgressToken,
)
from mcp_trio.wire.basic import (
    RequestId as RequestId,
)
from mcp_trio.wire.basic import (
    ServerCapabilities as ServerCapabilities,
)
from mcp_trio.wire.content import (
    Annotations as Annotations,
)
from mcp_trio.wire.content import (
    AudioContent as AudioContent,
)
from mcp_trio.wire.content import (
    ContentBlock as ContentBlock,
)
from mcp_trio.wire.content import (
    EmbeddedResource as EmbeddedResource,
)
from mcp_trio.wire.content import (
    ImageContent as ImageContent,
)
from mcp_trio.wire.content import (
    ResourceContents as ResourceContents,
)
from mcp_trio.wire.content import (
    ResourceLink as ResourceLink,
)
from mcp_trio.wire.content import (
    TextContent as TextContent,
)
from mcp_trio.wire.lifecycle import (
    DiscoverResult as DiscoverResult,
)
from mcp_trio.wire.lifecycle import (
    InitializeParams as InitializeParams,
)
from mcp_trio.wire.lifecycle import (
    InitializeResult as InitializeResult,
)
from mcp_trio.wire.marks import ABSENT as ABSENT
from mcp_trio.wire.methods import METHODS as METHODS
from mcp_trio.wire.methods import Method as Method
from mcp_trio.wire.revisions import REVISIONS as REVISIONS
from mcp_trio.wire.revisions import Revision as Revision
from mcp_trio.wire.tools import (
    CallToolParams as CallToolParams,
)
from mcp_trio.wire.tools import (
    CallToolResult as CallToolResult,
)
from mcp_trio.wire.tools import (
    ListToolsResult as ListToolsResult,
)
from mcp_trio.wire.tools import (
    Tool as Tool,
)
from mcp_trio.wire.tools import (
    ToolAnnotations as ToolAnnotations,
)
