"""The client that the official conformance suite runs: `python client.py URL`.

The suite says in the environment what is played: `MCP_CONFORMANCE_SCENARIO` names it,
`MCP_CONFORMANCE_CONTEXT` has its particulars as JSON. Its mock server listens at the URL and
watches; what a scenario is about happens in `mcp_trio`, here only the calls are made. The last
line on standard output says that the client has ended well, which the suite does not look at.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import skills
import trio

import mcp_trio

AUTH = "auth/"
"""Scenarios of this name are played by `client_auth`, which is imported for them alone."""
TIMEOUT = 110.0
"""Seconds for a scenario; `run.py` gives it 120, since some forty clients start at once."""

Play = Callable[[mcp_trio.MCPClient, dict[str, Any]], Awaitable[None]]


def filled_in(form: mcp_trio.wire.elicitation.ElicitParams) -> dict[str, Any]:
    """A user who leaves what is filled in already, and says yes to what he has to say."""
    schema = form.requested_schema or {}
    made = mcp_trio.client.answers.prefilled(form)
    return {**dict.fromkeys(schema.get("required", ()), True), **made}


def sampled(_: mcp_trio.wire.sampling.CreateMessageParams) -> Any:
    """A model that always says the same."""
    text = mcp_trio.wire.TextContent(text="Paris")
    return mcp_trio.wire.sampling.CreateMessageResult(role="assistant", content=text, model="m")


CALLBACKS = mcp_trio.ClientCallbacks(elicitation=filled_in, sampling=sampled, roots=list)


async def listing(client: mcp_trio.MCPClient) -> list[mcp_trio.wire.Tool]:
    """Every tool there is."""
    return [tool async for tool in client.tools()]


async def lists(client: mcp_trio.MCPClient, _: dict[str, Any]) -> None:
    """Look at the tools, and call none."""
    await listing(client)


async def adds(client: mcp_trio.MCPClient, _: dict[str, Any]) -> None:
    """Call one tool with numbers."""
    await listing(client)
    await client.call_tool("add_numbers", {"a": 2, "b": 3})


async def calls_all(client: mcp_trio.MCPClient, _: dict[str, Any]) -> None:
    """Call every tool that is listed; those with rules of their own get what they want."""
    for tool in await listing(client):
        wanted = tool.input_schema.get("required", ())
        await client.call_tool(tool.name, dict.fromkeys(wanted, "us-west1"))


async def replays(client: mcp_trio.MCPClient, context: dict[str, Any]) -> None:
    """Make the calls that the context names, as it has them."""
    await listing(client)
    for call in context["toolCalls"]:
        await client.call_tool(call["name"], call["arguments"])


async def uses_every_method(client: mcp_trio.MCPClient, _: dict[str, Any]) -> None:
    """Send one message of each method there is, also of those that only an older server knows."""
    for tool in await listing(client):
        await client.call_tool(tool.name)
    for resource in (await client.call("resources/list"))["resources"]:
        await client.call("resources/read", {"uri": resource["uri"]})
    for prompt in (await client.call("prompts/list"))["prompts"]:
        await client.call("prompts/get", {"name": prompt["name"]})
    version, info = client.revision.date, {"name": "mcp_trio", "version": "0"}
    opening = {"protocolVersion": version, "capabilities": {}, "clientInfo": info}
    await client.call("initialize", opening)
    await client.session.notify("notifications/initialized")


async def echoes_a_schema(client: mcp_trio.MCPClient, _: dict[str, Any]) -> None:
    """Send a tool's schema back as it came."""
    tools = {tool.name: tool for tool in await listing(client)}
    schema = tools["json_schema_2020_12_tool"].input_schema
    await client.call_tool("json_schema_echo", {"schema": schema})


async def lists_skills(client: mcp_trio.MCPClient, _: dict[str, Any]) -> None:
    """Look at what skills there are, and read none."""
    await skills.listed(client)


async def loads_skills(client: mcp_trio.MCPClient, _: dict[str, Any]) -> None:
    """Load every skill; the mock's are all forged, and so none of them may be loaded."""
    for entry in await skills.listed(client):
        try:
            await skills.load(client, entry)
        except skills.ForgedSkillError as error:
            sys.stderr.write(f"{error}\n")
        else:
            raise AssertionError(f"{entry['uri']} was loaded")


PLAYS: dict[str, Play] = {
    "initialize": lists,
    "tools_call": adds,
    "elicitation-sep1034-client-defaults": calls_all,
    "sse-retry": calls_all,
    "json-schema-2020-12-preservation": echoes_a_schema,
    "request-metadata": lists,
    "sep-2322-client-request-state": calls_all,
    "http-standard-headers": uses_every_method,
    "http-custom-headers": replays,
    "http-invalid-tool-headers": calls_all,
    "json-schema-ref-no-deref": lists,
    "sep-2640-client-no-prefetch": lists_skills,
    "sep-2640-client-verify-digest": loads_skills,
    "sep-2640-client-verify-size": loads_skills,
    "sep-2640-client-verify-frontmatter": loads_skills,
}
"""What the client does in each scenario."""


async def play(scenario: str, url: str, context: dict[str, Any], version: str) -> None:
    """Play one scenario.

    Raises:
        KeyError: a scenario that nobody has written.
    """
    if scenario.startswith(AUTH):
        await importlib.import_module("client_auth").run(scenario, url, context)
        return
    part = PLAYS[scenario]
    options = mcp_trio.ClientOptions(revisions=(version,), probe_timeout=TIMEOUT)
    async with mcp_trio.MCPClient(url, callbacks=CALLBACKS, options=options) as client:
        await part(client, context)


async def main() -> None:
    """Play what the environment says, within the time that the suite has for it."""
    with trio.fail_after(TIMEOUT):
        await play(
            os.environ["MCP_CONFORMANCE_SCENARIO"],
            sys.argv[-1],
            json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}"),
            os.environ["MCP_CONFORMANCE_PROTOCOL_VERSION"],
        )
    sys.stdout.write("played to the end\n")


if __name__ == "__main__":
    trio.run(main)
