"""A client that does nearly everything wrong, and what the server answers it.

`quarrel` says all of it in one revision and gives the `Conversation`, in which every answer
was checked against the official schema. The client's own messages are not, being wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import trio
import trio.testing

from mcp_trio.transports.lines import LineTransport
from mcp_trio.wire import Revision
from tests.eras.facts import meta
from tests.http.asgi import serving
from tests.messages import PING, initialize
from tests.scenarios.everything import make_server
from tests.scenarios.recording import TappedStream, hear_event
from tests.wire.official import Conversation

TRANSPORTS = ("lines", "http")
MAX_LINE = 100_000

# What is refused without an id: it has none to read. Such an error is no message of the older
# schemas, which demand an id; JSON-RPC and the transports demand the error all the same.
UNREADABLE: list[bytes] = [
    b"{",
    b"[]",
    b'"text"',
    b"\xff",
    b'{"jsonrpc":"2.0","id":null,"method":"ping"}',
    b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}',
    # An answer is never answered on a line; a POST with one that nobody waits for may be.
    b'{"jsonrpc":"2.0","id":99,"result":5}',
    b'{"jsonrpc":"2.0","id":99,"result":{}}',
    b'{"jsonrpc":"2.0","id":99,"error":{"code":1,"message":"no"}}',
    b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b'{"a":' * 100 + b"1" + b"}" * 101,
]


def ask(id_: int | str, method: object, params: object = ...) -> dict[str, Any]:
    """A request, wrong or not."""
    made: dict[str, Any] = {"jsonrpc": "2.0", "id": id_, "method": method}
    return made if params is ... else {**made, "params": params}


WRONG: list[dict[str, Any]] = [
    {"jsonrpc": "1.0", "id": 1, "method": "ping"},
    {"id": 2, "method": "ping"},
    {"jsonrpc": "2.0", "id": 3},
    ask(4, 5),
    ask("five", "ping", [1]),
    ask(6, "ping", None),
    {**ask(7, "ping"), "result": {}},
    ask(8, "no/such/method"),
    {"jsonrpc": "2.0", "method": "notifications/no/such"},
    {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}},
]

SESSION: list[Any] = [
    ask(20, "tools/call"),
    ask(21, "tools/call", {"name": 1}),
    ask(22, "tools/call", {"name": "no such tool"}),
    ask(23, "tools/call", {"name": "counts", "arguments": [1]}),
    ask(24, "tools/list", {"cursor": 5}),
    ask(25, "logging/setLevel", {"level": "loud"}),
    ask(26, "resources/read", {"uri": "test://none"}),
    ask(27, "resources/subscribe", {"uri": "test://none"}),
    ask(28, "completion/complete", {"ref": {"type": "x"}, "argument": {}}),
    ask(29, "sampling/createMessage", {}),
    ask(30, "server/discover"),
    initialize(id_=31),
]
BATCH: list[Any] = [
    {**PING, "id": 40},
    {"jsonrpc": "2.0", "method": "notifications/no/such"},
    ask(41, "tools/call", {"name": "tells"}),
    ask(42, "no/such/method"),
    initialize(id_=43),
    ask(44, 5),
]
STATELESS: list[dict[str, Any]] = [
    ask(
        50, "server/discover", {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}
    ),
    ask(
        51,
        "server/discover",
        {"_meta": {**meta(), "io.modelcontextprotocol/protocolVersion": "2099-01-01"}},
    ),
    ask(52, "initialize", {"_meta": meta()}),
    ask(53, "no/such/method", {"_meta": meta()}),
    ask(54, "tools/call", {"_meta": meta()}),
    ask(55, "tools/call", {"_meta": meta(), "name": "no such tool"}),
    ask(56, "tools/list", {"_meta": meta(), "cursor": "wrong"}),
    ask(57, "resources/read", {"_meta": meta(), "uri": "test://none"}),
    ask(58, "tools/call", {"_meta": meta(), "name": "roots", "requestState": "no"}),
    ask(59, "tools/call", {"_meta": meta(), "name": "roots", "inputResponses": 5}),
    ask(60, "tools/call", {"_meta": meta(), "name": "roots"}),
    ask(
        61,
        "tools/list",
        {"_meta": meta(**{"io.modelcontextprotocol/logLevel": "loud"})},
    ),
    ask(62, "subscriptions/listen", {"_meta": meta()}),
    ask(63, "subscriptions/listen", {"_meta": meta(), "notifications": {}}),
]


@attrs.frozen
class Quarreller:
    """Says things and has them noted."""

    tap: Conversation
    send: Callable[[bytes], Awaitable[None]]
    """Sends one message and returns when it has been answered."""

    async def unreadable(self, body: bytes) -> None:
        # Where the id can be made out, whoever waits for the answer is told.
        found = re.search(rb'"id": ?(\d+)', body)
        self.tap.unreadable, self.tap.unreadable_id = 1, int(found[1]) if found else None
        await self.send(body)
        self.tap.unreadable, self.tap.unreadable_id = 0, None

    async def say(self, message: object) -> None:
        self.tap.hear("client", message, judge=False)
        await self.send(json.dumps(message).encode())

    async def everything(self, revision: Revision) -> None:
        for body in UNREADABLE:
            await self.unreadable(body)
        for message in WRONG:
            await self.say(message)
        for message in STATELESS if revision.stateless else SESSION:
            await self.say(message)
        # One error without id: for the whole batch, or for what in it cannot be read.
        self.tap.unreadable = 1
        await self.say([*BATCH, {"jsonrpc": "2.0", "id": None, "method": "ping"}])


async def _on_lines(tap: Conversation, revision: Revision) -> None:
    out, right_in = trio.testing.memory_stream_one_way_pair()
    right_out, _ = trio.testing.memory_stream_one_way_pair()
    line = LineTransport(right_in, TappedStream(right_out, tap, "server"), max_line=MAX_LINE)

    async def send(body: bytes) -> None:
        await out.send_all(body + b"\n")
        await trio.testing.wait_all_tasks_blocked()

    client = Quarreller(tap, send)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(make_server().serve, line)
        if not revision.stateless:
            await client.say(ask(10, "tools/list"))
            await client.say(ask(11, "initialize", {"protocolVersion": 5}))
            await client.say(initialize(revision.date, id_=12))
        await client.everything(revision)
        await client.unreadable(b"x" * (MAX_LINE + 1))
        # In the end one id twice, and one request that is taken back.
        forever = {"name": "forever", "_meta": meta() if revision.stateless else {}}
        await client.say(ask(70, "tools/call", forever))
        await client.say(ask(70, "tools/call", forever))
        cancelled = {"method": "notifications/cancelled", "params": {"requestId": 70}}
        await client.say({"jsonrpc": "2.0", **cancelled})
        nursery.cancel_scope.cancel()


async def _on_http(tap: Conversation, revision: Revision) -> None:
    async with serving(make_server()) as http:
        headers: dict[str, str | None] = {}

        async def send(body: bytes) -> None:
            response = await http.post(body, headers)
            if response.is_stream:
                for block in response.body.decode().split("\n\n"):
                    hear_event(tap, block)
            elif response.body:
                tap.hear("server", response.json())

        client = Quarreller(tap, send)
        if revision.stateless:
            headers.update({"mcp-protocol-version": revision.date})
            await client.everything(revision)
            for message in STATELESS:
                headers["mcp-method"] = message["method"]
                headers["mcp-name"] = message["params"].get("name", "")
                await client.say(message)
            return
        await client.say(ask(10, "tools/list"))
        await client.say(ask(11, "initialize", {"protocolVersion": 5}))
        session = await http.open_session(revision.date)
        headers["mcp-session-id"] = session.id
        await client.everything(revision)
        for wrong in ({"accept": "text/plain"}, {"content-type": "text/plain"}):
            headers.update(wrong)
            await client.unreadable(json.dumps(PING).encode())
            headers.update(dict.fromkeys(wrong))
        await session.delete()
        await client.unreadable(json.dumps(PING).encode())


async def quarrel(revision: Revision, transport: str) -> Conversation:
    """Say everything that is wrong in one revision over one transport."""
    tap = Conversation(revision.date)
    await {"lines": _on_lines, "http": _on_http}[transport](tap, revision)
    return tap
