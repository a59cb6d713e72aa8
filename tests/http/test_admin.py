"""The admin listener: what it answers, to whom, and that it can change nothing."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from mcp_trio import HTTPOptions
from mcp_trio.http.admin import AT_ONCE, AdminApp, Document
from mcp_trio.http.serving import HTTPService

from .serving_tools import H2Client

NO_REFERRER = ((b"referrer-policy", b"no-referrer"),)


@asynccontextmanager
async def admin():
    """Serve an admin application on a socket, and send it raw requests."""
    facts = {"ready": False, "asked": 0}

    def numbers() -> Document:
        facts["asked"] += 1
        return Document.of({"asked": facts["asked"]})

    def broken() -> Document:
        raise KeyError("secret-canary")

    app = AdminApp(
        {
            "/numbers": numbers,
            "/text": lambda: Document(b"up 1\n", b"text/plain"),
            "/broken": broken,
            "/": lambda: Document(b"<p>", b"text/html", headers=NO_REFERRER),
        },
        policy=HTTPOptions().gate("127.0.0.1"),
        ready=lambda: facts["ready"],
    )
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(HTTPService(app).run, "127.0.0.1", 0)
        yield Asking(int(url.rpartition(":")[2]), facts)
        nursery.cancel_scope.cancel()


class Asking:
    """A client that writes its requests by hand."""

    def __init__(self, port, facts):
        self.port = port
        self.facts = facts

    async def __call__(self, path, method="GET", host="127.0.0.1", **fields):
        fields = {"Host": host, "Connection": "close", **fields}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        async with stream:
            await stream.send_all(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode())
            answer = b"".join([chunk async for chunk in stream])
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), head.decode().lower(), body


async def test_a_page_is_made_anew_for_every_request_and_never_stored():
    async with admin() as ask:
        for turn in (1, 2):
            status, head, body = await ask("/numbers")
            assert (status, json.loads(body)) == (200, {"asked": turn})
            assert "content-type: application/json" in head
            assert "cache-control: no-store" in head


async def test_a_page_that_takes_long_is_made_rarely_whoever_asks_however_often():
    """So that the admin listener is no way to hold up the service."""
    now, made = 0.0, []

    def slow() -> Document:
        nonlocal now
        made.append(now)
        now += 1.0  # which it takes
        return Document.of(len(made))

    app = AdminApp(
        {"/slow": slow},
        policy=HTTPOptions().gate("127.0.0.1"),
        ready=lambda: True,
        clock=lambda: now,
    )
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(HTTPService(app).run, "127.0.0.1", 0)
        ask = Asking(int(url.rpartition(":")[2]), {})
        for _ in range(100):
            assert (await ask("/slow"))[0] == 200
            now += 0.5
        nursery.cancel_scope.cancel()
    assert len(made) == 5
    assert now == 55.0


async def test_who_asks_without_reading_gets_so_many_documents_and_the_probes_are_answered():
    """Each of a megabyte, over connections whose other end reads nothing."""
    app = AdminApp(
        {"/large": lambda: Document(b"x" * 1_000_000)},
        policy=HTTPOptions().gate("127.0.0.1"),
        ready=lambda: True,
    )
    async with trio.open_nursery() as nursery:
        service = HTTPService(app)
        (url,) = await nursery.start(service.run, "127.0.0.1", 0)
        ask = Asking(int(url.rpartition(":")[2]), {})
        async with await trio.open_tcp_stream("127.0.0.1", ask.port) as stream:
            client = H2Client(stream)
            client.refuse_data = True
            asked = [
                await client.ask(method="GET", path="/large", authority="127.0.0.1")
                for _ in range(AT_ONCE + 3)
            ]
            while set(client.status) != set(asked):
                await client.pump()
            assert sorted(client.status.values()) == ["200"] * AT_ONCE + ["503"] * 3
            status, head, _ = await ask("/large")
            assert status == 503
            assert "retry-after: 1" in head
            assert (await ask("/readyz"))[0] == 200
        while service.statistics().requests_in_flight:
            await trio.testing.wait_all_tasks_blocked(0.01)
        assert (await ask("/large"))[0] == 200
        nursery.cancel_scope.cancel()


async def test_a_page_has_a_media_type_of_its_own():
    async with admin() as ask:
        status, head, body = await ask("/text")
        assert (status, body) == (200, b"up 1\n")
        assert "content-type: text/plain" in head


async def test_a_document_has_fields_of_its_own_and_is_taken_for_nothing_else():
    async with admin() as ask:
        assert "referrer-policy: no-referrer" in (await ask("/"))[1]
        assert "referrer-policy" not in (await ask("/text"))[1]
        for path in ("/", "/text", "/numbers"):
            assert "x-content-type-options: nosniff" in (await ask(path))[1]


async def test_head_has_the_length_and_no_body():
    async with admin() as ask:
        status, head, body = await ask("/text", "HEAD")
        assert (status, body) == (200, b"")
        assert "content-length: 5" in head


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
@pytest.mark.parametrize("path", ["/numbers", "/healthz"])
async def test_nothing_but_reading_is_answered(method, path):
    async with admin() as ask:
        status, head, _ = await ask(path, method)
        assert status == 405
        assert "allow: get, head" in head
        assert ask.facts["asked"] == 0


async def test_an_unknown_path_is_told_what_there_is():
    async with admin() as ask:
        status, _, body = await ask("/mcp")
        assert status == 404
        assert "/healthz /numbers /readyz /text" in json.loads(body)["error"].replace(
            " /broken", ""
        )


async def test_the_probes_are_there_for_every_host():
    async with admin() as ask:
        assert (await ask("/healthz", host="10.0.0.7:8001"))[0] == 200
        assert (await ask("/readyz"))[0] == 503
        ask.facts["ready"] = True
        assert (await ask("/readyz"))[0] == 200


async def test_a_web_page_gets_nothing_by_a_name_of_its_own_nor_from_its_origin():
    async with admin() as ask:
        assert (await ask("/numbers", host="rebound.example"))[0] == 403
        status, head, _ = await ask("/numbers", Origin="https://evil.example")
        assert status == 403
        assert "access-control" not in head
        assert ask.facts["asked"] == 0


async def test_a_page_that_fails_is_a_500_without_its_reason(caplog):
    async with admin() as ask:
        status, _, body = await ask("/broken")
        assert status == 500
        assert b"canary" not in body
        assert "KeyError" in caplog.text
        assert (await ask("/numbers"))[0] == 200


async def test_a_websocket_is_turned_down():
    async with admin() as ask:
        key = {"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version": "13"}
        upgrade = {"Connection": "Upgrade", "Upgrade": "websocket"}
        assert (await ask("/numbers", **upgrade, **key))[0] == 404
