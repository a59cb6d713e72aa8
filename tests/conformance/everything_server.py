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


def form(**fields: JSONObject) -> JSONObject:
    """A form in which every field has to be filled in."""
    return {"type": "object", "properties": fields, "required": list(fields)}


TEXT: JSONObject = {"type": "string"}
YES_OR_NO: JSONObject = {"type": "boolean"}
OPTIONS = [f"option{number}" for number in (1, 2, 3)]
TITLED = [
    {"const": f"value{number}", "title": f"{title} Option"}
    for number, title in enumerate(("First", "Second", "Third"), start=1)
]


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
async def test_streaming_elicitation(ctx: Context) -> ContentBlock:
    """Ask; the suite looks for requests on the stream, which must not be there."""
    answer = await ctx.elicit("Go on?", form(ok={"type": "boolean"}))
    return TextContent(text=f"The user said {answer.action}")


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


# -- asking, in both eras ------------------------------------------------------------


def told(answer: mcp_trio.Elicited[JSONObject]) -> ContentBlock:
    """What the user did, in words."""
    content = json.dumps(answer.content)
    return TextContent(text=f"Elicitation completed: action={answer.action}, content={content}")


@server.tool
async def test_sampling(ctx: Context, prompt: str) -> ContentBlock:
    """Let the client's model answer."""
    answer = await ctx.sample(prompt, max_tokens=100)
    return TextContent(text=f"LLM response: {answer.text}")


@server.tool
async def test_elicitation(ctx: Context, message: str) -> ContentBlock:
    """Ask the user for a name and an address."""
    fields = form(
        username={**TEXT, "description": "User's response"},
        email={**TEXT, "description": "User's email address"},
    )
    return told(await ctx.elicit(message, fields))


@server.tool
async def test_elicitation_sep1034_defaults(ctx: Context) -> ContentBlock:
    """Ask with a default of every primitive kind."""
    fields: JSONObject = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {
            "type": "string",
            "enum": ["active", "inactive", "pending"],
            "default": "active",
        },
        "verified": {"type": "boolean", "default": True},
    }
    return told(
        await ctx.elicit("Please check the defaults", {"type": "object", "properties": fields})
    )


@server.tool
async def test_elicitation_sep1330_enums(ctx: Context) -> ContentBlock:
    """Ask with every shape of a choice."""
    names = [f"Option {number}" for number in ("One", "Two", "Three")]
    fields: JSONObject = {
        "untitledSingle": {"type": "string", "enum": OPTIONS},
        "titledSingle": {"type": "string", "oneOf": TITLED},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": names},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": OPTIONS}},
        "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
    }
    return told(await ctx.elicit("Please choose", {"type": "object", "properties": fields}))


@server.tool
async def test_input_required_result_elicitation(ctx: Context) -> ContentBlock:
    """Ask for a name and greet."""
    answer = await ctx.elicit("What is your name?", form(name=TEXT), key="user_name")
    return TextContent(text=f"Hello, {(answer.content or {}).get('name', 'stranger')}!")


@server.tool
async def test_input_required_result_sampling(ctx: Context) -> ContentBlock:
    """Ask the model for a capital."""
    answer = await ctx.sample(
        "What is the capital of France?", max_tokens=100, key="capital_question"
    )
    return TextContent(text=f"The model says: {answer.text}")


@server.tool
async def test_input_required_result_list_roots(ctx: Context) -> ContentBlock:
    """Ask for the roots."""
    roots = await ctx.list_roots(key="client_roots")
    return TextContent(text=f"Client roots: {', '.join(root.uri for root in roots)}")


@server.tool
async def test_input_required_result_request_state(ctx: Context) -> ContentBlock:
    """Ask to confirm; that this runs again at all shows that the state was good."""
    answer = await ctx.elicit("Please confirm", form(ok=YES_OR_NO), key="confirm")
    return TextContent(text=f"state-ok: {answer.action}")


@server.tool
async def test_input_required_result_multiple_inputs(ctx: Context) -> ContentBlock:
    """Ask three things in one round."""
    said: dict[str, str] = {}

    async def name() -> None:
        answer = await ctx.elicit("What is your name?", form(name=TEXT), key="user_name")
        said["name"] = str((answer.content or {}).get("name"))

    async def greeting() -> None:
        answer = await ctx.sample("Generate a greeting", max_tokens=50, key="greeting")
        said["greeting"] = answer.text

    async def roots() -> None:
        said["roots"] = str(len(await ctx.list_roots(key="client_roots")))

    async with trio.open_nursery() as nursery:
        for ask in (name, greeting, roots):
            nursery.start_soon(ask)
    return TextContent(text=f"{said['greeting']}, {said['name']}: {said['roots']} roots")


@server.tool
async def test_input_required_result_multi_round(ctx: Context) -> ContentBlock:
    """Ask two things, one after the other."""
    one = await ctx.elicit("Step 1: What is your name?", form(name=TEXT), key="step1")
    two = await ctx.elicit("Step 2: What is your favorite color?", form(color=TEXT), key="step2")
    return TextContent(text=f"{one.content} and {two.content}")


@server.tool
async def test_input_required_result_tampered_state(ctx: Context) -> ContentBlock:
    """Ask once; a state that was changed on the way is refused."""
    answer = await ctx.elicit("Please confirm", form(ok=YES_OR_NO), key="ok")
    return TextContent(text=f"The state was intact: {answer.action}")


@server.tool
async def test_input_required_result_capabilities(ctx: Context) -> ContentBlock:
    """Ask whatever the client offers."""
    asked: list[str] = []
    offered = ctx.client_capabilities

    async def user() -> None:
        await ctx.elicit("What is your name?", form(name=TEXT), key="user_name")
        asked.append("elicitation")

    async def model() -> None:
        await ctx.sample("Generate a greeting", max_tokens=50, key="greeting")
        asked.append("sampling")

    async with trio.open_nursery() as nursery:
        if offered.elicitation is not None:
            nursery.start_soon(user)
        if offered.sampling is not None:
            nursery.start_soon(model)
    return TextContent(text=f"Asked: {', '.join(sorted(asked))}")


@server.prompt
async def test_input_required_result_prompt(ctx: Context) -> str:
    """A prompt that needs the user."""
    fields = form(context=TEXT)
    answer = await ctx.elicit("What context should the prompt use?", fields, key="user_context")
    return f"Use this context: {(answer.content or {}).get('context')}"


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
