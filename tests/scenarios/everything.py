"""A server that can do everything, and a client that has it all done.

`play` lets the two talk in one revision over one transport and gives the `Conversation`, in
which every message of both sides was checked against the official schema of the revision.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, TypedDict

import attrs
import trio

from mcp_trio import ClientCallbacks, Context, MCPClient, MCPServer, ServerOptions, ToolError
from mcp_trio.errors import (
    MCPError,
    MissingCapabilityError,
    RemoteError,
    UnauthorizedError,
    VersionMismatchError,
)
from mcp_trio.wire import (
    CallToolResult,
    JSONObject,
    ResourceContents,
    Revision,
    TextContent,
    Tool,
)
from mcp_trio.wire.completion import (
    CompletedArgument,
    CompleteParams,
    Completion,
    CompletionContext,
    Reference,
)
from mcp_trio.wire.converter import to_wire
from mcp_trio.wire.elicitation import ElicitParams, ElicitResult, forms_exist, pages_exist
from mcp_trio.wire.prompts import GetPromptResult, PromptMessage
from mcp_trio.wire.resources import ReadResourceResult
from mcp_trio.wire.roots import Root
from mcp_trio.wire.sampling import (
    CreateMessageParams,
    CreateMessageResult,
    ModelHint,
    ModelPreferences,
    SamplingMessage,
    ToolChoice,
    ToolResultContent,
    ToolUseContent,
    tool_use_exists,
)
from tests.scenarios.worlds import world
from tests.wire.official import Conversation
from tests.wire.samples import (
    AUDIO,
    EMBEDDED,
    ICON,
    IMAGE,
    LINK,
    META,
    NOTES,
    TEXT,
    TOOL,
    WHO,
    WRITTEN,
)

BLOCKS = [TEXT, IMAGE, AUDIO, EMBEDDED, LINK]
VALUES: dict[str, object] = {
    "object": {"a": 1, "deep": {"list": [None, 1.5]}},
    "array": [1, "two", None],
    "number": 7,
    "text": "seven",
    "nothing": None,
}
"""What a tool may give beside its content, by the name of the tool."""
SCHEMAS: dict[str, JSONObject] = {
    "object": {"type": "object", "properties": {"a": {"type": "integer"}, "deep": True}},
    "array": {"type": "array", "items": {}},
    "number": {"type": "integer"},
    "text": {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "string"},
    "nothing": {"anyOf": [{"type": "null"}, {"type": "object"}]},
}
TITLED = [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}]
FORMS: dict[str, JSONObject] = {
    "text": {"type": "string", "title": "T", "description": "D", "minLength": 1, "maxLength": 9},
    "text with a default": {"type": "string", "default": "x"},
    "address": {"type": "string", "format": "email", "default": "a@b.example"},
    "pattern": {"type": "string", "pattern": "t", "examples": ["t"]},
    "host": {"type": "string", "format": "hostname"},
    "integer": {"type": "integer", "minimum": 1, "maximum": 9, "default": 3},
    "number": {"type": "number", "title": "T", "minimum": 0.5, "default": 1.5},
    "boolean": {"type": "boolean", "title": "T", "description": "D", "default": True},
    "untitled choice": {"type": "string", "enum": ["a", "b"], "default": "a"},
    "titled choice": {"type": "string", "oneOf": TITLED, "default": "a"},
    "half titled choice": {"type": "string", "oneOf": [{"const": "a"}, {"const": "b"}]},
    "old titled choice": {"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]},
    "untitled choices": {
        "type": "array",
        "items": {"type": "string", "enum": ["a", "b"]},
        "minItems": 1,
        "maxItems": 2,
        "default": ["a"],
    },
    "bare choices": {"type": "array", "items": {"enum": ["a", "b"]}, "uniqueItems": True},
    "titled choices": {"type": "array", "items": {"anyOf": TITLED}, "default": ["b"]},
    "half titled choices": {"type": "array", "items": {"anyOf": [{"const": "a"}]}},
}
ANSWERS: dict[str, object] = {"integer": 3, "number": 2, "boolean": False, "array": ["a"]}
"""What the user fills in, by type. The official schema knows no fractions in an answer."""


class Pet(TypedDict):
    """What a form is made of."""

    name: str
    kind: Literal["cat", "dog"]


@attrs.frozen
class ReadyTool:
    """A tool that answers with what it was made of."""

    definition: Tool
    authorize = None
    result: CallToolResult

    async def call(self, context: Context, arguments: JSONObject) -> CallToolResult:
        await trio.lowlevel.checkpoint()
        return self.result


def make_server() -> MCPServer:
    """A server with all there is."""
    server = MCPServer(
        "everything",
        instructions="Use everything.",
        options=ServerOptions(page_size=5, request_timeout=60.0, max_rounds=40),
    )
    server.info = WHO
    _add_tools(server)
    _add_failures(server)
    _add_questions(server)
    _add_resources(server)
    _add_prompts(server)
    return server


def _add_tools(server: MCPServer) -> None:
    full = CallToolResult(
        content=BLOCKS, structured_content={"a": [None]}, is_error=False, meta=META
    )
    schema: JSONObject = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"any": True, "none": False, "text": {"type": "string"}},
        "required": ["text"],
        "$defs": {"x": True},
    }
    server.add_entry(ReadyTool(attrs.evolve(TOOL, name="blocks", input_schema=schema), full))
    for name, value in VALUES.items():
        tool = Tool(name=name, input_schema={"type": "object"}, output_schema=SCHEMAS[name])
        server.add_entry(ReadyTool(tool, CallToolResult(structured_content=value)))

    @server.tool
    async def counts(words: list[str]) -> dict[str, int]:
        """Count."""
        return {word: len(word) for word in words}

    @server.tool
    def numbers() -> list[int]:
        """Give numbers."""
        return [1, 2]

    @server.tool
    async def work(ctx: Context) -> str:
        """Report and log."""
        await ctx.progress(0.5)
        await ctx.progress(1, 2, "half")
        for level in ("debug", "error"):
            await ctx.log(level, {"at": None}, logger="work")
            await ctx.log(level, "text")
        return "done"

    @server.tool
    async def change() -> str:
        """Change everything."""
        server.add_tool(numbers, name="passing")
        server.remove_tool("passing")
        server.add_prompt(lambda: "passing", name="passing")
        server.prompts.remove("passing")
        server.add_resource("test://passing", lambda: "passing", name="passing")
        server.resources.remove("test://passing")
        server.notify_resource_updated("test://text")
        return "changed"


FAILING: dict[str, Exception] = {
    "refuses": UnauthorizedError("not you"),
    "lacks": MissingCapabilityError(
        "sampling", data={"requiredCapabilities": {"sampling": {"tools": {}}}}
    ),
    "fails": MCPError("failed", data={"why": [None]}),
    "tells": ToolError("the disk is full"),
    "breaks": RuntimeError("secret"),
    "lacks_something": MissingCapabilityError("something"),
    "was_refused": RemoteError("no", rpc_code=-32021, data={"requiredCapabilities": 5}),
    "was_misunderstood": RemoteError("no", rpc_code=-32022),
    "was_misread": RemoteError("no", rpc_code=-32020),
    "finds_nobody": VersionMismatchError("no common revision"),
}
"""What a tool may raise, by the name of the tool."""


def _add_failures(server: MCPServer) -> None:
    def failing(error: Exception) -> object:
        async def fail() -> str:
            raise error

        return fail

    for name, error in FAILING.items():
        server.add_tool(failing(error), name=name)

    @server.tool
    async def unencodable() -> CallToolResult:
        """Give what JSON cannot carry."""
        return CallToolResult(structured_content={"a": math.nan})

    @server.tool
    async def forever() -> str:
        """Never end."""
        await trio.sleep_forever()
        return ""

    @server.prompt
    async def broken() -> str:
        """Fail."""
        raise RuntimeError("secret")


def _add_questions(server: MCPServer) -> None:
    @server.tool
    async def fill_in(ctx: Context) -> str:
        """Ask with every form."""
        answers = [(await ctx.elicit("Which pet?", Pet)).action]
        for name, field in FORMS.items():
            form = {"type": "object", "properties": {"f": field}, "required": ["f"]}
            try:
                answers.append((await ctx.elicit(name, form)).action)
            except MissingCapabilityError:
                answers.append("unknown")
        nothing: JSONObject = {"type": "object", "properties": {}}
        no = [await ctx.elicit(action, nothing) for action in ("decline", "cancel")]
        return " ".join([*answers, *(answer.action for answer in no)])

    @server.tool
    async def visit(ctx: Context) -> str:
        """Send the user to a page."""
        answer = await ctx.elicit_url("Pay", "https://pay.example/1")
        if answer.elicitation_id is not None:
            await ctx.elicitation_completed(answer.elicitation_id)
        return answer.action

    @server.tool
    async def think(ctx: Context) -> str:
        """Ask the model plainly."""
        await ctx.sample("hello", max_tokens=10)
        answer = await ctx.sample(
            [
                SamplingMessage(role="user", content=[TEXT, IMAGE, AUDIO], meta=META),
                SamplingMessage(role="user", content=[]),
            ],
            max_tokens=10,
            system_prompt="Be brief.",
            model_preferences=ModelPreferences(
                hints=[ModelHint(name="m"), ModelHint()], cost_priority=1, speed_priority=0.5
            ),
            include_context="thisServer",
            temperature=0.5,
            stop_sequences=["."],
            metadata={"a": [{"b": "c"}]},
        )
        return answer.text

    @server.tool
    async def think_again(ctx: Context) -> str:
        """Show the model which tools were used before."""
        answer = await ctx.sample(USED, max_tokens=10)
        return answer.text

    @server.tool
    async def think_with_tools(ctx: Context) -> str:
        """Offer the model tools."""
        answer = await ctx.sample(
            "go", max_tokens=10, tools=[TOOL], tool_choice=ToolChoice(mode="required")
        )
        return str(answer.tool_uses)

    @server.tool
    async def roots(ctx: Context) -> str:
        """Look where the client lets the server work."""
        return str(len(await ctx.list_roots()))

    @server.tool
    async def impatient(ctx: Context) -> str:
        """Do not wait for the user."""
        with trio.move_on_after(1):
            await ctx.elicit("slow", {"type": "object", "properties": {}})
        return "gone"


USED = [
    SamplingMessage.user("go"),
    SamplingMessage(
        role="assistant",
        content=[
            TEXT,
            ToolUseContent(id="1", name="t", input={"a": None}, meta=META),
            ToolUseContent(id="2", name="t", input={}),
        ],
    ),
    SamplingMessage(
        role="user",
        content=[
            ToolResultContent(
                tool_use_id="1", content=BLOCKS, structured_content=[1], is_error=True, meta=META
            ),
            ToolResultContent(tool_use_id="2", structured_content={"a": 1}),
        ],
    ),
]


def _add_resources(server: MCPServer) -> None:
    @server.resource(
        "test://text",
        title="T",
        description="D",
        mime_type="text/plain",
        size=4,
        annotations=NOTES,
        icons=[ICON],
        meta=META,
    )
    async def text() -> str:
        return "text"

    @server.resource("test://many")
    async def many() -> ReadResourceResult:
        blob = ResourceContents(uri="test://blob", blob="AAAA", mime_type="image/png", meta=META)
        return ReadResourceResult(contents=[WRITTEN, blob], meta=META)

    @server.resource(
        "test://{id}/data",
        title="T",
        mime_type="application/json",
        annotations=NOTES,
        icons=[ICON],
        meta=META,
    )
    async def data(id: int) -> JSONObject:  # noqa: A002 - the template's variable
        return {"id": id}

    @server.completion("id", resource="test://{id}/data")
    def complete_id(typed: str, known: Mapping[str, str]) -> list[str]:
        return [str(number) for number in range(200)]

    @server.completion("x", resource="test://{id}/data")
    def complete_by_hand(typed: str, known: Mapping[str, str]) -> Completion:
        return Completion(values=[str(number) for number in range(200)])


def _add_prompts(server: MCPServer) -> None:
    @server.prompt(title="T", description="D", icons=[ICON], meta=META)
    async def blocks(first: str, second: str = "") -> GetPromptResult:
        messages = [PromptMessage(role="assistant", content=block) for block in BLOCKS]
        return GetPromptResult(messages=messages, description="D", meta=META)

    @server.prompt
    async def plain() -> str:
        return "text"

    @server.prompt
    async def personal(ctx: Context) -> str:
        answer = await ctx.elicit("Which pet?", Pet)
        return answer.action

    @server.completion("first", prompt="blocks")
    async def complete_first(typed: str, known: Mapping[str, str]) -> list[str]:
        await trio.lowlevel.checkpoint()
        return [typed + value for value in known.values()]


# -- the client ----------------------------------------------------------------------


async def _fill(params: ElicitParams) -> ElicitResult | JSONObject:
    if params.message == "slow":
        await trio.sleep_forever()
    if params.message in {"decline", "cancel"}:
        return ElicitResult(action=params.message, content={"dropped": 1})
    fields = (params.requested_schema or {})["properties"]
    return {name: _answer(field) for name, field in fields.items()}  # type: ignore[attr-defined]  # an object


def _answer(field: JSONObject) -> object:
    options = field.get("enum") or [option["const"] for option in field.get("oneOf", ())]  # type: ignore[attr-defined]  # an array
    text = "a@b.example" if field.get("format") == "email" else "text"
    return options[0] if options else ANSWERS.get(str(field["type"]), text)


async def _sample(params: CreateMessageParams) -> CreateMessageResult:
    await trio.lowlevel.checkpoint()
    content = [TEXT, AUDIO] if params.system_prompt else [TextContent(text="hi")]
    if params.tools:
        content = [TEXT, ToolUseContent(id="1", name="t", input={}, meta=META)]
    return CreateMessageResult(
        role="assistant", content=content, model="m", stop_reason="endTurn", meta=META
    )


CALLBACKS = ClientCallbacks(
    sampling=_sample,
    sampling_tools=True,
    sampling_context=True,
    elicitation=_fill,
    elicitation_url=lambda _: ElicitResult(action="accept", content={"dropped": 1}, meta=META),
    roots=lambda: [Root(uri="file:///a", name="a", meta=META), Root(uri="file:///b")],
)


async def attempt(client: MCPClient, method: str, params: object = None) -> JSONObject | None:
    """Call a method, come what may. Parameters are written as the revision has them."""
    plain = to_wire(params, client.revision) if attrs.has(type(params)) else params
    try:
        return await client.call(method, plain)  # type: ignore[arg-type]  # an object by now
    except MCPError:
        return None


async def _walk(client: MCPClient) -> None:
    """Everything that a server offers is listed, and used where using it asks nothing."""
    [_ async for _ in client.tools()]
    for method in ("prompts/list", "resources/list", "resources/templates/list"):
        await attempt(client, method, {})
    await attempt(client, "prompts/list", {"cursor": "wrong"})
    for name in ("blocks", *VALUES, "counts", "numbers"):
        arguments = {"words": ["a"]} if name == "counts" else {}
        await attempt(client, "tools/call", {"name": name, "arguments": arguments})
    for name in (*FAILING, "counts", "unencodable", "no such tool", "forever"):
        await attempt(client, "tools/call", {"name": name})
    for uri in ("test://text", "test://many", "test://1/data", "test://none", "test://x/data"):
        await attempt(client, "resources/read", {"uri": uri})
    await attempt(client, "prompts/get", {"name": "blocks", "arguments": {"first": "x"}})
    for name in ("blocks", "plain", "broken", "no such prompt"):
        await attempt(client, "prompts/get", {"name": name})
    for ref, argument in (
        (Reference(type="ref/prompt", name="blocks", title="B"), "first"),
        (Reference(type="ref/resource", uri="test://{id}/data"), "id"),
        (Reference(type="ref/resource", uri="test://{id}/data"), "x"),
        (Reference(type="ref/prompt", name="none"), "x"),
    ):
        params = CompleteParams(
            ref=ref,
            argument=CompletedArgument(name=argument, value="x"),
            context=CompletionContext(arguments={"second": "y"}),
        )
        await attempt(client, "completion/complete", params)
    await client.ping()


async def _listen(client: MCPClient) -> None:
    async with client.listen(
        tools=True, prompts=True, resources=True, resource="test://text"
    ) as changes:
        await client.call_tool("change")
        heard = {await anext(changes) for _ in range(4)}
        assert len(heard) == 4
    if client.revision.stateless:
        await client.call("subscriptions/listen", {"notifications": {}})  # ends at once
    else:
        await attempt(client, "logging/setLevel", {"level": "debug"})
        await client.notify_roots_changed()


async def _be_asked(client: MCPClient) -> set[str]:
    """Let the server ask; gives the names of what was answered."""
    calls = {
        name: ("tools/call", {"name": name})
        for name in ("fill_in", "visit", "think", "think_again", "think_with_tools", "roots")
    }
    calls["personal"] = ("prompts/get", {"name": "personal"})
    if not client.revision.stateless:
        calls["impatient"] = ("tools/call", {"name": "impatient"})
    return {name for name, call in calls.items() if await attempt(client, *call) is not None}


def _answerable(revision: Revision) -> set[str]:
    """What this client can be asked in a revision."""
    return {
        "think",
        "think_again",
        "roots",
        *(["fill_in", "personal"] if forms_exist(revision) else []),
        *(["impatient"] if forms_exist(revision) and not revision.stateless else []),
        *(["visit"] if pages_exist(revision) else []),
        *(["think_with_tools"] if tool_use_exists(revision) else []),
    }


async def play(revision: Revision, transport: str) -> Conversation:
    """Have everything done in one revision over one of the tapped transports."""
    tap = Conversation(revision.date)
    options = {"tap": tap, "info": WHO, "max_rounds": 40}
    async with world(make_server(), transport, revision, CALLBACKS, **options) as client:
        await _walk(client)
        await _listen(client)
        level = {"io.modelcontextprotocol/logLevel": "debug"} if revision.stateless else {}
        await client.call(
            "tools/call", {"name": "work", "_meta": {**META, **level}}, on_progress=lambda *_: None
        )
        assert await _be_asked(client) == _answerable(revision)
        with trio.move_on_after(1):
            await client.call_tool("forever")
    tap.finish()
    async with world(make_server(), transport, revision, tap=tap) as client:
        assert await _be_asked(client) == set()
    return tap
