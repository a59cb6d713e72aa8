"""The official Python client, driven through one session; what it saw is printed as JSON.

Runs with the interpreter of the peers' environment, where mcp_trio does not exist. Takes one
JSON argument: `{"mode", "url" or "command", "sections", ...}`; the sections stand at the end,
and `node/client.mjs` reports the same of the TypeScript client. The session stays open until
standard input ends. Nothing is judged here; the tests do that.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

DEADLINE = 40.0
"""Seconds for the whole session."""
SECTION_DEADLINE = 15.0
"""Seconds for one section."""
WATCHED, OTHER = "interop://watched", "interop://other"


def plain(thing: Any) -> Any:
    """A result, or any part of one, as the wire had it."""
    return thing.model_dump(mode="json", by_alias=True, exclude_none=True)


async def refusal(call: Awaitable[Any]) -> dict[str, Any]:
    """The error with which a call is answered; `{}` if it is not."""
    try:
        await call
    except MCPError as refused:
        return {"code": refused.error.code, "message": refused.error.message}
    return {}


class Ears:
    """Every notification outside of calls, in order."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        self._news = anyio.Event()

    async def __call__(self, message: Any) -> None:
        if isinstance(message, Exception):
            raise message
        self.heard.append(plain(message))
        self._news.set()

    def of(self, method: str) -> list[dict[str, Any]]:
        """The parameters of what was heard of one method."""
        name = f"notifications/{method}"
        return [said.get("params", {}) for said in self.heard if said["method"] == name]

    async def wait(self, method: str, times: int) -> None:
        """Wait until something was heard so often."""
        while len(self.of(method)) < times:
            self._news = anyio.Event()
            await self._news.wait()


