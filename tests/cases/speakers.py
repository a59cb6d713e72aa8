"""A client that says anything and hears what comes back, the same over every channel."""

from __future__ import annotations

import abc
import contextlib
import json
from typing import Any

import pytest
import trio
import trio.testing

from mcp_trio import ClientOptions, HTTPOptions, MCPClient, MCPServer
from mcp_trio.wire import REVISIONS, Revision
from tests.http import asgi
from tests.http.asgi import META
from tests.http.test_legacy_sse import open_old
from tests.http.test_websocket import serving as serving_websocket
from tests.messages import initialize
from tests.server.test_lines_servers import serving as serving_lines

REVISION = "2025-06-18"
SESSIONS = ("lines", "websocket", "sse", "http")
"""The handshake era, by what carries it."""
CHANNELS = (*SESSIONS, "stateless")
"""And the stateless era over HTTP, where every POST stands alone."""
CANCELLED = "notifications/cancelled"


each_session = pytest.mark.parametrize("channel", SESSIONS)
each_channel = pytest.mark.parametrize("channel", CHANNELS)
each_revision = pytest.mark.parametrize("revision", REVISIONS, ids=str)


def connected(server: MCPServer, revision: Revision = REVISIONS[0]) -> MCPClient:
    """A client in memory that speaks one revision."""
    return MCPClient(server, options=ClientOptions(revisions=(revision,)))


class Speaker(abc.ABC):
    """A client in an open session, or none at all in the stateless era.

    `say` takes a message or bytes; `hear` gives the next answer, in whatever order they come.
    """

    def __init__(self, channel: str, app: Any = None) -> None:
        self.channel = channel
        self.app = app
        """The endpoint, where there is one."""

    @property
    def stateless(self) -> bool:
        return self.channel == "stateless"

    @abc.abstractmethod
    async def say(self, message: Any) -> None: ...

    @abc.abstractmethod
    async def hear(self) -> Any: ...

    async def ask(self, message: Any) -> Any:
        await self.say(message)
        return await self.hear()

    def call(self, id_: Any, name: str, **arguments: Any) -> dict[str, Any]:
        params: dict[str, Any] = {"name": name, "arguments": arguments}
        if self.stateless:
            params["_meta"] = META
        return {"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": params}

    async def cancel(self, id_: Any) -> None:
        await self.say({"jsonrpc": "2.0", "method": CANCELLED, "params": {"requestId": id_}})

    async def works(self) -> None:
        """Insist that the session, or the server, still answers."""
        answer = await self.ask(self.call("works?", "add", a=1, b=2))
        assert answer["id"] == "works?"
        assert answer["result"]["content"] == [{"type": "text", "text": "3"}]


class LineSpeaker(Speaker):
    def __init__(self, peer: Any) -> None:
        super().__init__("lines")
        self.peer = peer

    async def say(self, message: Any) -> None:
        await self.peer.say(message)

    async def hear(self) -> Any:
        return await self.peer.hear()


class SocketSpeaker(Speaker):
    def __init__(self, peer: Any, app: Any) -> None:
        super().__init__("websocket", app)
        self.peer = peer

    async def say(self, message: Any) -> None:
        await self.peer.tell(message.decode() if isinstance(message, bytes) else message)

    async def hear(self) -> Any:
        return await self.peer.answer()


class OldSpeaker(Speaker):
    def __init__(self, old: Any, app: Any) -> None:
        super().__init__("sse", app)
        self.old = old
        self.heard = 1  # the answer to initialize
        self.refusals: list[Any] = []

    async def say(self, message: Any) -> None:
        response = await self.old.post(message)
        if response.status != 202:
            self.refusals.append(response.json())

    async def hear(self) -> Any:
        if self.refusals:
            return self.refusals.pop(0)
        self.heard += 1
        return await self.old.hear(self.heard - 1)


class PostSpeaker(Speaker):
    """Every message is a POST of its own; its answer is what the POST is answered with."""

    def __init__(self, client: asgi.Client, session: asgi.Session | None) -> None:
        super().__init__("stateless" if session is None else "http", client.app)
        self.client = client
        self.session = session
        self._answers, self._arrived = trio.open_memory_channel[Any](10_000)

    def _headers(self, message: Any) -> dict[str, str | None]:
        if not self.stateless or not isinstance(message, dict):
            return {}
        fields = {"mcp-protocol-version": asgi.STATELESS, "mcp-method": message.get("method")}
        name = message.get("params", {}).get("name")
        return {**fields, "mcp-name": name} if name else fields

    async def say(self, message: Any) -> None:
        poster = self.session or self.client
        response = poster.start_post(message, self._headers(message))
        self.client.nursery.start_soon(self._wait, response)
        await trio.testing.wait_all_tasks_blocked()

    async def _wait(self, response: asgi.Response) -> None:
        await response.ended.wait()
        if response.status != 202 and response.body:
            await self._answers.send(response.message())

    async def hear(self) -> Any:
        return await self._arrived.receive()


@contextlib.asynccontextmanager
async def speaking(
    server: Any, channel: str, revision: str = REVISION, options: HTTPOptions | None = None
):
    """Serve, connect, shake hands where that is done, and give the speaker.

    The options are those of the endpoint, where there is one.
    """
    async with contextlib.AsyncExitStack() as stack:
        match channel:
            case "lines":
                connect = await stack.enter_async_context(serving_lines(server))
                peer = await connect(initialized=False)
                assert (await peer.ask(initialize(revision)))["result"]
                speaker: Speaker = LineSpeaker(peer)
            case "websocket":
                world = await stack.enter_async_context(serving_websocket(server, options))
                peer = await world.peer()
                await peer.open()
                assert (await peer.ask(initialize(revision)))["result"]
                speaker = SocketSpeaker(peer, world.app)
            case _:
                client = await stack.enter_async_context(asgi.serving(server, options))
                if channel == "sse":
                    speaker = OldSpeaker(await open_old(client), client.app)
                else:
                    session = await client.open_session(revision) if channel == "http" else None
                    speaker = PostSpeaker(client, session)
        with trio.fail_after(5000):
            yield speaker


def text_of(answer: Any) -> str:
    """The text a tool has answered with."""
    (block,) = answer["result"]["content"]
    return block["text"]


def encoded(message: Any) -> bytes:
    return json.dumps(message, ensure_ascii=False).encode()
