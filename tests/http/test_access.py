"""Notes of HTTP exchanges: one for each, whatever becomes of it, with what is known of it."""

import json
from contextlib import asynccontextmanager
from functools import partial

import trio
from trio.testing import wait_all_tasks_blocked

from mcp_trio import HTTPOptions, MCPClient, ServingSettings
from mcp_trio.engine.envelope import Principal
from mcp_trio.http.access import Note
from mcp_trio.telemetry.access_log import AccessLog
from tests.telemetry.test_audit import Lines
from tests.test_events import make_server

CALL = {
    "jsonrpc": "2.0",
    "id": "id-1",
    "method": "tools/call",
    "params": {
        "name": "good",
        "arguments": {},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    },
}
FIELDS = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": "2026-07-28",
    "Mcp-Method": "tools/call",
    "Mcp-Name": "good",
    "User-Agent": "curl/8",
}


@asynccontextmanager
async def serving(**settings):
    """Serve a server whose exchanges are noted."""
    server, began = make_server()
    notes = []
    options = HTTPOptions(identify=lambda head: Principal(subject="ada"))
    async with trio.open_nursery() as nursery:
        serve = partial(
            server.serve_http,
            "127.0.0.1",
            0,
            options=options,
            tell=notes.append,
            settings=ServingSettings(**settings),
        )
        (url,) = await nursery.start(serve)
        yield Place(url, notes, began)
        nursery.cancel_scope.cancel()


class Place:
    def __init__(self, url, notes, began):
        self.url = url
        self.notes = notes
        self.began = began

    async def connect(self):
        return await trio.open_tcp_stream("127.0.0.1", int(self.url.split(":")[2].split("/")[0]))

    async def raw(self, data):
        stream = await self.connect()
        async with stream:
            await stream.send_all(data)
            return b"".join([chunk async for chunk in stream])

    async def ask(self, path="/mcp", method="POST", message=None, **fields):
        body = b"" if message is None else json.dumps(message).encode()
        fields = {"Host": "127.0.0.1", "Connection": "close", "Content-Length": len(body), **fields}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        answer = await self.raw(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        await wait_all_tasks_blocked()
        return answer


async def test_a_call_is_noted_with_who_what_and_how_much():
    async with serving() as place:
        answer = await place.ask("/mcp?token=canary", message=CALL, **FIELDS)
        body = answer.partition(b"\r\n\r\n")[2]
        (note,) = place.notes
    assert (note.method, note.path, note.version, note.client) == (
        "POST",
        "/mcp",
        "1.1",
        "127.0.0.1",
    )
    assert (note.status, note.complete, note.sent) == (200, True, len(body))
    assert (note.era, note.call, note.request_id) == ("stateless", "tools/call", "id-1")
    assert (note.principal.subject, note.agent) == ("ada", "curl/8")
    assert note.ended >= note.began


async def test_refusals_are_noted_wherever_they_are_made():
    async with serving(max_header_bytes=1000, max_connections_per_address=256) as place:
        await place.ask("/nowhere", "GET")
        await place.ask(Host="rebound.example")
        await place.raw(b"POST /mcp HTTP/1.1\r\nContent-Length: x\r\n\r\n")
        await place.raw(b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 2000 + b"\r\n\r\n")
        await place.raw(b"no http\r\n\r\n")
        await wait_all_tasks_blocked()
        told = [(note.method, note.path, note.status) for note in place.notes]
    assert told == [
        ("GET", "/nowhere", 404),
        ("POST", "/mcp", 403),
        ("", None, 400),
        ("GET", None, 431),
        ("", None, 400),
    ]


async def test_a_client_that_leaves_is_noted_as_one_that_got_no_whole_answer():
    async with serving() as place:
        hold = {**CALL, "params": {**CALL["params"], "name": "hold"}}
        body = json.dumps(hold).encode()
        fields = {**FIELDS, "Mcp-Name": "hold", "Host": "127.0.0.1", "Content-Length": len(body)}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        stream = await place.connect()
        await stream.send_all(f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body)
        await place.began.wait()
        assert place.notes == []
        await trio.aclose_forcefully(stream)
        with trio.fail_after(5):
            while not place.notes:
                await trio.lowlevel.checkpoint()
        (note,) = place.notes
    assert (note.status, note.complete, note.sent) == (None, False, 0)
    assert note.call == "tools/call"


async def test_a_websocket_is_one_exchange():
    async with serving() as place:
        async with MCPClient(place.url.replace("http", "ws")) as client:
            await client.call_tool("good")
        await wait_all_tasks_blocked()
        (note,) = place.notes
    assert (note.method, note.status, note.principal.subject) == ("WEBSOCKET", 101, "ada")
    assert note.sent > 0


async def test_handshake_sessions_are_noted_as_such():
    async with serving() as place:
        initialize = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "c", "version": "1"},
            },
        }
        fields = {name: FIELDS[name] for name in ("Content-Type", "Accept")}
        await place.ask(message=initialize, **fields)
        (note,) = place.notes
    assert (note.era, note.call, note.request_id, note.status) == (
        "handshake",
        "initialize",
        "1",
        200,
    )


def test_a_line_is_json_of_bounded_length_whatever_a_client_sends():
    lines = Lines()
    evil = "x\r\n\x1b[2J\u2028" * 1000
    note = Note(
        method=evil,
        path="/" + evil,
        version="1.1",
        client="::1",
        agent=evil,
        began=1.0,
        ended=1.5,
        principal=Principal(subject=evil, issuer=evil),
        call=evil,
        request_id=evil,
    )
    AccessLog(lines)(note)
    (line,) = lines.lines
    assert line["duration_ms"] == 500.0
    assert line["status"] is None
    assert len(json.dumps(line)) < 10_000
    assert set(line) >= {"at", "client", "method", "path", "status", "bytes", "principal", "era"}


def test_a_subject_stands_beside_its_issuer():
    lines = Lines()
    log = AccessLog(lines)
    who = Principal(subject="ada", issuer="https://idp.example")
    for principal in (None, Principal(subject="ada"), who):
        log(
            Note(
                method="GET",
                path="/mcp",
                version="1.1",
                client=None,
                agent=None,
                began=1.0,
                ended=1.5,
                principal=principal,
            )
        )
    assert [(line["principal"], line["issuer"]) for line in lines.lines] == [
        (None, None),
        ("ada", None),
        ("ada", "https://idp.example"),
    ]
