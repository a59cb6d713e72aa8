"""How a client gets from a URL to a conversation, whatever kind of server answers there (V9)."""

import json
from collections import Counter

import pytest
import trio

from mcp_trio import ClientOptions, EraCache, MCPClient, MCPServer
from mcp_trio.errors import (
    MCPError,
    RemoteError,
    RequestTimeoutError,
    TransportError,
    UnauthorizedError,
)
from mcp_trio.http.responses import respond
from mcp_trio.http.serving import HTTPService
from mcp_trio.wire.revisions import R2024_11_05, R2025_11_25, R2026_07_28

JSON = {"content-type": "application/json"}
HTML = b"<html><body>What?</body></html>"
DISCOVERED = {"supportedVersions": ["2026-07-28"], "capabilities": {}, "resultType": "complete"}
INITIALIZED = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "serverInfo": {"name": "old", "version": "1"},
}


def result(body):
    return 200, lambda id_: {"jsonrpc": "2.0", "id": id_, "result": body}


def error(status, code, data=None, *, known_id=True):
    told = {"code": code, "message": "no", **({"data": data} if data else {})}
    return status, lambda id_: {"jsonrpc": "2.0", "id": id_ if known_id else None, "error": told}


def bare(status, body=b""):
    return status, body


def name(answer):
    status, body = answer if isinstance(answer, tuple) else (answer.__name__, b"")
    return f"{status} {json.dumps(body(1)) if callable(body) else body.decode()}"


class Fake:
    """An HTTP server that answers by method name; a GET is `GET`. Keeps what it was asked."""

    def __init__(self, **answers):
        self.answers = {name.replace("_", "/"): answer for name, answer in answers.items()}
        self.asked = []

    async def __call__(self, scope, receive, send):
        heard = {"method": scope["method"]}
        if scope["method"] == "POST":
            heard = json.loads(b"".join([chunk async for chunk in _body(receive)]))
        method = heard["method"]
        self.asked.append(method)
        answer = self.answers.get(method, bare(202 if method.startswith("notif") else 405))
        if isinstance(answer, list):
            answer = answer.pop(0)
        status, body = answer
        if callable(body):
            body = json.dumps(body(heard.get("id"))).encode()
            headers = JSON
        else:
            headers = {"content-type": "text/html"}
        start = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": start})
        await send({"type": "http.response.body", "body": body})


async def _body(receive):
    more = True
    while more:
        message = await receive()
        more = message.get("more_body", False)
        yield message.get("body", b"")


async def connect(fake, **options):
    """Connect to a fake; gives the revision, or raises."""
    outcome = None
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(HTTPService(fake).run, "127.0.0.1", 0)
        try:
            async with MCPClient(f"{url}/mcp", options=ClientOptions(**options)) as client:
                outcome = client.revision
        except MCPError as failure:
            outcome = failure
        nursery.cancel_scope.cancel()
    if isinstance(outcome, MCPError):
        raise outcome
    return outcome


PROBE, OPEN = ["server/discover"], ["initialize", "notifications/initialized"]


@pytest.mark.parametrize(
    "refusal",
    [
        bare(400),
        bare(400, HTML),
        bare(404, HTML),
        bare(405),
        bare(406),
        bare(500),
        bare(200, HTML),
        error(400, -32600, known_id=False),
        error(404, -32601),
        error(200, -32601),
        error(200, -32602),
        error(400, -32000, known_id=False),
        result({}),
    ],
    ids=name,
)
async def test_a_server_of_sessions_is_opened_by_handshake_however_it_refuses(refusal):
    fake = Fake(server_discover=refusal, initialize=result(INITIALIZED))
    assert await connect(fake) is R2025_11_25
    assert fake.asked == [*PROBE, *OPEN]


async def test_a_stateless_server_that_wants_another_revision_stays_one():
    supported = {"supported": ["2026-07-28"], "requested": "x"}
    fake = Fake(server_discover=[error(400, -32022, supported), result(DISCOVERED)])
    assert await connect(fake) is R2026_07_28
    assert fake.asked == PROBE * 2


async def test_a_server_that_answers_the_question_may_still_want_a_handshake():
    discovered = {**DISCOVERED, "supportedVersions": ["2025-11-25"]}
    fake = Fake(server_discover=result(discovered), initialize=result(INITIALIZED))
    assert await connect(fake) is R2025_11_25


