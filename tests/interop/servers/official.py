"""A server made with the official Python SDK: something to try every method of the protocol on.

Runs in the peers' environment, with `stdio`, `http` or `sse`; over HTTP the URL is printed on
standard error. `official.mjs` offers the same with the official TypeScript SDK. What happens
inside is visible through tools: `wait_for` answers once a named moment has come.
"""

from __future__ import annotations

import base64
import functools
import socket
import sys
import warnings
from collections import defaultdict
from typing import Annotated, Any

import anyio
import mcp_types as types
from mcp.server.mcpserver import (
    AcceptedElicitation,
    Context,
    Elicit,
    ElicitationResult,
    ListRoots,
    MCPServer,
    Resolve,
    Sample,
)
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.prompts.base import UserMessage
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from pydantic import BaseModel, Field
from starlette.applications import Starlette

PATIENCE = 10.0
"""Seconds `wait_for` waits for a moment."""
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)
SILENCE = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
PEOPLE = ("ada", "alan", "grace")
TONES = ("friendly", "formal", "frank")
PAGE = 2
"""Resources on a page of their list; the SDK itself has no pages."""

warnings.simplefilter("ignore", MCPDeprecationWarning)
server = MCPServer(
    "official",
    title="Official",
    version="1.0.0",
    instructions="Try everything.",
    log_level="ERROR",
)


class Person(BaseModel):
    """What the user fills in."""

    name: str = Field(min_length=1)
    age: int = Field(default=30, ge=0)


# -- calling -----------------------------------------------------------------------------


@functools.cache
def moments() -> defaultdict[str, anyio.Event]:
    """The moments of this process by name; made on first use, inside the event loop."""
    return defaultdict(anyio.Event)


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def show() -> types.CallToolResult:
    """Return a block of every kind."""
    note = types.TextResourceContents(
        uri="official://inside", mime_type="text/plain", text="inside"
    )
    return types.CallToolResult(
        content=[
            types.TextContent(text="all kinds"),
            types.ImageContent(data=PIXEL, mime_type="image/png"),
            types.AudioContent(data=SILENCE, mime_type="audio/wav"),
            types.EmbeddedResource(resource=note),
            types.ResourceLink(uri="official://text", name="text", mime_type="text/plain"),
        ]
    )


@server.tool()
async def refuse() -> str:
    """Fail with a text for the model."""
    raise ToolError("this tool never works")


@server.tool()
async def count(ctx: Context, to: int, until: str) -> str:
    """Count, reporting each step; answer once a moment has come."""
    for step in range(1, to + 1):
        await ctx.report_progress(step, to, f"step {step}")
    await wait_for(until)
    return f"counted to {to}"


@server.tool()
async def hold(name: str) -> str:
    """Run until cancelled. The moments are `NAME began` and `NAME ended`."""
    moments()[f"{name} began"].set()
    try:
        await anyio.sleep_forever()
    finally:
        moments()[f"{name} ended"].set()
    raise AssertionError


@server.tool()
async def wait_for(moment: str) -> bool:
    """Tell whether a moment came in time."""
    with anyio.move_on_after(PATIENCE):
        await moments()[moment].wait()
        return True
    return False


@server.tool()
async def tell(moment: str) -> str:
    """Say that a moment has come."""
    moments()[moment].set()
    return moment


@server.tool()
async def speak(ctx: Context) -> str:
    """Write a line of three levels to the client's log."""
    await ctx.debug("whispered")
    await ctx.warning("said", logger_name="official.speak")
    await ctx.error({"how": "shouted"})
    return "spoken"


# -- asking ------------------------------------------------------------------------------


async def who(message: str) -> Elicit[Person]:
    """Ask who the user is."""
    return Elicit(message, Person)


@server.tool()
async def ask_form(
    message: str, answer: Annotated[ElicitationResult[Person], Resolve(who)]
) -> dict[str, Any]:
    """Let the user fill in a form."""
    data = answer.data.model_dump() if isinstance(answer, AcceptedElicitation) else None
    return {"message": message, "action": answer.action, "content": data}


@server.tool()
async def ask_page(ctx: Context) -> types.CallToolResult | types.InputRequiredResult:
    """Send the user to a page."""
    where, why = "https://example.com/sign-in", "Please sign in"
    if (ctx.protocol_version or "") < "2026-07-28":
        action = (await ctx.elicit_url(why, where, "visit-1")).action
        await ctx.session.send_elicit_complete("visit-1")
    elif ctx.input_responses is None:
        question = types.ElicitRequest(params=types.ElicitRequestURLParams(message=why, url=where))
        return types.InputRequiredResult(input_requests={"visit": question}, request_state="asked")
    else:
        assert ctx.request_state == "asked"
        action = ctx.input_responses["visit"].action  # type: ignore[union-attr]
    return types.CallToolResult(content=[types.TextContent(text=action)])


def oracle(question: str) -> Sample:
    """Ask the model."""
    words = types.TextContent(text=question)
    return Sample([types.SamplingMessage(role="user", content=words)], max_tokens=20)


@server.tool()
async def ask_model(
    question: str, answer: Annotated[types.CreateMessageResult, Resolve(oracle)]
) -> str:
    """Let the client's model answer."""
    return f"{question} {answer.model}: {answer.content.text}"  # type: ignore[union-attr]


def places() -> ListRoots:
    """Ask for the roots."""
    return ListRoots()


@server.tool()
async def ask_roots(found: Annotated[types.ListRootsResult, Resolve(places)]) -> list[str]:
    """Name the client's roots."""
    return [f"{root.name}: {root.uri}" for root in found.roots]


