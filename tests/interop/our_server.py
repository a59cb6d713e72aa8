"""A server of ours for other people's clients: something to try every method of the protocol on.

What happens inside is visible through tools, not through files: `wait_for` answers once a named
moment has come, and a watched resource counts how often it was touched. Run with `stdio` or
`http`; over HTTP the URL is printed on standard error. Listings come in pages of four, so that
each takes more than one.
"""

from __future__ import annotations

import base64
import functools
import sys
from collections import defaultdict
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
import trio

import mcp_trio
from mcp_trio import Context, ToolError
from mcp_trio.wire import (
    AudioContent,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    JSONObject,
    ResourceContents,
    ResourceLink,
    TextContent,
)
from mcp_trio.wire.prompts import PromptMessage

PATIENCE = 10.0
"""Seconds `wait_for` waits for a moment."""
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)
"""A PNG picture of one pixel."""
SILENCE = base64.b64decode("UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=")
"""A WAV file of almost no sound."""
PEOPLE = ("ada", "alan", "grace")
TONES = ("friendly", "formal", "frank")
PERSON: JSONObject = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Name", "minLength": 1},
        "age": {"type": "integer", "minimum": 0},
        "tone": {"type": "string", "enum": list(TONES)},
    },
    "required": ["name"],
}
"""A form for the user."""
Region = Annotated[str, msgspec.Meta(extra_json_schema={"x-mcp-header": "Region"})]
"""A text that goes into the header `Mcp-Param-Region`, too."""

server = mcp_trio.MCPServer(
    "interop",
    version="1.0.0",
    title="Interop",
    instructions="Try everything.",
    options=mcp_trio.ServerOptions(page_size=4),
)


# -- calling -----------------------------------------------------------------------------


@functools.cache
def moments() -> defaultdict[str, trio.Event]:
    """The moments of this process by name; made on first use, inside the Trio run."""
    return defaultdict(trio.Event)


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
async def show() -> list[ContentBlock]:
    """Return a block of every kind."""
    note = ResourceContents(uri="interop://inside", mime_type="text/plain", text="inside")
    return [
        TextContent(text="all kinds"),
        ImageContent(data=base64.b64encode(PIXEL).decode(), mime_type="image/png"),
        AudioContent(data=base64.b64encode(SILENCE).decode(), mime_type="audio/wav"),
        EmbeddedResource(resource=note),
        ResourceLink(uri="interop://text", name="text", mime_type="text/plain"),
    ]


@server.tool
async def count(ctx: Context, to: int, until: str) -> str:
    """Count, reporting each step; answer once a moment has come."""
    for step in range(1, to + 1):
        await ctx.progress(step, to, f"step {step}")
    await wait_for(until)
    return f"counted to {to}"


@server.tool
async def refuse() -> str:
    """Fail with a text for the model."""
    raise ToolError("this tool never works")


@server.tool
async def hold(name: str) -> str:
    """Run until cancelled. The moments are `NAME began` and `NAME ended`."""
    moments()[f"{name} began"].set()
    try:
        await trio.sleep_forever()
    finally:
        moments()[f"{name} ended"].set()
    raise AssertionError


@server.tool
async def wait_for(moment: str) -> bool:
    """Tell whether a moment came in time."""
    with trio.move_on_after(PATIENCE):
        await moments()[moment].wait()
        return True
    return False


@server.tool
async def tell(moment: str) -> None:
    """Say that a moment has come."""
    moments()[moment].set()


@server.tool
async def locate(region: Region) -> str:
    """Echo an argument that clients of the stateless era send in a header, too."""
    return f"region: {region}"


@server.tool
async def speak(ctx: Context) -> None:
    """Write a line of three levels to the client's log."""
    await ctx.log("debug", "whispered")
    await ctx.log("warning", "said", logger="interop.speak")
    await ctx.log("error", {"how": "shouted"})


# -- asking ------------------------------------------------------------------------------


@server.tool
async def ask_form(ctx: Context, message: str) -> JSONObject:
    """Let the user fill in a form."""
    answer = await ctx.elicit(message, PERSON)
    return {"action": answer.action, "content": answer.content}


@server.tool
async def ask_page(ctx: Context) -> JSONObject:
    """Send the user to a page, and say at once that the visit was a success."""
    answer = await ctx.elicit_url(
        "Please sign in", "https://example.com/sign-in", elicitation_id="visit-1"
    )
    if answer.elicitation_id is not None:
        await ctx.elicitation_completed(answer.elicitation_id)
    return {"action": answer.action}


@server.tool
async def ask_model(ctx: Context, question: str) -> str:
    """Let the client's model answer."""
    answer = await ctx.sample(question, max_tokens=20, system_prompt="Be brief.", temperature=0.5)
    return f"{answer.model} ({answer.role}): {answer.text}"


@server.tool
async def ask_roots(ctx: Context) -> list[str]:
    """Name the client's roots."""
    return [f"{root.name}: {root.uri}" for root in await ctx.list_roots()]


