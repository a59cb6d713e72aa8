"""The servers of the scenarios: one that has a bit of everything, and how to use it all."""

from __future__ import annotations

from typing import Any

from mcp_trio import Context, MCPServer
from mcp_trio.wire import Revision
from tests.http.tools import Record, make_server

FORM = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
MODEL = {"sampling": {}}


def full_server(**options: Any) -> tuple[MCPServer, Record]:
    """Tools, prompts, resources, a template and completions; tools that log and that ask."""
    server, record = make_server(**options)

    @server.tool
    async def chat(ctx: Context) -> str:
        """Log a line of each kind."""
        await ctx.log("debug", "detail")
        await ctx.log("warning", {"bad": True}, logger="part")
        await ctx.log("emergency", "over")
        return "said"

    @server.tool
    async def think(ctx: Context) -> str:
        """Ask the model."""
        return (await ctx.sample("?", max_tokens=1, key="think")).text

    @server.prompt
    async def greet(name: str, tone: str = "warm") -> str:
        """Greet."""
        return f"Greet {name}, {tone}"

    @server.resource("test://note")
    async def note() -> str:
        """A note."""
        return "noted"

    @server.resource("test://user/{name}")
    async def user(name: str) -> str:
        """A user."""
        return name

    @server.completion("name", prompt="greet")
    def names(typed: str, known: Any) -> list[str]:
        return [name for name in ("Ann", "Anna", "Bob") if name.startswith(typed)]

    return server, record


def uses(revision: Revision) -> dict[str, dict[str, Any]]:
    """A request for each method that a full server answers with a result, by method."""
    common: dict[str, dict[str, Any]] = {
        "tools/list": {},
        "tools/call": {"name": "add", "arguments": {"a": 1, "b": 2}},
        "prompts/list": {},
        "prompts/get": {"name": "greet", "arguments": {"name": "Ann"}},
        "resources/list": {},
        "resources/templates/list": {},
        "resources/read": {"uri": "test://note"},
        "completion/complete": {
            "ref": {"type": "ref/prompt", "name": "greet"},
            "argument": {"name": "name", "value": "An"},
        },
    }
    if revision.stateless:
        own: dict[str, dict[str, Any]] = {
            "server/discover": {},
            "subscriptions/listen": {"notifications": {}},
        }
    else:
        own = {
            "ping": {},
            "logging/setLevel": {"level": "error"},
            "resources/subscribe": {"uri": "test://note"},
            "resources/unsubscribe": {"uri": "test://note"},
        }
    return {**common, **own}


async def listen(peer: Any, **wanted: Any) -> Any:
    """Have a client hear of changes; gives the id of its subscription, where there are any."""
    if not peer.revision.stateless:
        return None
    id_ = await peer.start("subscriptions/listen", {"notifications": wanted})
    await peer.note("notifications/subscriptions/acknowledged")
    return id_
