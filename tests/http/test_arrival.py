"""Who a client is taken for, behind which proxies, and how much one address may have."""

import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio
import trio.testing
import trustme
import wsproto
import wsproto.events

from mcp_trio import TLSOptions
from mcp_trio.http.asgi_call import Receive, Scope, Send
from mcp_trio.http.crowd import Crowd, place_of
from mcp_trio.http.serving import HTTPService, ServingSettings

from .serving_tools import (
    GET,
    Gate,
    H2Client,
    MemoryListener,
    answer,
    connect,
    hello,
    read_all,
    read_until,
    served,
    started,
)

LOCAL = ("127.0.0.0/8",)
FROM = b"PROXY TCP4 %s 192.0.2.1 4711 443\r\n"


class Told:
    """An application that keeps the scope of each request."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close"})
        else:
            await answer(send, b"hello")

    def last(self, name: str) -> object:
        return self.scopes[-1][name]


async def get(port: int, *fields: bytes, first: bytes = b"") -> bytes:
    """The whole answer to one request on a connection of its own."""
    head = b"".join(field + b"\r\n" for field in (b"host: x", b"connection: close", *fields))
    async with await connect(port) as stream:
        await stream.send_all(first + b"GET / HTTP/1.1\r\n" + head + b"\r\n")
        return await read_all(stream)


# How much one address may have.


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::", "2001:db8:1:3::/64"),
    ],
)
def test_an_address_of_ipv6_counts_as_its_home(address: str, place: str) -> None:
    assert place_of((address, 1)) == place


def test_a_crowd_forgets_who_has_left(caplog: pytest.LogCaptureFixture) -> None:
    crowd = Crowd(2)
    for name in ("a", "b"):
        assert crowd.enter(name)
        assert crowd.enter(name)
        assert not crowd.enter(name)
        assert not crowd.enter(name)
    assert crowd.enter(None)
    crowd.leave("a")
    assert crowd.enter("a")
    for _ in range(2):
        crowd.leave("a")
        crowd.leave("b")
    crowd.leave(None)
    assert len(crowd) == 0
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2


async def test_an_address_with_all_its_connections_is_told_503_until_one_ends() -> None:
    gate = Gate()
    service = HTTPService(gate, settings=ServingSettings(max_connections_per_address=2))
    async with started(service) as (port, _), AsyncExitStack() as stack:
        held = [await stack.enter_async_context(await connect(port)) for _ in range(2)]
        for stream in held:
            await stream.send_all(GET)
        await gate.wait_running(2)
        async with await connect(port) as stream:
            await stream.send_all(GET)
            told = await read_all(stream)
            assert told.startswith(b"HTTP/1.1 503 ")
            assert b"Retry-After: 1\r\n" in told
        gate.open.set()
        for stream in held:
            await read_until(stream, b"hello")
            await stream.aclose()
        while service.statistics().connections:
            await trio.testing.wait_all_tasks_blocked()
        assert (await get(port)).endswith(b"hello")


async def test_an_address_over_its_limit_does_not_take_the_places_of_others() -> None:
    settings = ServingSettings(max_connections=100, max_connections_per_address=1)
    service = HTTPService(hello, settings=settings)
    async with started(service) as (port, _), AsyncExitStack() as stack:
        for _ in range(120):  # none of them reads why it is refused
            await stack.enter_async_context(await connect(port))
        async with await trio.open_tcp_stream(
            "127.0.0.1", port, local_address="127.0.0.2"
        ) as other:
            await other.send_all(GET)
            assert (await read_until(other, b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")


async def test_with_tls_an_address_over_its_limit_costs_no_handshake(tmp_path) -> None:
    async with secured(Gate(), tmp_path, max_connections_per_address=1) as (port, context):
        async with await connect(port) as first, await connect(port) as second:
            secure = trio.SSLStream(first, context, server_hostname="127.0.0.1")
            await secure.do_handshake()
            assert await second.receive_some() == b""


@asynccontextmanager
async def secured(app, folder, **limits: object) -> AsyncIterator[tuple[int, ssl.SSLContext]]:
    authority = trustme.CA()
    cert = authority.issue_cert("127.0.0.1")
    cert.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    cert.private_key_pem.write_to_path(folder / "key.pem")
    tls = TLSOptions(cert_file=folder / "cert.pem", key_file=folder / "key.pem")
    context = ssl.create_default_context()
    authority.configure_trust(context)
    async with started(HTTPService(app, settings=ServingSettings(**limits), tls=tls)) as (port, _):
        yield port, context


# The PROXY header.


async def test_the_header_of_a_trusted_proxy_says_who_the_client_is() -> None:
    app = Told()
    async with served(app, trusted_proxies=LOCAL, proxy_protocol=True) as port:
        assert (await get(port, first=FROM % b"203.0.113.9")).endswith(b"hello")
        assert app.last("client") == ("203.0.113.9", 4711)
        assert app.last("server") == ("192.0.2.1", 443)
        health = b"\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"
        assert (await get(port, first=health)).endswith(b"hello")
        assert app.last("client")[0] == "127.0.0.1"
        assert (await get(port, first=b"PROXY UNKNOWN\r\n")).endswith(b"hello")
        assert app.last("client") is None


async def test_the_header_comes_before_tls(tmp_path) -> None:
    app = Told()
    limits = {"trusted_proxies": LOCAL, "proxy_protocol": True}
    async with secured(app, tmp_path, **limits) as (port, context):
        stream = await connect(port)
        await stream.send_all(FROM % b"203.0.113.9")
        secure = trio.SSLStream(stream, context, server_hostname="127.0.0.1", https_compatible=True)
        await secure.send_all(GET)
        await read_until(secure, b"hello")
        assert app.last("client") == ("203.0.113.9", 4711)
        assert app.last("scheme") == "https"
        await secure.aclose()


@pytest.mark.parametrize("first", [b"", b"\x16\x03\x01", b"PROXY TCP4 x\r\n"])
async def test_a_trusted_proxy_without_its_header_is_closed_unheard(
    first: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    app = Told()
    async with served(app, trusted_proxies=LOCAL, proxy_protocol=True) as port:
        for _ in range(2):
            async with await connect(port) as stream:
                await stream.send_all(first + GET)
                with pytest.raises(trio.BrokenResourceError):  # closed over what was not read
                    assert await stream.receive_some() == b""
                    raise trio.BrokenResourceError
    assert app.scopes == []
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1
    assert "PROXY" in told[0]


@pytest.mark.parametrize("proxy_protocol", [True, False])
async def test_the_header_of_anybody_else_is_no_http(proxy_protocol: bool) -> None:
    app = Told()
    limits = {"trusted_proxies": ("10.0.0.0/8",), "proxy_protocol": proxy_protocol}
    async with served(app, **limits) as port:
        assert (await get(port, first=FROM % b"203.0.113.9")).startswith(b"HTTP/1.1 400 ")
        assert (await get(port)).endswith(b"hello")
        assert app.last("client")[0] == "127.0.0.1"


async def test_a_header_that_does_not_come_is_given_up() -> None:
    limits = {"trusted_proxies": LOCAL, "proxy_protocol": True, "header_timeout": 0.1}
    async with served(hello, **limits) as port, await connect(port) as stream:
        await stream.send_all(b"PROXY TCP4 ")
        assert await stream.receive_some() == b""


async def test_clients_behind_the_header_count_each_for_itself() -> None:
    gate = Gate()
    limits = {
        "trusted_proxies": LOCAL,
        "proxy_protocol": True,
        "max_connections_per_address": 1,
    }
    async with served(gate, **limits) as port, AsyncExitStack() as stack:
        for name in (b"203.0.113.1", b"203.0.113.2"):
            stream = await stack.enter_async_context(await connect(port))
            await stream.send_all(FROM % name + GET)
        await gate.wait_running(2)
        over = await get(port, first=FROM % b"203.0.113.1")
        assert over.startswith(b"HTTP/1.1 503 ")
        gate.open.set()


# What proxies write into requests.


async def test_the_fields_of_a_trusted_proxy_are_believed() -> None:
    app = Told()
    async with served(app, trusted_proxies=LOCAL) as port:
        await get(
            port,
            b"x-forwarded-for: 198.51.100.1, 203.0.113.9",
            b"x-forwarded-proto: https",
            b"x-forwarded-host: mcp.example",
        )
        assert app.last("client") == ("203.0.113.9", 0)
        assert app.last("scheme") == "https"
        assert [v for n, v in app.last("headers") if n == b"host"] == [b"mcp.example"]
        await get(port, b'forwarded: for="[2001:db8::1]:80";proto=http')
        assert app.last("client") == ("2001:db8::1", 80)
        assert app.last("scheme") == "http"
        assert [v for n, v in app.last("headers") if n == b"host"] == [b"x"]
        await get(port)
        assert app.last("client")[0] == "127.0.0.1"


async def test_the_fields_of_anybody_else_are_not() -> None:
    app = Told()
    async with served(app, trusted_proxies=("10.0.0.0/8",)) as port:
        await get(port, b"x-forwarded-for: 10.0.0.1", b"x-forwarded-proto: https")
        await get(port, b"forwarded: for=10.0.0.1;proto=https;host=evil.example")
    for scope in app.scopes:
        assert scope["client"][0] == "127.0.0.1"
        assert scope["scheme"] == "http"
        assert (b"host", b"x") in scope["headers"]


async def test_behind_a_proxy_protocol_only_a_proxy_may_write_the_fields() -> None:
    app = Told()
    async with served(app, trusted_proxies=LOCAL, proxy_protocol=True) as port:
        await get(port, b"x-forwarded-for: 198.51.100.1", first=FROM % b"203.0.113.9")
        assert app.last("client") == ("203.0.113.9", 4711)
        await get(port, b"x-forwarded-for: 198.51.100.1", first=FROM % b"127.0.0.5")
        assert app.last("client") == ("198.51.100.1", 0)


async def test_fields_that_contradict_each_other_are_refused() -> None:
    app = Told()
    async with served(app, trusted_proxies=LOCAL) as port:
        told = await get(port, b"x-forwarded-for: 203.0.113.9", b"forwarded: for=198.51.100.1")
        assert told.startswith(b"HTTP/1.1 400 ")
        assert b"contradict" in told
        assert (await get(port, b"forwarded: for=203.0.113.9")).endswith(b"hello")
    assert len(app.scopes) == 1


async def test_a_websocket_behind_tls_of_a_proxy_is_wss() -> None:
    app = Told()
    async with served(app, trusted_proxies=LOCAL) as port, await connect(port) as stream:
        fields = [(b"x-forwarded-for", b"203.0.113.9"), (b"x-forwarded-proto", b"https")]
        ws = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
        asked = wsproto.events.Request(host="x", target="/", extra_headers=fields)
        await stream.send_all(ws.send(asked))
        await read_all(stream)
        assert app.last("scheme") == "wss"


async def test_requests_behind_a_proxy_count_for_their_address_while_they_run() -> None:
    gate = Gate()
    service = HTTPService(
        gate,
        settings=ServingSettings(trusted_proxies=LOCAL, max_connections_per_address=2),
    )
    async with started(service) as (port, _), AsyncExitStack() as stack:
        # The proxy itself has more connections than one address may have.
        streams = [await stack.enter_async_context(await connect(port)) for _ in range(5)]
        request = b"GET / HTTP/1.1\r\nhost: x\r\nx-forwarded-for: %s\r\n\r\n"
        for stream, name in zip(streams, (b"2001:db8::1", b"2001:db8::2"), strict=False):
            await stream.send_all(request % name)
        await gate.wait_running(2)
        await streams[2].send_all(request % b"2001:db8::3")
        told = await read_until(streams[2], b"running")
        assert told.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1" in told.lower()
        await streams[3].send_all(request % b"2001:db8:0:1::1")
        await gate.wait_running(3)
        gate.open.set()
        for stream in (streams[0], streams[1], streams[3]):
            await read_until(stream, b"hello")
        # The connection of the refused one goes on, and so may its address.
        await streams[2].send_all(request % b"2001:db8::3")
        assert b" 200 " in await read_until(streams[2], b"hello")


async def test_streams_of_http2_behind_a_proxy_count_each_for_its_address() -> None:
    gate = Gate()
    limits = {"trusted_proxies": LOCAL, "max_connections_per_address": 1}
    async with served(gate, **limits) as port, await connect(port) as stream:
        client = H2Client(stream)
        for name in ("203.0.113.1", "203.0.113.2"):
            await client.ask(fields=[("x-forwarded-for", name)])
        await gate.wait_running(2)
        over = await client.ask(fields=[("x-forwarded-for", "203.0.113.1")])
        assert (await client.read(over))[0] == "503"
        gate.open.set()


async def test_a_stream_without_an_address_is_served_and_counts_as_nobody() -> None:
    app = Told()
    service = HTTPService(app, settings=ServingSettings(max_connections_per_address=1))
    listener = MemoryListener()
    async with trio.open_nursery() as nursery:
        await nursery.start(service.run_listeners, [listener])
        for _ in range(3):
            stream = await listener.connect()
            await stream.send_all(GET)
            await read_until(stream, b"hello")
        assert app.last("client") is None
        nursery.cancel_scope.cancel()


async def test_a_websocket_over_the_limit_of_its_address_is_refused_before_the_handshake() -> None:
    gate = Gate()
    limits = {"trusted_proxies": LOCAL, "max_connections_per_address": 1}
    async with served(gate, **limits) as port:
        async with await connect(port) as held, await connect(port) as stream:
            fields = [(b"x-forwarded-for", b"203.0.113.9")]
            await held.send_all(GET[:-2] + b"x-forwarded-for: 203.0.113.9\r\n\r\n")
            await gate.wait_running(1)
            ws = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
            asked = wsproto.events.Request(host="x", target="/", extra_headers=fields)
            await stream.send_all(ws.send(asked))
            assert (await read_until(stream, b"running")).startswith(b"HTTP/1.1 503 ")
