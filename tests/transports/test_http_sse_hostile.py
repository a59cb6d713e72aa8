"""Servers of HTTP+SSE that say anything: those who wait hear why, in bounded time and memory."""

import contextlib

import httpx2
import pytest
import trio

from mcp_trio.engine.envelope import Envelope
from mcp_trio.errors import TransportError
from mcp_trio.jsonrpc.messages import Malformed, Notification
from mcp_trio.transports.http_sse import HTTPSSETransport
from tests.transports.web import Web, answering, note, streaming

ENDPOINT = b"event: endpoint\ndata: /in?session=1\n\n"
NOTE = Envelope(Notification("n"))


@contextlib.asynccontextmanager
async def opened(web, **options):
    """A transport to a web, with its pump running."""
    async with httpx2.AsyncClient(transport=web, timeout=None) as http:
        transport = HTTPSSETransport("http://server.test/sse", http, **options)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(transport.pump)
            yield transport
            await transport.aclose()
            nursery.cancel_scope.cancel()
    assert web.open == 0


def naming(target):
    return streaming(b"event: endpoint\ndata: " + target.encode() + b"\n\n", ...)


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("http://evil.test/in", "another origin, http://evil.test/in;"),
        ("//evil.test/in", "another origin"),
        ("https://server.test/in", "another origin"),
        ("http://server.test:8080/in", "another origin"),
        ("http://server.test@evil.test/in", "another origin"),
        ("data:text/plain,x", "another origin"),
        ("http://[::1", "no URL"),
        ("http://server.test:port/in", "no URL"),
        ("/in\x01x", "no URL"),
    ],
)
async def test_what_is_said_goes_to_no_other_place(autojump_clock, target, told):
    web = Web(GET=naming(target))
    async with opened(web) as transport:
        with pytest.raises(TransportError, match=told):
            await transport.send(NOTE)
    assert {asked.method for asked in web.asked} == {"GET"}


@pytest.mark.parametrize(
    ("target", "url"),
    [
        ("/in", "http://server.test/in"),
        ("in?a=b#part", "http://server.test/in?a=b"),
        ("", "http://server.test/sse"),
        ("http://server.test/in", "http://server.test/in"),
        ("http://SERVER.test:80/in", "http://server.test/in"),
        ("http://user:password@server.test/in", "http://server.test/in"),
    ],
)
async def test_the_same_place_may_be_spelled_in_any_way(autojump_clock, target, url):
    web = Web(GET=naming(target))
    async with opened(web) as transport:
        await transport.send(NOTE)
    (post,) = [asked for asked in web.asked if asked.method == "POST"]
    assert post.url == url
    assert "authorization" not in post.headers


async def test_only_the_first_place_that_is_named_counts(autojump_clock):
    later = b"event: endpoint\ndata: /other\n\nevent: endpoint\ndata: http://evil.test/\n\n"
    web = Web(GET=streaming(ENDPOINT, later, note(), ...))
    async with opened(web) as transport:
        assert (await transport.receive()).message == Notification("n", {})
        await transport.send(NOTE)
    assert [asked.url for asked in web.asked][1:] == ["http://server.test/in?session=1"]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (404, "answered 404 without a stream"),
        (lambda a: answering(b"<html>", content_type="text/html"), "answered 200 without a stream"),
        (lambda a: streaming(ENDPOINT, status=500), "answered 500 without a stream"),
        (httpx2.ConnectError("refused"), "the stream broke: ConnectError refused"),
        (lambda a: streaming(ENDPOINT, httpx2.ReadError("reset")), "broke: ReadError reset"),
        (lambda a: streaming(ENDPOINT), "closed the stream"),
        (lambda a: streaming(), "closed the stream"),
        (lambda a: streaming(ENDPOINT, *[b"x" * 65536] * 4096), "an event is larger than 100000"),
        (lambda a: streaming(*[b"data: x\n" * 8000] * 4096), "an event is larger than 100000"),
        (lambda a: streaming(*[b": x\n\n", 0.5] * 100), "named no endpoint in time"),
        (
            lambda a: httpx2.Response(307, headers={"location": "http://evil.test/sse"}),
            "another origin, http://evil.test/sse",
        ),
    ],
)
async def test_those_who_wait_hear_why_the_stream_ended(autojump_clock, answer, told):
    web = Web(GET=answer)
    async with opened(web, max_event=100_000) as transport:
        for _ in range(2):
            with pytest.raises(trio.EndOfChannel, match=told):
                await transport.receive()
        with pytest.raises(TransportError, match=told):
            await transport.send(NOTE)
    assert all(body.taken < 300_000 for body in web.bodies)
    assert trio.current_time() < 20


async def test_rubbish_on_the_stream_is_malformed_and_the_next_event_is_read(autojump_clock):
    rubbish = b"data: {\n\ndata: \xff\n\nevent: message\ndata: []\n\nevent: other\ndata: {}\n\n"
    web = Web(GET=streaming(ENDPOINT, rubbish, note(), ...))
    async with opened(web) as transport:
        heard = [(await transport.receive()).message for _ in range(4)]
    assert [type(message) for message in heard] == [Malformed, Malformed, Malformed, Notification]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda a: ..., "not taken a message within 30"),
        (404, "answered 404 to a message"),
        (lambda a: httpx2.ReadError("reset"), "POST failed: ReadError reset"),
        (
            lambda a: httpx2.Response(308, headers={"location": "http://evil.test/"}),
            "another origin",
        ),
    ],
)
async def test_a_message_that_is_not_taken_says_so(autojump_clock, answer, told):
    web = Web(GET=streaming(ENDPOINT, ...), n=answer)
    async with opened(web) as transport:
        with pytest.raises(TransportError, match=told):
            await transport.send(NOTE)
        await transport.send(Envelope(Notification("m")))


async def test_an_endless_answer_to_a_message_is_not_read(autojump_clock):
    web = Web(GET=streaming(ENDPOINT, ...))
    web.answers["n"] = lambda a: streaming(*[b"x" * 65536] * 4096, status=202, headers={})
    async with opened(web) as transport:
        await transport.send(NOTE)
    assert all(body.taken < 300_000 for body in web.bodies)
