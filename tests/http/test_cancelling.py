"""What a call that is given up over HTTP waits for until its `finally` runs: nothing but its turn.

Trio draws lots for the order in which those who are ready have their turns, so what must not come
first is tried more often than chance could let pass.
"""

import contextlib
import json
import socket
from urllib.parse import urlsplit

import pytest
import trio
import trio.testing

from mcp_trio import MCPServer
from mcp_trio.http.asgi_call import Receive, Scope, Send

from .serving_tools import (
    GET,
    Waiter,
    handle_of,
    served,
    served_in_memory,
)
from .tools import make_server

TRIES = 20
"""Each of them goes wrong by chance in half of the cases, if it can go wrong."""


class Turns(trio.abc.Instrument):
    """Counts the turns of connections, between one wait for the kernel and the next."""

    def __init__(self) -> None:
        self.taken = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.taken += task.name.endswith("HTTPService._serve")


@pytest.mark.parametrize("events", [False, True])
async def test_a_lost_peer_is_told_in_the_turn_that_finds_the_end_of_what_it_sends(
    events: bool,
) -> None:
    app = Waiter(events=events)
    async with served(app) as port:
        stream = await app.ask(port)
        await trio.testing.wait_all_tasks_blocked()
        turns = Turns()
        trio.lowlevel.add_instrument(turns)
        told: list[int] = []

        def lose() -> None:
            told.append(turns.taken)
            app.lost.set()

        assert app.handle is not None
        app.handle.on_disconnect(lose)
        try:
            stream.socket.close()
            await app.lost.wait()
        finally:
            trio.lowlevel.remove_instrument(turns)
        assert told == [1]


async def test_an_application_ends_before_the_connection_of_its_lost_peer_is_closed() -> None:
    order: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del receive, send
        with trio.CancelScope() as limit:
            handle_of(scope).on_disconnect(limit.cancel)
            running.set()
            try:
                await trio.sleep_forever()
            finally:
                order.append("ended")

    async with served_in_memory(app) as listener:
        for _ in range(TRIES):
            running = trio.Event()
            client, server = trio.testing.memory_stream_pair()
            server.send_stream.close_hook = lambda: order.append("closed")
            await listener.connect_by(server)
            await client.send_all(GET)
            await running.wait()
            await client.aclose()
            await trio.testing.wait_all_tasks_blocked()
    assert order == ["ended", "closed"] * TRIES


async def test_a_handler_ends_before_the_receipt_of_its_cancellation_is_written() -> None:
    receipts: list[bytes] = []
    server: MCPServer
    server, _ = make_server()

    @server.tool
    async def hold() -> None:
        running.set()
        try:
            await trio.sleep_forever()
        finally:
            with contextlib.suppress(BlockingIOError):
                receipts.append(control.recv(65536, socket.MSG_PEEK))
            ended.set()

    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(server.serve_http, "127.0.0.1", 0)
        place = urlsplit(url)
        session = ""

        def post(message: dict[str, object]) -> bytes:
            body = json.dumps({"jsonrpc": "2.0", **message}).encode()
            head = (
                f"POST {place.path} HTTP/1.1\r\nHost: {place.netloc}\r\n{session}"
                "Accept: application/json, text/event-stream\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            return head.encode() + body

        async def said(of: socket.socket, text: bytes) -> bytes:
            heard = b""
            while text not in heard:
                await trio.lowlevel.wait_readable(of)
                heard += of.recv(65536)
            return heard

        with (
            socket.create_connection((str(place.hostname), place.port or 0)) as control,
            socket.create_connection((str(place.hostname), place.port or 0)) as calls,
        ):
            control.setblocking(False)
            calls.setblocking(False)
            hello = {"protocolVersion": "2025-06-18", "capabilities": {}}
            hello["clientInfo"] = {"name": "t", "version": "1"}
            control.send(post({"id": 0, "method": "initialize", "params": hello}))
            fields = (await said(control, b"serverInfo")).split(b"\r\n")
            given = next(field for field in fields if field.lower().startswith(b"mcp-session-id"))
            session = given.decode() + "\r\n"
            for id_ in range(1, TRIES + 1):
                running, ended = trio.Event(), trio.Event()
                params: dict[str, object] = {"name": "hold", "arguments": {}}
                calls.send(post({"id": id_, "method": "tools/call", "params": params}))
                await running.wait()
                params = {"requestId": id_}
                control.send(post({"method": "notifications/cancelled", "params": params}))
                await ended.wait()
                await said(control, b"202")
        nursery.cancel_scope.cancel()
    assert receipts == []
