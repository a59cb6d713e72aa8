"""One object of every wire class with every field set, for tests of the converter."""

from __future__ import annotations

from typing import Any

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
from mcp_trio.wire.completion import (
    CompletedArgument,
    CompleteParams,
    CompleteResult,
    Completion,
    CompletionContext,
    Reference,
)
from mcp_trio.wire.elicitation import ElicitationCompleteParams, ElicitParams, ElicitResult
from mcp_trio.wire.notices import (
    AcknowledgedParams,
    CancelledParams,
    ListenParams,
    LogParams,
    ProgressParams,
    SetLevelParams,
    SubscriptionFilter,
)
from mcp_trio.wire.prompts import (
    GetPromptParams,
    GetPromptResult,
    ListPromptsResult,
    Prompt,
    PromptArgument,
    PromptMessage,
)
from mcp_trio.wire.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    ResourceUpdatedParams,
)
from mcp_trio.wire.roots import ListRootsResult, Root
from mcp_trio.wire.sampling import (
    CreateMessageParams,
    CreateMessageResult,
    ModelHint,
    ModelPreferences,
    SamplingMessage,
    ToolChoice,
    ToolResultContent,
    ToolUseContent,
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
ROOT = Root(uri="file:///a", name="a", meta=META)
PROMPT = Prompt(
    name="p",
    title="P",
    description="D",
    arguments=[PromptArgument(name="a", title="A", description="D", required=True)],
    icons=[ICON],
    meta=META,
)
RESOURCE = Resource(
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
TEMPLATE = ResourceTemplate(
    uri_template="file:///{a}",
    name="a",
    title="A",
    description="D",
    mime_type="text/plain",
    annotations=NOTES,
    icons=[ICON],
    meta=META,
)
USE = ToolUseContent(id="1", name="t", input={"a": None}, meta=META)
USED = ToolResultContent(
    tool_use_id="1",
    content=[TEXT, AUDIO],
    structured_content={"a": 1},
    is_error=False,
    meta=META,
)
SAID = SamplingMessage(role="assistant", content=[TEXT, IMAGE, AUDIO, USE], meta=META)
PREFERENCES = ModelPreferences(
    hints=[ModelHint(name="m")], cost_priority=0, speed_priority=0.5, intelligence_priority=1
)
PAGE: dict[str, Any] = {"next_cursor": "c", "ttl_ms": 5, "cache_scope": "public", "meta": META}

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
    "binary resource": ResourceContents(
        uri="file:///b", mime_type="image/png", blob="AAAA", meta=META
    ),
    "embedded": EMBEDDED,
    "link": LINK,
    "tool annotations": TOOL.annotations,
    "tool execution": TOOL.execution,
    "tool": TOOL,
    "page params": PageParams(cursor="", meta=REQUEST_META),
    "list result": ListToolsResult(tools=[TOOL], **PAGE),
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
    "empty result": EmptyResult(meta={**META, "io.modelcontextprotocol/subscriptionId": 7}),
    "empty params": EmptyParams(meta=REQUEST_META),
    "cancelled": CancelledParams(request_id="7", reason="R", meta=META),
    "progress": ProgressParams(progress_token=7, progress=1, total=2.5, message="M", meta=META),
    "log": LogParams(level="info", data=[None], logger="L", meta=META),
    "set level": SetLevelParams(level="info", meta=META),
    "filter": WANTED,
    "listen": ListenParams(notifications=WANTED, meta=REQUEST_META),
    "acknowledged": AcknowledgedParams(notifications=WANTED, meta=META),
    "prompt": PROMPT,
    "prompts": ListPromptsResult(prompts=[PROMPT], **PAGE),
    "prompt params": GetPromptParams(name="p", arguments={"a": "x"}, meta=REQUEST_META),
    "prompt result": GetPromptResult(
        messages=[
            PromptMessage(role="user", content=block)
            for block in (TEXT, IMAGE, AUDIO, EMBEDDED, LINK)
        ],
        description="D",
        meta=META,
    ),
    "resource": RESOURCE,
    "template": TEMPLATE,
    "resources": ListResourcesResult(resources=[RESOURCE], **PAGE),
    "templates": ListResourceTemplatesResult(resource_templates=[TEMPLATE], **PAGE),
    "read params": ReadResourceParams(uri="file:///a", meta=REQUEST_META),
    "read result": ReadResourceResult(
        contents=[WRITTEN], ttl_ms=5, cache_scope="public", meta=META
    ),
    "updated": ResourceUpdatedParams(uri="file:///a", meta=META),
    "complete params": CompleteParams(
        ref=Reference(type="ref/prompt", name="p", title="P"),
        argument=CompletedArgument(name="a", value="x"),
        context=CompletionContext(arguments={"b": "y"}),
        meta=REQUEST_META,
    ),
    "complete result": CompleteResult(
        completion=Completion(values=["x"], total=1, has_more=False), meta=META
    ),
    "root": ROOT,
    "roots": ListRootsResult(roots=[ROOT], meta=META),
    "use": USE,
    "used": USED,
    "message": SAID,
    "preferences": PREFERENCES,
    "tool choice": ToolChoice(mode="auto"),
    "sampling params": CreateMessageParams(
        messages=[SAID, SamplingMessage(role="user", content=[USED])],
        max_tokens=1,
        system_prompt="S",
        model_preferences=PREFERENCES,
        include_context="none",
        temperature=0.5,
        stop_sequences=["."],
        metadata={"a": "b"},
        tools=[TOOL],
        tool_choice=ToolChoice(mode="auto"),
    ),
    "sampling result": CreateMessageResult(
        role="assistant", content=[TEXT, USE], model="m", stop_reason="endTurn", meta=META
    ),
    "form": ElicitParams(
        message="M",
        mode="form",
        requested_schema={"type": "object", "properties": {"a": {"type": "string"}}},
    ),
    "page": ElicitParams(message="M", mode="url", url="https://a.example", elicitation_id="1"),
    "elicit result": ElicitResult(action="accept", content={"a": "x"}, meta=META),
    "elicited": ElicitationCompleteParams(elicitation_id="1"),
}