def first() -> Elicit[Person]:
    """Ask who the user is."""
    return Elicit("Who are you?", Person)


def hello() -> Sample:
    """Ask the model to be polite."""
    words = types.TextContent(text="Say hello")
    return Sample([types.SamplingMessage(role="user", content=words)], max_tokens=20)


def second(user: Annotated[Person, Resolve(first)]) -> Elicit[Person]:
    """Ask who else there is, which takes a round of its own."""
    return Elicit(f"Who is with {user.name}?", Person)


@server.tool()
async def ask_all(
    user: Annotated[Person, Resolve(first)],
    model: Annotated[types.CreateMessageResult, Resolve(hello)],
    found: Annotated[types.ListRootsResult, Resolve(places)],
    other: Annotated[ElicitationResult[Person], Resolve(second)],
) -> dict[str, Any]:
    """Ask the user, the model and for the roots, and the user once more."""
    return {
        "user": user.name,
        "model": model.content.text,  # type: ignore[union-attr]
        "roots": len(found.roots),
        "other": other.action,
    }


# -- reading -----------------------------------------------------------------------------

touches: dict[str, int] = {"official://watched": 0, "official://other": 0}
"""How often the resources that can be watched were touched."""
subscribed: set[str] = set()
"""What the one client of this process has subscribed to."""


@server.resource("official://text", title="A text", mime_type="text/plain")
async def text() -> str:
    """A text that never changes."""
    return "plain and simple"


@server.resource("official://pixel", mime_type="image/png")
async def pixel() -> bytes:
    """A picture that never changes."""
    return base64.b64decode(PIXEL)


@server.resource("official://watched", mime_type="text/plain")
async def watched() -> str:
    """Say how often this was touched."""
    return f"touched {touches['official://watched']} times"


@server.resource("official://people/{name}", mime_type="text/plain")
async def person(name: str) -> str:
    """One person."""
    return f"This is {name}."


async def list_resources(
    _ctx: Any, params: types.PaginatedRequestParams
) -> types.ListResourcesResult:
    """The resources, page by page."""
    known = await server.list_resources()
    start = 0
    if params.cursor is not None:
        if params.cursor not in {str(number) for number in range(len(known))}:
            raise MCPError(code=types.INVALID_PARAMS, message="no such page")
        start = int(params.cursor)
    end = start + PAGE
    following = str(end) if end < len(known) else None
    return types.ListResourcesResult(resources=known[start:end], next_cursor=following)


async def subscribe(_ctx: Any, params: types.SubscribeRequestParams) -> types.EmptyResult:
    """Take note of who wants to know."""
    subscribed.add(str(params.uri))
    return types.EmptyResult()


async def unsubscribe(_ctx: Any, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
    """Take note of who does not any more."""
    subscribed.discard(str(params.uri))
    return types.EmptyResult()


# The low level has what the high level does not.
low = server._lowlevel_server
low.add_request_handler("resources/list", types.PaginatedRequestParams, list_resources)
low.add_request_handler("resources/subscribe", types.SubscribeRequestParams, subscribe)
low.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, unsubscribe)


@server.tool()
async def touch(ctx: Context, uri: str) -> int:
    """Change a resource and tell whoever watches it."""
    touches[uri] += 1
    await ctx.notify_resource_updated(uri)
    if uri in subscribed:
        await ctx.session.send_resource_updated(uri)
    return touches[uri]


@server.tool()
async def grow(ctx: Context) -> str:
    """Offer a tool more from now on."""

    async def grown() -> str:
        return "grown"

    server.add_tool(grown, description="Was not there before.")
    await ctx.notify_tools_changed()
    await ctx.session.send_tool_list_changed()
    return "grown"


# -- prompts -----------------------------------------------------------------------------


@server.prompt(title="Greet")
async def greet(name: str, tone: str = "friendly") -> list[UserMessage]:
    """Greet somebody."""
    return [UserMessage(f"Give {name} a {tone} greeting.")]


@server.completion()
async def complete(
    ref: types.PromptReference | types.ResourceTemplateReference,
    argument: types.CompletionArgument,
    context: types.CompletionContext | None,
) -> types.Completion:
    """Suggest people and tones; nobody is formal with Ada."""
    known = (context.arguments if context else None) or {}
    if argument.name == "tone":
        tones = [tone for tone in TONES if (known.get("name"), tone) != ("ada", "formal")]
        return types.Completion(values=[tone for tone in tones if tone.startswith(argument.value)])
    return types.Completion(values=[name for name in PEOPLE if name.startswith(argument.value)])


# -- serving -----------------------------------------------------------------------------


def on_uvicorn(app: Starlette, path: str) -> None:
    """Serve on a free port, and tell where."""
    import uvicorn

    class Telling(uvicorn.Server):
        """Tells where it listens once it does."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            """Listen, then tell."""
            await super().startup(sockets)
            port = self.servers[0].sockets[0].getsockname()[1]
            sys.stderr.write(f"http://127.0.0.1:{port}{path}\n")
            sys.stderr.flush()

    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", access_log=False)
    Telling(config).run()


def main(transport: str, form: str = "sse") -> None:
    """Serve until terminated, or until standard input ends."""
    if transport == "stdio":
        server.run("stdio")
    elif transport == "sse":
        on_uvicorn(server.sse_app(), "/sse")
    else:
        on_uvicorn(server.streamable_http_app(json_response=form == "json"), "/mcp")


if __name__ == "__main__":
    main(*sys.argv[1:])
