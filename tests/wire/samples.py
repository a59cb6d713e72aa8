"""One object of every wire class with every field set, for tests of the converter."""

from __future__ import annotations

from mcp_trio.wire import (
    Annotations,
    AudioContent,
    CallToolParams,
    CallToolResult,
    ClientCapabilities,
    DiscoverResult,
    EmbeddedResource,
    EmptyResult,
    Icon,
    ImageContent,
    Implementation,
    InitializeParams,
    InitializeResult,
    ListToolsResult,
    ResourceContents,
    ResourceLink,
    ServerCapabilities,
    TextContent,
    Tool,
    ToolAnnotations,
)
from mcp_trio.wire.basic import EmptyParams
from mcp_trio.wire.notices import (
    AcknowledgedParams,
    CancelledParams,
    ListenParams,
    LogParams,
    ProgressParams,
    SetLevelParams,
    SubscriptionFilter,
)
from mcp_trio.wire.tools import PageParams, ToolExecution

META: dict[str, object] = {"example.com/key": {"deep": [1, None]}}
REQUEST_META: dict[str, object] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
}
ICON = Icon(src="https://a.example/i.png", mime_type="image/png", sizes=["48x48"], theme="dark")
NOTES = Annotations(audience=["user"], priority=0.5, last_modified="2025-01-12T15:00:58Z")
WHO = Implementation(
    name="n",
    version="1",
    title="T",
    description="D",
    website_url="https://a.example",
    icons=[ICON],
)
CLIENT_CAN = ClientCapabilities(
    experimental={"x": {}},
    roots={"listChanged": True},
    sampling={},
    elicitation={},
    tasks={},
    extensions={"a.example/x": {}},
)
SERVER_CAN = ServerCapabilities(
    experimental={"x": {}},
    logging={},
    completions={},
    prompts={"listChanged": True},
    resources={"subscribe": True},
    tools={"listChanged": False},
    tasks={},
    extensions={"a.example/x": {}},
)
TEXT = TextContent(text="t", annotations=NOTES, meta=META)
IMAGE = ImageContent(data="AAAA", mime_type="image/png", annotations=NOTES, meta=META)
AUDIO = AudioContent(data="AAAA", mime_type="audio/wav", annotations=NOTES, meta=META)
WRITTEN = ResourceContents(uri="file:///a", mime_type="text/plain", text="t", meta=META)
EMBEDDED = EmbeddedResource(resource=WRITTEN, annotations=NOTES, meta=META)
LINK = ResourceLink(
    uri="file:///a",
    name="a",
    title="A",
    description="D",
    mime_type="text/plain",
    size=3,
    annotations=NOTES,
    icons=[ICON],
    meta=META,
)
TOOL = Tool(
    name="t",
    input_schema={"type": "object", "x-more": 1},
    title="T",
    description="D",
    output_schema={"type": "object"},
    annotations=ToolAnnotations(
        title="T",
        read_only_hint=True,
        destructive_hint=False,
        idempotent_hint=True,
        open_world_hint=False,
    ),
    execution=ToolExecution(task_support="optional"),
    icons=[ICON],
    meta=META,
)
WANTED = SubscriptionFilter(
    tools_list_changed=True,
    prompts_list_changed=False,
    resources_list_changed=True,
    resource_subscriptions=["file:///a"],
)

SAMPLES: dict[str, object] = {
    "icon": ICON,
    "annotations": NOTES,
    "implementation": WHO,
    "client capabilities": CLIENT_CAN,
    "server capabilities": SERVER_CAN,
    "text": TEXT,
    "image": IMAGE,
    "audio": AUDIO,
    "written resource": WRITTEN,
    "binary resource": ResourceContents(uri="file:///b", blob="AAAA", meta=META),
    "embedded": EMBEDDED,
    "link": LINK,
    "tool annotations": TOOL.annotations,
    "tool execution": TOOL.execution,
    "tool": TOOL,
    "page params": PageParams(cursor="", meta=REQUEST_META),
    "list result": ListToolsResult(
        tools=[TOOL], next_cursor="c", ttl_ms=5, cache_scope="public", meta=META
    ),
    "call params": CallToolParams(name="t", arguments={"a": None}, meta=REQUEST_META),
    "call result": CallToolResult(
        content=[TEXT, IMAGE, AUDIO, EMBEDDED, LINK],
        structured_content={"a": 1},
        is_error=False,
        meta=META,
    ),
    "initialize params": InitializeParams(
        protocol_version="2025-11-25", capabilities=CLIENT_CAN, client_info=WHO, meta=META
    ),
    "initialize result": InitializeResult(
        protocol_version="2025-11-25",
        capabilities=SERVER_CAN,
        server_info=WHO,
        instructions="I",
        meta=META,
    ),
    "discover result": DiscoverResult(
        supported_versions=["2026-07-28"],
        capabilities=SERVER_CAN,
        instructions="I",
        ttl_ms=5,
        cache_scope="public",
        meta=META,
    ),
    "empty result": EmptyResult(meta=META),
    "empty params": EmptyParams(meta=META),
    "cancelled": CancelledParams(request_id="7", reason="R", meta=META),
    "progress": ProgressParams(progress_token=7, progress=1, total=2.5, message="M", meta=META),
    "log": LogParams(level="info", data=[None], logger="L", meta=META),
    "set level": SetLevelParams(level="info", meta=META),
    "filter": WANTED,
    "listen": ListenParams(notifications=WANTED, meta=REQUEST_META),
    "acknowledged": AcknowledgedParams(notifications=WANTED, meta=META),
}