@pytest.mark.parametrize("code", [-32020, -32021])
async def test_an_error_that_only_a_stateless_server_sends_is_the_end(code):
    fake = Fake(server_discover=error(400, code), initialize=result(INITIALIZED))
    with pytest.raises(RemoteError) as caught:
        await connect(fake)
    assert caught.value.rpc_code == code
    assert fake.asked == PROBE


@pytest.mark.parametrize(
    ("refusal", "kind"),
    [
        (bare(401), UnauthorizedError),
        (bare(401, HTML), UnauthorizedError),
        (bare(403), UnauthorizedError),
        (error(401, -32001), RemoteError),
        (error(200, 1401), RemoteError),
    ],
    ids=name,
)
@pytest.mark.parametrize("step", ["server/discover", "initialize"])
async def test_who_is_asked_who_they_are_does_not_fall_back(refusal, kind, step):
    answers = {"server/discover": bare(404), "initialize": result(INITIALIZED), step: refusal}
    fake = Fake(**answers)
    with pytest.raises(kind):
        await connect(fake)
    assert fake.asked == (PROBE if step == "server/discover" else [*PROBE, "initialize"])


@pytest.mark.parametrize("status", [400, 404, 405])
async def test_where_nothing_is_served_the_error_is_the_one_of_the_newer_transport(status):
    fake = Fake(server_discover=bare(status), initialize=bare(status), GET=bare(410))
    with pytest.raises(TransportError, match=f"answered {status} without a reply") as caught:
        await connect(fake)
    assert "410" in str(caught.value.__cause__)
    assert fake.asked == [*PROBE, "initialize", "GET"]


@pytest.mark.parametrize("refusal", [bare(500), bare(200, HTML), error(200, -32603)], ids=name)
async def test_another_refusal_of_the_handshake_is_the_end(refusal):
    fake = Fake(server_discover=bare(404), initialize=refusal)
    with pytest.raises(MCPError):
        await connect(fake)
    assert fake.asked == [*PROBE, "initialize"]


async def test_a_silent_server_is_given_up_in_bounded_time(autojump_clock):
    class Silent(Fake):
        async def __call__(self, scope, receive, send):
            self.asked.append(scope["method"])
            await trio.sleep_forever()

    fake = Silent()
    began = trio.current_time()
    autojump_clock.autojump_threshold = 0.1  # the requests travel on the clock of the wall
    with pytest.raises(MCPError, match="initialize was not answered"):
        await connect(fake, probe_timeout=10)
    assert 20 <= trio.current_time() - began < 25


async def test_a_server_that_never_takes_the_end_of_the_handshake_is_given_up(autojump_clock):
    class Stuck(Fake):
        async def __call__(self, scope, receive, send):
            if len(self.asked) == len(PROBE) + 1:
                await trio.sleep_forever()
            await super().__call__(scope, receive, send)

    fake = Stuck(server_discover=bare(404), initialize=result(INITIALIZED))
    began = trio.current_time()
    autojump_clock.autojump_threshold = 0.1  # the requests travel on the clock of the wall
    with pytest.raises(RequestTimeoutError, match="notifications/initialized was not taken"):
        await connect(fake, probe_timeout=10)
    assert 10 <= trio.current_time() - began < 15


class Sessions(Fake):
    """A server of sessions that keeps the headers of what it is sent."""

    def __init__(self):
        super().__init__(initialize=result(INITIALIZED), ping=result({}))
        self.heard = {}
        self.working = trio.Event()

    async def __call__(self, scope, receive, send):
        method = None

        async def marked(message):
            nonlocal method
            if method is None:
                method = self.asked[-1]
                fields = scope["headers"]
                self.heard[method] = {name.decode(): value.decode() for name, value in fields}
            if method == "tools/call":
                self.working.set()
                await trio.sleep_forever()
            if method == "initialize" and message["type"] == "http.response.start":
                mark = (b"mcp-session-id", b"the-session")
                message = {**message, "headers": [*message["headers"], mark]}
            await send(message)

        await super().__call__(scope, receive, marked)


