"""An HTTP server without a socket, that answers as the test tells it and counts what it costs."""

from __future__ import annotations

import contextlib
import json

import httpx2
import trio

from mcp_trio import ClientOptions, MCPClient
from mcp_trio.transports.streamable_http import StreamableHTTPTransport

URL = "http://server.test/mcp"
HANDSHAKE, STATELESS = "2025-11-25", "2026-07-28"
BOTH = (HANDSHAKE, STATELESS)
ABOUT = {"capabilities": {}, "serverInfo": {"name": "web", "version": "1"}}
STREAM = {"content-type": "text/event-stream"}


class Body(httpx2.AsyncByteStream):
    """A body made of pieces, each made when it is wanted. A number among them is a pause.

    `...` is a piece that never comes.
    """

    def __init__(self, pieces):
        self.pieces = pieces
        self.taken = 0
        self.closed = False

    async def __aiter__(self):
        for piece in self.pieces:
            await trio.lowlevel.checkpoint()
            if piece is ...:
                await trio.sleep_forever()
            elif isinstance(piece, Exception):
                raise piece
            elif isinstance(piece, bytes):
                self.taken += len(piece)
                yield piece
            else:
                await trio.sleep(piece)

    async def aclose(self):
        self.closed = True


class Asked:
    """One request as it arrived."""

    def __init__(self, request, body):
        self.method = request.method
        self.url = str(request.url)
        self.headers = request.headers
        self.message = json.loads(body) if body else {}
        self.time = trio.current_time()

    @property
    def what(self):
        """The method of the message, or that of HTTP where there is none."""
        return self.message.get("method", self.method)

    @property
    def id(self):
        return self.message.get("id")


class Web(httpx2.AsyncBaseTransport):
    """Answers by the method of the message, or of HTTP.

    An answer is a status, a response, an exception, `...` for none at all, or a function of what
    was asked that gives one; of a list, one after the other, the last one again and again.
    """

    def __init__(self, **answers):
        self.answers = {"GET": 405, "DELETE": 204, "initialize": opened, "server/discover": opened}
        self.answers |= {name.replace("_", "/"): answer for name, answer in answers.items()}
        self.asked = []
        self.bodies = []

    async def handle_async_request(self, request):
        asked = Asked(request, await request.aread())
        self.asked.append(asked)
        standing = self.answers.get(asked.what, 202 if asked.id is None else worked)
        answer = standing
        if isinstance(standing, list):
            answer = standing.pop(0) if len(standing) > 1 else standing[0]
        if callable(answer):
            answer = answer(asked)
        await trio.lowlevel.checkpoint()
        if answer is ...:
            await trio.sleep_forever()
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, int):
            answer = httpx2.Response(answer)
        if isinstance(answer.stream, Body):
            self.bodies.append(answer.stream)
        return answer

    def of(self, what):
        return [asked for asked in self.asked if asked.what == what]

    @property
    def open(self):
        """How many bodies are still being read."""
        return sum(not body.closed for body in self.bodies)


def answering(value, status=200, **headers):
    """An answer that is a JSON value, or bytes, whatever was asked."""
    content = value if isinstance(value, bytes) else json.dumps(value).encode()
    named = {name.replace("_", "-"): field for name, field in headers.items()}
    fields = {"content-type": "application/json"} | named
    given = {name: field for name, field in fields.items() if field}
    return httpx2.Response(status, stream=Body([content]), headers=given)


def streaming(*pieces, status=200, headers=STREAM):
    """An answer that is a stream. What is no byte string is made the data of an event."""
    return httpx2.Response(status, stream=Body([each(piece) for piece in pieces]), headers=headers)


def each(piece):
    return event(piece) if isinstance(piece, dict | list) else piece


def event(value, id_=None):
    head = b"" if id_ is None else b"id: %s\n" % id_.encode()
    return b"%sdata: %s\n\n" % (head, json.dumps(value).encode())


def result(id_, **fields):
    body = {"resultType": "complete", "content": [], **fields}
    return {"jsonrpc": "2.0", "id": id_, "result": body}


def note(method="n", **params):
    return {"jsonrpc": "2.0", "method": method, "params": params}


def worked(asked):
    return answering(result(asked.id))


def opened(asked):
    if asked.what == "initialize":
        said = result(asked.id, protocolVersion=HANDSHAKE, **ABOUT)
        return answering(said, mcp_session_id="s-1")
    found = {"supportedVersions": [STATELESS], "ttlMs": 0, "cacheScope": "private"}
    return answering(result(asked.id, **found, **ABOUT))


@contextlib.asynccontextmanager
async def connected(web, revision=HANDSHAKE, *, url=URL, http=None, **options):
    """A client of a web, and nothing that is left open afterwards."""
    async with httpx2.AsyncClient(transport=web, timeout=None, **(http or {})) as client:
        transport = StreamableHTTPTransport(url, client, **options)
        revisions = (revision,) if isinstance(revision, str) else revision
        settings = ClientOptions(revisions=revisions)
        async with MCPClient(transport, options=settings) as connection:
            yield connection
    assert web.open == 0
    assert transport._calls == {}