@server.tool
async def ask_all(ctx: Context) -> JSONObject:
    """Ask the user, the model and for the roots at the same time, and the user once more."""
    found: JSONObject = {}

    async def user() -> None:
        found["user"] = (await ctx.elicit("Who are you?", PERSON)).content

    async def model() -> None:
        found["model"] = (await ctx.sample("Say hello", max_tokens=20)).text

    async def roots() -> None:
        found["roots"] = len(await ctx.list_roots())

    async with trio.open_nursery() as nursery:
        for ask in (user, model, roots):
            nursery.start_soon(ask)
    found["again"] = (await ctx.elicit("Please decline", PERSON)).action
    return found


# -- reading -----------------------------------------------------------------------------

touches: dict[str, int] = {"interop://watched": 0, "interop://other": 0}
"""How often the resources that can be watched were touched."""


@server.resource("interop://text", title="A text", mime_type="text/plain")
async def text() -> str:
    """A text that never changes."""
    return "plain and simple"


@server.resource("interop://pixel", mime_type="image/png", size=len(PIXEL))
async def pixel() -> bytes:
    """A picture that never changes."""
    return PIXEL


@server.resource("interop://people", mime_type="application/json")
async def people() -> list[str]:
    """Everybody's name."""
    return list(PEOPLE)


@server.resource("interop://watched", name="watched")
async def watched() -> str:
    """Say how often this was touched."""
    return f"touched {touches['interop://watched']} times"


@server.resource("interop://other", name="other")
async def other() -> str:
    """Say how often this was touched."""
    return f"touched {touches['interop://other']} times"


@server.tool
async def touch(uri: str) -> int:
    """Change a resource and tell whoever watches it."""
    touches[uri] += 1
    server.notify_resource_updated(uri)
    return touches[uri]


@server.resource("interop://people/{name}", mime_type="text/plain")
async def person(name: str) -> str:
    """One person."""
    if name not in PEOPLE:
        raise mcp_trio.NotFoundError(f"nobody is called {name!r}")
    return f"This is {name}."


@server.resource("interop://squares/{number}")
async def square(number: int) -> str:
    """The square of a number."""
    return str(number * number)


@server.resource("interop://people/{name}/{tone}")
async def greeting(name: str, tone: str) -> str:
    """How to greet a person."""
    return f"A {tone} hello to {name}."


@server.resource("interop://files/{+path}")
async def file(path: str) -> str:
    """What a path looks like."""
    return path


@server.resource("interop://search{?words}")
async def search(words: str = "") -> str:
    """What was searched for."""
    return words


# -- prompts -----------------------------------------------------------------------------


@server.prompt(title="Greet")
async def greet(name: str, tone: Literal["friendly", "formal", "frank"] = "friendly") -> str:
    """Greet somebody.

    Args:
        name: of whom to greet.
        tone: of the greeting.
    """
    return f"Give {name} a {tone} greeting."


@server.prompt
async def dialogue() -> list[PromptMessage]:
    """Several messages of both sides."""
    picture = ImageContent(data=base64.b64encode(PIXEL).decode(), mime_type="image/png")
    return [
        PromptMessage(role="user", content=TextContent(text="What is this?")),
        PromptMessage(role="user", content=picture),
        PromptMessage(role="assistant", content=TextContent(text="A pixel.")),
    ]


@server.prompt
async def interview(ctx: Context) -> str:
    """Ask the user before there is anything to say."""
    answer = await ctx.elicit("Who are you?", PERSON)
    return f"I am {(answer.content or {}).get('name')}."


@server.prompt
async def cite() -> EmbeddedResource:
    """Carry a resource."""
    return EmbeddedResource(resource=ResourceContents(uri="interop://text", text="cited"))


@server.prompt
async def empty() -> list[str]:
    """Say nothing."""
    return []


@server.completion("name", prompt="greet")
@server.completion("name", resource="interop://people/{name}/{tone}")
def complete_name(typed: str, _known: Mapping[str, str]) -> list[str]:
    """Suggest people."""
    return [name for name in PEOPLE if name.startswith(typed)]


@server.completion("tone", resource="interop://people/{name}/{tone}")
async def complete_tone(typed: str, known: Mapping[str, str]) -> list[str]:
    """Suggest tones; nobody is formal with Ada."""
    fit = [tone for tone in TONES if tone.startswith(typed)]
    return [tone for tone in fit if (known.get("name"), tone) != ("ada", "formal")]


# -- changing ----------------------------------------------------------------------------


@server.tool
async def grow(kind: Literal["tools", "prompts", "resources"]) -> str:
    """Offer one more of a kind from now on, called `grown`."""

    async def grown() -> str:
        """Exist."""
        return "here"

    match kind:
        case "tools":
            server.add_tool(grown)
        case "prompts":
            server.add_prompt(grown)
        case "resources":
            server.add_resource("interop://grown", grown)
    return f"more {kind}"


if __name__ == "__main__":
    if sys.argv[1] == "http":
        server.run("http", port=0)
    else:
        server.run("stdio")