class User:
    """The user, the model and the roots, as the server finds them when it asks."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    async def elicit(self, _context: Any, params: Any) -> types.ElicitResult:
        """Fill in forms and visit pages, unless the text says otherwise."""
        self.asked.append(plain(params))
        if params.message == "Please decline":
            return types.ElicitResult(action="decline")
        form = {"name": "Ada", "age": 36} if params.mode == "form" else None
        return types.ElicitResult(action="accept", content=form)

    async def sample(self, _context: Any, params: Any) -> types.CreateMessageResult:
        """Be the model."""
        self.asked.append(plain(params))
        said = types.TextContent(type="text", text="Hello.")
        return types.CreateMessageResult(role="assistant", content=said, model="parrot")

    async def roots(self, _context: Any) -> types.ListRootsResult:
        """Have one root."""
        self.asked.append({})
        return types.ListRootsResult(roots=[types.Root(uri="file:///home/ada", name="home")])


class Session:
    """One session of the client, and what belongs to it."""

    def __init__(self, task: dict[str, Any]) -> None:
        where = task.get("url")
        if where is None:
            program, *arguments = task["command"]
            where = StdioServerParameters(command=program, args=arguments, env=dict(os.environ))
        self.task = task
        self.ears = Ears()
        self.user = User()
        self.client = Client(
            where,
            mode=task["mode"],
            message_handler=self.ears,
            elicitation_callback=self.user.elicit,
            sampling_callback=self.user.sample,
            list_roots_callback=self.user.roots,
        )

    @property
    def handshake(self) -> bool:
        """Whether this is the era of the handshake."""
        return self.client.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS

    async def call(self, name: str, arguments: dict[str, Any] | None = None, **more: Any) -> Any:
        """Call a tool."""
        return plain(await self.client.call_tool(name, arguments or {}, **more))

    @contextlib.asynccontextmanager
    async def listening(self, honoured: list[Any], **wanted: Any) -> AsyncIterator[None]:
        """Listen to changes in the stateless era; note what the server agreed to."""
        async with self.client.listen(**wanted) as subscription:
            honoured.append(plain(subscription.honored))
            yield


async def opening(s: Session) -> dict[str, Any]:
    """Who the server is, in the way of the era."""
    shown = s.client.session.initialize_result if s.handshake else None
    if shown is None:
        # With the era given beforehand the client has not asked yet; it asks once only.
        raw = await s.client.session.send_discover(s.client.protocol_version)
        shown = types.DiscoverResult.model_validate(raw)
    result = plain(shown)
    named = result.get("_meta", {}).get("io.modelcontextprotocol/serverInfo")
    return {
        "protocol": s.client.protocol_version,
        "server": result.get("serverInfo", named),
        "capabilities": result["capabilities"],
        "instructions": result["instructions"],
        "supported": result.get("supportedVersions"),
        "ping": plain(await s.client.send_ping()) if s.handshake else None,
    }


async def mirroring(s: Session) -> dict[str, Any]:
    """Call a tool whose argument goes into a header, before and after it was listed."""
    early = await s.call("locate", {"region": "north"})
    await listing(s)
    # Not one of these can stand in a header as it is.
    regions = ("süd", " east ", "=?base64?d2VzdA==?=")
    return {
        "early": early,
        "regions": [await s.call("locate", {"region": region}) for region in regions],
    }


async def listing(s: Session) -> dict[str, Any]:
    """Every list, page by page; cursors of nobody are refused."""
    lists: dict[str, Callable[..., Awaitable[Any]]] = {
        "tools": s.client.list_tools,
        "prompts": s.client.list_prompts,
        "resources": s.client.list_resources,
        "resourceTemplates": s.client.list_resource_templates,
    }
    seen: dict[str, Any] = {}
    for kind, fetch in lists.items():
        pages, cursor = [], None
        while cursor is not None or not pages:
            page = await fetch(cursor=cursor, cache_mode="bypass")
            pages.append(plain(page)[kind])
            cursor = page.next_cursor
        seen[kind] = {"pages": pages, "stray": await refusal(fetch(cursor="nobody's"))}
    return seen


async def calling(s: Session) -> dict[str, Any]:
    """Call tools: every kind of content, errors of every kind, progress, and cancel one."""
    progress: list[tuple[float, float | None, str | None]] = []

    async def note(value: float, total: float | None, message: str | None) -> None:
        progress.append((value, total, message))
        if value == total:
            await s.call("tell", {"moment": "counted"})

    seen = {
        "add": await s.call("add", {"a": 2, "b": 40}),
        "show": await s.call("show"),
        "bad_arguments": await s.call("add", {"a": "two", "b": 40}),
        "refuse": await s.call("refuse"),
        "unknown": await refusal(s.client.call_tool("nothing")),
        "count": await s.call("count", {"to": 3, "until": "counted"}, progress_callback=note),
    }
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(s.call, "hold", {"name": "held"})
        seen["began"] = await s.call("wait_for", {"moment": "held began"})
        tasks.cancel_scope.cancel()
    # The session goes on, so nothing but the cancellation can have ended the call.
    seen["ended"] = await s.call("wait_for", {"moment": "held ended"})
    return {**seen, "progress": progress}


async def reading(s: Session) -> dict[str, Any]:
    """Read resources of every kind, and some that are not there."""
    there = ("text", "pixel", "people", "people/ada", "squares/12", "files/a/b", "search?words=x")
    missing = ("nothing", "people/bob", "squares/many")
    return {
        "there": {
            name: plain(await s.client.read_resource(f"interop://{name}"))["contents"]
            for name in there
        },
        "missing": {
            name: await refusal(s.client.read_resource(f"interop://{name}")) for name in missing
        },
    }


async def watching(s: Session) -> dict[str, Any]:
    """Watch two resources, then one of them only; every change is heard once."""
    honoured: list[Any] = []
    method = "resources/updated"

    async def reads() -> str:
        return plain(await s.client.read_resource(WATCHED))["contents"][0]["text"]

    async def both() -> None:
        before = await reads()
        await s.call("touch", {"uri": WATCHED})
        await s.ears.wait(method, 1)
        # What the client may have kept is no longer true.
        seen.update(before=before, after=await reads())
        await s.call("touch", {"uri": OTHER})
        await s.ears.wait(method, 2)

    async def one() -> None:
        for uri in (WATCHED, OTHER):
            await s.call("touch", {"uri": uri})
        await s.ears.wait(method, 3)

    seen: dict[str, Any] = {}
    if s.handshake:
        for uri in (WATCHED, OTHER):
            await s.client.subscribe_resource(uri)
        seen["nothing"] = await refusal(s.client.subscribe_resource("interop://nothing"))
        await both()
        await s.client.unsubscribe_resource(WATCHED)
        await one()
    else:
        async with s.listening(honoured, resource_subscriptions=[WATCHED, OTHER]):
            await both()
        async with s.listening(honoured, resource_subscriptions=[OTHER]):
            await one()
    heard = [params["uri"] for params in s.ears.of(method)]
    return {**seen, "heard": heard, "honoured": honoured}


async def prompting(s: Session) -> dict[str, Any]:
    """Get prompts, and be refused some."""
    get = s.client.get_prompt
    return {
        "greet": plain(await get("greet", {"name": "Ada", "tone": "formal"})),
        "defaults": plain(await get("greet", {"name": "Ada"})),
        "dialogue": plain(await get("dialogue")),
        "cite": plain(await get("cite")),
        "unknown": await refusal(get("nothing")),
        "incomplete": await refusal(get("greet")),
        "unfit": await refusal(get("greet", {"name": "Ada", "tone": "rude"})),
    }


async def completing(s: Session) -> dict[str, Any]:
    """Complete arguments of a prompt and of a template."""
    greet = types.PromptReference(type="ref/prompt", name="greet")
    template = types.ResourceTemplateReference(
        type="ref/resource", uri="interop://people/{name}/{tone}"
    )
    nothing = types.PromptReference(type="ref/prompt", name="nothing")

    async def complete(
        ref: Any, name: str, value: str, known: dict[str, str] | None = None
    ) -> dict[str, Any]:
        argument = {"name": name, "value": value}
        return plain(await s.client.complete(ref, argument, known))["completion"]

    return {
        "prompt": await complete(greet, "name", "a"),
        "template": await complete(template, "tone", "f"),
        "knowing": await complete(template, "tone", "f", {"name": "ada"}),
        "nobody": await complete(greet, "tone", "f"),
        "unknown": await refusal(s.client.complete(nothing, {"name": "name", "value": ""})),
    }


async def logging(s: Session) -> dict[str, Any]:
    """Hear the server's log from a level on, asked for in the way of the era."""

    async def speak(level: str) -> None:
        meta = None
        if s.handshake:
            await s.client.set_logging_level(level)
        else:
            meta = {"io.modelcontextprotocol/logLevel": level}
        await s.call("speak", meta=meta)

    await s.call("speak")  # nobody has asked for anything yet
    unasked = 2 if s.handshake else 0
    await speak("debug")
    await s.ears.wait("message", unasked + 3)
    await speak("error")
    await s.ears.wait("message", unasked + 4)
    heard = s.ears.of("message")
    return {"unasked": heard[:unasked], "asked": heard[unasked:]}