async def test_what_is_said_in_a_session_names_it_until_it_is_ended():
    fake = Sessions()
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(HTTPService(fake).run, "127.0.0.1", 0)
        options = ClientOptions(revisions=(R2025_11_25,))
        async with MCPClient(f"{url}/mcp", options=options) as client:
            await client.ping()
            async with trio.open_nursery() as calling:
                calling.start_soon(client.call_tool, "slow")
                await fake.working.wait()
                calling.cancel_scope.cancel()
        nursery.cancel_scope.cancel()
    heard = fake.heard
    assert fake.asked[0] == "initialize"
    assert fake.asked[-1] == "DELETE"  # H10
    assert "mcp-session-id" not in heard["initialize"]
    assert "mcp-protocol-version" not in heard["initialize"]
    told = "notifications/cancelled"  # H13: in so many words
    for method in ("notifications/initialized", "ping", "GET", "tools/call", told, "DELETE"):
        assert heard[method]["mcp-session-id"] == "the-session"  # H9
    for method in ("notifications/initialized", "ping", "GET", "tools/call", told):
        assert heard[method]["mcp-protocol-version"] == "2025-11-25"  # H11
    for method in ("initialize", "ping"):
        assert heard[method]["accept"] == "application/json, text/event-stream"  # H2
        assert not [name for name in heard[method] if name.startswith("mcp-method")]


# -- the older transport ---------------------------------------------------------------


class FirstRevision:
    """Our server as one of the first revision: nothing but HTTP+SSE, at `/mcp`."""

    def __init__(self):
        server = MCPServer("first")
        server.add_tool(lambda: "hello", name="hello")
        self._app = server.asgi_app()
        self.asked = Counter()

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http":
            self.asked[scope["method"], scope["path"]] += 1
            if scope["path"] == "/mcp":
                if scope["method"] == "POST":
                    await respond(send, 405)
                    return
                scope = {**scope, "path": "/sse", "raw_path": b"/sse"}
        await self._app(scope, receive, send)


async def test_a_server_of_the_first_revision_is_found_and_remembered():
    old, eras = FirstRevision(), EraCache()
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(HTTPService(old).run, "127.0.0.1", 0)
        for posts in (2, 2):
            options = ClientOptions(eras=eras)
            async with MCPClient(f"{url}/mcp", options=options) as client:
                assert client.revision in {R2024_11_05, R2025_11_25}
                assert (await client.call_tool("hello")).content[0].text == "hello"
            assert old.asked["POST", "/mcp"] == posts
        nursery.cancel_scope.cancel()
    assert old.asked["GET", "/mcp"] == 2


async def test_a_stateless_client_does_not_fall_back():
    fake = Fake(server_discover=bare(404), initialize=result(INITIALIZED))
    with pytest.raises(TransportError, match="404"):
        await connect(fake, revisions=(R2026_07_28,))
    assert fake.asked == PROBE


# -- what is remembered ----------------------------------------------------------------


async def test_what_is_known_of_a_url_spares_the_question_and_is_forgotten_when_it_fails():
    fake = Fake(server_discover=bare(404), initialize=result(INITIALIZED))
    eras = EraCache()
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(HTTPService(fake).run, "127.0.0.1", 0)

        async def connected(path="/mcp"):
            fake.asked.clear()
            async with MCPClient(url + path, options=ClientOptions(eras=eras)) as client:
                return client.revision, list(fake.asked)

        assert await connected() == (R2025_11_25, [*PROBE, *OPEN])
        assert await connected() == (R2025_11_25, OPEN)
        assert await connected("/mcp?tenant=1") == (R2025_11_25, OPEN)
        assert await connected("/other") == (R2025_11_25, [*PROBE, *OPEN])
        fake.answers["server/discover"] = result(DISCOVERED)
        fake.answers["initialize"] = error(400, -32022, {"supported": ["2026-07-28"]})
        assert await connected() == (R2026_07_28, ["initialize", *PROBE])
        assert await connected() == (R2026_07_28, PROBE)
        nursery.cancel_scope.cancel()


async def test_a_call_is_sent_once_whatever_becomes_of_it():
    fake = Fake(
        server_discover=bare(404), initialize=result(INITIALIZED), tools_call=bare(404, HTML)
    )
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(HTTPService(fake).run, "127.0.0.1", 0)
        async with MCPClient(url) as client:
            with pytest.raises(TransportError):
                await client.call("tools/call", {"name": "pay"})
        nursery.cancel_scope.cancel()
    assert fake.asked == [*PROBE, *OPEN, "tools/call"]
