"""The server that the official conformance suite is run against.

Names, texts and schemas here are the suite's, word for word. A fixture stands here only
when the engine can really do what it shows; what is missing is listed, with its reason, in
`baseline.toml`. How the suite is run and judged lives in `run.py` and `judge.py`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Annotated

import click
import msgspec
import trio

import mcp_trio
from mcp_trio import Context, ToolError
from mcp_trio.errors import MissingCapabilityError
from mcp_trio.wire import (
    AudioContent,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    JSONObject,
    ResourceContents,
    TextContent,
)

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)
"""A PNG picture of one pixel."""
SILENCE = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
"""A WAV file of almost no sound."""
PAUSE = 0.05
"""Seconds between two signs of life; the suite looks at their order, not at their times."""

CONTACT_SCHEMA: JSONObject = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {
        "properties": {"contactMethod": {"const": "phone"}},
        "required": ["contactMethod"],
    },
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
"""A schema of every 2020-12 keyword that a careless server would lose."""

Region = Annotated[str, msgspec.Meta(extra_json_schema={"x-mcp-header": "Region"})]
"""A text that clients mirror into the header `Mcp-Param-Region`."""

server = mcp_trio.MCPServer("mcp-trio-everything", version="1.0.0")


# First in the list on purpose: the header scenarios call whatever tool stands there.
@server.tool
async def test_simple_text() -> ContentBlock:
    """Return one text block."""
    return TextContent(text="This is a simple text response for testing.")


@server.tool
async def test_image_content() -> ContentBlock:
    """Return a picture."""
    return ImageContent(data=PIXEL, mime_type="image/png")


@server.tool
async def test_audio_content() -> ContentBlock:
    """Return a sound."""
    return AudioContent(data=SILENCE, mime_type="audio/wav")


@server.tool
async def test_embedded_resource() -> ContentBlock:
    """Return a resource inside the result."""
    return EmbeddedResource(
        resource=ResourceContents(
            uri="test://embedded-resource",
            mime_type="text/plain",
            text="This is an embedded resource content.",
        )
    )


@server.tool
async def test_multiple_content_types() -> list[ContentBlock]:
    """Return text, a picture and a resource together."""
    return [
        TextContent(text="Multiple content types test:"),
        ImageContent(data=PIXEL, mime_type="image/png"),
        EmbeddedResource(
            resource=ResourceContents(
                uri="test://mixed-content-resource",
                mime_type="application/json",
                text=json.dumps({"test": "data", "value": 123}),
            )
        ),
    ]


@server.tool
async def test_error_handling() -> ContentBlock:
    """Fail always, with a text for the model."""
    raise ToolError("This tool intentionally returns an error for testing")


@server.tool
async def test_tool_with_progress(ctx: Context) -> ContentBlock:
    """Report progress 0, 50 and 100 of 100, then answer."""
    for value in (0, 50, 100):
        await ctx.progress(value, 100)
        await trio.sleep(PAUSE)
    return TextContent(text=f"Progress was reported for {ctx.progress_token!r}")


@server.tool
async def test_tool_with_logging(ctx: Context) -> ContentBlock:
    """Write three lines to the client's log."""
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.log("info", line)
        await trio.sleep(PAUSE)
    return TextContent(text="Three lines were logged")


@server.tool
async def test_x_mcp_header(region: Region = "") -> ContentBlock:  # noqa: PT028 - not a test
    """Echo an argument that travels in a header too."""
    return TextContent(text=f"region: {region}")


@server.tool
async def test_missing_capability(ctx: Context) -> ContentBlock:
    """Need a client that offers sampling."""
    if ctx.client_capabilities.sampling is None:
        raise MissingCapabilityError(
            "This tool needs a client with sampling",
            data={"requiredCapabilities": {"sampling": {}}},
        )
    return TextContent(text="The client offers sampling")


@server.tool
async def test_streaming_elicitation() -> ContentBlock:
    """Answer at once; the suite looks for requests on the stream, which must not be there."""
    return TextContent(text="Nothing was asked")


@server.tool
async def test_logging_tool(ctx: Context) -> ContentBlock:
    """Log one line, which is only sent to a client that asked for a level."""
    await ctx.log("info", "test_logging_tool was called")
    return TextContent(text="Logged")


@server.tool
async def test_trigger_tool_change() -> ContentBlock:
    """Change the list of tools and change it back; whoever listens is told."""

    async def passing() -> ContentBlock:
        """Exist for a moment."""
        return TextContent(text="here")

    server.add_tool(passing, name="test_passing")
    server.remove_tool("test_passing")
    return TextContent(text="The list of tools has changed")


@server.tool
async def test_trigger_prompt_change() -> ContentBlock:
    """Change the list of prompts, net zero, and tell the listeners."""
    server.add_prompt(lambda: "passing", name="test_passing_prompt")
    server.prompts.remove("test_passing_prompt")
    return TextContent(text="The list of prompts has changed")


@server.prompt
async def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


@server.prompt
async def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt with two required arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.prompt
async def test_prompt_with_embedded_resource(resourceUri: str) -> list[ContentBlock]:  # noqa: N803 - the suite's name
    """A prompt that carries a resource."""
    held = ResourceContents(
        uri=resourceUri,
        mime_type="text/plain",
        text="Embedded resource content for testing.",
    )
    return [
        EmbeddedResource(resource=held),
        TextContent(text="Please process the embedded resource above."),
    ]


@server.prompt
async def test_prompt_with_image() -> list[ContentBlock]:
    """A prompt that carries a picture."""
    return [
        ImageContent(data=PIXEL, mime_type="image/png"),
        TextContent(text="Please analyze the image above."),
    ]


@server.resource("test://static-text", name="Static text", mime_type="text/plain")
async def static_text() -> str:
    """A text that never changes."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", name="Static binary", mime_type="image/png")
async def static_binary() -> bytes:
    """A picture that never changes."""
    return base64.b64decode(PIXEL)


@server.resource("test://watched-resource", name="Watched resource", mime_type="text/plain")
async def watched_resource() -> str:
    """A resource to subscribe to."""
    return "Watched resource content"


@server.resource("test://template/{id}/data", name="Template", mime_type="application/json")
async def templated(id: str) -> str:  # noqa: A002 - the template's variable
    """Data by id."""
    held = {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}
    return json.dumps(held, separators=(",", ":"))


@server.completion("arg1", prompt="test_prompt_with_arguments")
def complete_arg1(typed: str, _known: Mapping[str, str]) -> list[str]:
    """Suggest values that begin with what was typed."""
    return [value for value in ("test1", "test2", "paris") if value.startswith(typed)]


@server.tool
async def test_reconnection(ctx: Context) -> ContentBlock:
    """Let the client go in the middle of the call; it comes back for the answer."""
    await ctx.close_stream(retry_ms=100)
    await trio.sleep(PAUSE)
    return TextContent(text="The client came back for this")


async def contact() -> ContentBlock:
    """Be listed with a JSON Schema 2020-12 input; nobody calls it."""
    return TextContent(text="ok")


server.add_tool(contact, name="json_schema_2020_12_tool", input_schema=CONTACT_SCHEMA)


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=0, show_default=True, help="0 picks a free one.")
def main(host: str, port: int) -> None:
    """Serve until SIGTERM; the URL is printed on standard error."""
    server.run("http", host=host, port=port)


if __name__ == "__main__":
    main()