async def asking(s: Session) -> dict[str, Any]:
    """Be asked by tools and by a prompt."""
    seen = {
        "form": await s.call("ask_form", {"message": "Who are you?"}),
        "declined": await s.call("ask_form", {"message": "Please decline"}),
        "page": await s.call("ask_page"),
        "model": await s.call("ask_model", {"question": "Say hello"}),
        "roots": await s.call("ask_roots"),
    }
    asked = list(s.user.asked)
    seen["all"] = await s.call("ask_all")
    seen["prompt"] = plain(await s.client.get_prompt("interview"))
    if s.handshake:
        await s.ears.wait("elicitation/complete", 1)
    return {**seen, "asked": asked, "completed": s.ears.of("elicitation/complete")}


async def changing(s: Session) -> dict[str, Any]:
    """Hear that lists have changed, and see it in them."""
    honoured: list[Any] = []
    lists: dict[str, Callable[..., Awaitable[Any]]] = {
        "tools": s.client.list_tools,
        "prompts": s.client.list_prompts,
        "resources": s.client.list_resources,
    }
    last: dict[str, str] = {}
    async with contextlib.AsyncExitStack() as stack:
        if not s.handshake:
            wanted = {f"{kind}_list_changed": True for kind in lists}
            await stack.enter_async_context(s.listening(honoured, **wanted))
        for kind, fetch in lists.items():
            await fetch()  # so that there is something to forget
            await s.call("grow", {"kind": kind})
            await s.ears.wait(f"{kind}/list_changed", 1)
            page = await fetch()
            while page.next_cursor is not None:
                page = await fetch(cursor=page.next_cursor)
            last[kind] = plain(page)[kind][-1]["name"]
    methods = [said["method"] for said in s.ears.heard]
    heard = [method for method in methods if method.endswith("/list_changed")]
    return {"heard": heard, "last": last, "honoured": honoured}


async def demo(s: Session) -> dict[str, Any]:
    """List the tools, make the given calls in turn, then one that is given up after a second."""
    tools = [tool.name for tool in (await s.client.list_tools()).tools]
    seen = {name: await s.call(name, arguments) for name, arguments in s.task["calls"]}
    with anyio.move_on_after(1) as deadline:
        await s.call(*s.task["slow"])
    return {"tools": tools, "calls": seen, "given_up": deadline.cancelled_caught}


SECTIONS = {
    section.__name__: section
    for section in (
        opening,
        mirroring,
        listing,
        calling,
        reading,
        watching,
        prompting,
        completing,
        logging,
        asking,
        changing,
        demo,
    )
}


async def main(task: dict[str, Any]) -> None:
    """Run one session and print what was seen; a section that fails does not stop the others."""
    # Ping, levels and subscriptions of resources are deprecated, and what this is about.
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    session = Session(task)
    report: dict[str, Any] = {}
    with anyio.fail_after(DEADLINE):
        async with session.client:
            for name in task["sections"]:
                try:
                    with anyio.fail_after(SECTION_DEADLINE):
                        report[name] = await SECTIONS[name](session)
                except Exception:  # noqa: BLE001 - the test that looks at the section tells
                    report[name] = {"fault": traceback.format_exc()}
            sys.stdout.write(json.dumps(report) + "\n")
            sys.stdout.flush()
            await anyio.to_thread.run_sync(sys.stdin.read)


if __name__ == "__main__":
    anyio.run(main, json.loads(sys.argv[1]))
