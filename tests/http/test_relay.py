"""Processes that share an endpoint, each one a server here: requests of a session find it."""

import base64
import contextlib
import itertools
import json
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import msgspec
import pytest
import trio
import trio.testing

from mcp_trio import ClientOptions, HTTPOptions, MCPClient, Principal
from mcp_trio.errors import UnauthorizedError
from mcp_trio.http import relay
from mcp_trio.http.seats import Seat, ask, socket_path
from mcp_trio.http.serving import ServingSettings
from mcp_trio.transports.http_endpoint import reading
from mcp_trio.wire.revisions import HANDSHAKE
from tests.http.serving_tools import H2Client
from tests.http.tools import make_server
from tests.messages import initialize

PATIENCE = 10


async def pages(scope, receive, send):
    """What a process shows to the others."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["path"].encode()})


class Process:
    """One of the servers, and a client that connects to it and to no other."""

    def __init__(self, number, folder, settings=None, **options):
        self.server, self.record = make_server()
        self.options = HTTPOptions(sse_after=0.1, **options)
        self.settings = settings
        self.folder = folder
        self.number = number
        self.scope = trio.CancelScope()
        self.ended = trio.Event()

    async def run(self, *, task_status):
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        seat = Seat(
            number=self.number, count=2, folder=self.folder, listeners=[listener], pages=pages
        )
        async with trio.open_nursery() as nursery:
            with self.scope:
                serve = nursery.start(
                    lambda task_status: self.server.serve_http(
                        options=self.options,
                        settings=self.settings,
                        seat=seat,
                        task_status=task_status,
                    )
                )
                (self.url,) = await serve
                self.http = httpx2.AsyncClient(trust_env=False, timeout=PATIENCE)
                task_status.started()
                await trio.sleep_forever()
            nursery.cancel_scope.cancel()
        self.ended.set()

    async def end(self):
        """End at once, as a process that is killed."""
        self.scope.cancel()
        await self.ended.wait()


@asynccontextmanager
async def pair(folder, **options):
    """Two processes that share an endpoint, though each has a port of its own here."""
    made = [Process(number, folder, **options) for number in (1, 2)]
    async with trio.open_nursery() as nursery:
        for process in made:
            await nursery.start(process.run)
        with trio.fail_after(PATIENCE):
            yield made
        for process in made:
            await process.http.aclose()
        nursery.cancel_scope.cancel()


def message(method, id_=None, **params):
    body = {"jsonrpc": "2.0", "method": method, "params": params}
    return body if id_ is None else {**body, "id": id_}


def call(name, id_=1, **arguments):
    return message("tools/call", id_, name=name, arguments=arguments)


class Session:
    """A handshake session that one process has, spoken to through any."""

    def __init__(self, session, revision="2025-11-25"):
        self.headers = {
            "accept": "application/json, text/event-stream",
            "mcp-session-id": session,
            "mcp-protocol-version": revision,
        }

    @classmethod
    async def begin(cls, process, **headers):
        accept = {"accept": "application/json, text/event-stream", **headers}
        answer = await process.http.post(process.url, json=initialize(), headers=accept)
        session = cls(answer.headers["mcp-session-id"])
        await session.post(process, message("notifications/initialized"), **headers)
        return session

    async def post(self, process, body, **headers):
        return await process.http.post(process.url, json=body, headers={**self.headers, **headers})

    def stream(self, process, method="GET", body=None, **headers):
        fields = {**self.headers, **headers}
        return process.http.stream(method, process.url, json=body, headers=fields)


@asynccontextmanager
async def lines(answer):
    """Waits for the next line of a stream with a beginning; gives the rest of the line."""
    buffer = b""
    async with reading(answer.aiter_raw()) as pieces:

        async def until(beginning):
            nonlocal buffer
            while True:
                line, found, rest = buffer.partition(b"\n")
                if not found:
                    buffer += await anext(pieces)
                    continue
                buffer = rest
                if line.startswith(beginning):
                    return line.removeprefix(beginning).decode()

        yield until


def text(answer):
    """The text of a tool's result, from either form of an answer."""
    body = answer.text
    if answer.headers["content-type"] == "text/event-stream":
        body = body.rstrip().rpartition("data: ")[2]
    return json.loads(body)["result"]["content"][0]["text"]


async def test_a_session_is_served_by_its_process_whoever_accepts_the_request(tmp_path):
    async with pair(tmp_path) as (one, two):
        session = await Session.begin(one)
        assert session.headers["mcp-session-id"].startswith("1.")
        one.record.release.set()
        for process in (two, one, two):
            assert text(await session.post(process, call("wait"))) == "wait"
        assert one.record.events == ["wait started", "wait over"] * 3
        assert two.record.events == []


async def test_each_process_names_its_sessions_after_itself(tmp_path):
    async with pair(tmp_path) as (one, two):
        ids = {(await Session.begin(p)).headers["mcp-session-id"][:2] for p in (one, two)}
        assert ids == {"1.", "2."}


async def balance(processes, *, task_status):
    """A port whose connections go to the processes by turns."""
    turns = itertools.cycle([httpx2.URL(process.url).port for process in processes])

    async def pump(source, target):
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for data in source:
                await target.send_all(data)
            await target.send_eof()

    async def serve(client):
        target = await trio.open_tcp_stream("127.0.0.1", next(turns))
        async with client, target, trio.open_nursery() as nursery:
            nursery.start_soon(pump, client, target)
            await pump(target, client)
            nursery.cancel_scope.cancel()

    await trio.serve_tcp(serve, 0, host="127.0.0.1", task_status=task_status)


@pytest.mark.parametrize("revision", HANDSHAKE, ids=str)
async def test_the_client_of_this_package_does_not_notice(tmp_path, revision):
    one_each = ServingSettings(max_requests_per_connection=1)
    async with pair(tmp_path, settings=one_each) as made, trio.open_nursery() as nursery:
        (front,) = await nursery.start(balance, made)
        url = f"http://127.0.0.1:{front.socket.getsockname()[1]}/mcp"
        async with MCPClient(url, options=ClientOptions(revisions=(revision,))) as client:
            for number in range(6):
                result = await client.call_tool("add", {"a": number, "b": 1})
                assert result.content[0].text == str(number + 1)
            accepted = [p.server._services[0].statistics().connections_accepted for p in made]
            assert min(accepted) >= 3
        nursery.cancel_scope.cancel()


async def test_a_stream_of_events_is_resumed_at_the_other_process(tmp_path):
    async with pair(tmp_path) as (one, two):
        session = await Session.begin(one)
        async with session.stream(two, "POST", call("wait")) as answer, lines(answer) as until:
            assert answer.headers["content-type"] == "text/event-stream"
            seen = await until(b"id: ")
        one.record.release.set()
        async with session.stream(two, **{"last-event-id": seen}) as resumed:
            await resumed.aread()
        assert text(resumed) == "wait"
        assert one.record.events == ["wait started", "wait over"]


async def test_a_client_that_leaves_takes_the_relayed_request_with_it(tmp_path):
    async with pair(tmp_path) as (one, two):
        session = await Session.begin(one)
        inner = one.server._services[-1]
        async with session.stream(two) as stream:
            assert stream.status_code == 200
            assert inner.statistics().requests_in_flight == 1
        while inner.statistics().connections:
            await trio.testing.wait_all_tasks_blocked(0.01)
        # The session itself goes on.
        assert text(await session.post(two, call("add", a=1, b=2))) == "3"


async def test_a_session_ends_by_a_delete_anywhere(tmp_path):
    async with pair(tmp_path) as (one, two):
        session = await Session.begin(one)
        gone = await two.http.delete(two.url, headers=session.headers)
        assert gone.status_code == 204
        for process in (one, two):
            answer = await session.post(process, call("add", a=1, b=2))
            assert answer.status_code == 404


async def test_a_session_goes_with_its_process(tmp_path):
    async with pair(tmp_path) as (one, two):
        session = await Session.begin(one)
        await one.end()
        answer = await session.post(two, call("add", a=1, b=2))
        assert answer.status_code == 404
        assert "initialize again" in answer.json()["error"]["message"]


async def test_a_request_whose_process_ends_fails_and_does_not_say_that_it_never_ran(tmp_path):
    async with pair(tmp_path) as (one, two):
        session = await Session.begin(one)
        plain = {"accept": "application/json"}
        answers = []

        async def post():
            answers.append(await session.post(two, call("wait"), **plain))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(post)
            await one.record.until("wait started")
            await one.end()
        (answer,) = answers
        assert answer.status_code == 502
        assert "ended in the middle" in answer.json()["error"]["message"]


async def test_a_stream_whose_process_ends_is_cut_and_not_completed(tmp_path):
    async with pair(tmp_path) as (one, two):
        session = await Session.begin(one)
        async with session.stream(two, "POST", call("wait")) as answer, lines(answer) as until:
            await until(b"id: ")
            # A socket that breaks, and not a server that says goodbye.
            for connection in one.server._services[-1]._connections:
                connection._stream.socket.shutdown(trio.socket.SHUT_RDWR)
            with pytest.raises(httpx2.RemoteProtocolError):
                await until(b"data: more")


def told_by(seen):
    """Identifies callers by a field of theirs, and keeps the heads of their requests."""

    def identify(head):
        seen.append(head)
        name = head.headers.get("authorization")
        if name is None:
            raise UnauthorizedError("Who are you?")
        return Principal(subject=name)

    return identify


async def test_credentials_and_addresses_are_judged_where_the_session_is(tmp_path):
    seen = []
    async with pair(tmp_path, identify=told_by(seen)) as (one, two):
        session = await Session.begin(one, authorization="ada")
        del seen[:]
        answer = await session.post(two, call("add", a=1, b=2), authorization="ada")
        assert text(answer) == "3"
        (head,) = seen
        assert head.client == "127.0.0.1"
        assert head.url == two.url
        assert "mcp-trio-relayed" not in head.headers
        other = await session.post(two, call("add", a=1, b=2), authorization="bob")
        assert other.status_code == 404
        nobody = await session.post(two, call("add", a=1, b=2))
        assert nobody.status_code == 401
        await one.end()
        nobody = await session.post(two, call("add", a=1, b=2))
        assert nobody.status_code == 401


async def test_what_a_client_says_about_itself_in_the_field_of_the_processes_is_dropped(tmp_path):
    forged = relay.Origin(
        client=("203.0.113.9", 1),
        server=None,
        scheme="https",
        http_version="1.1",
        root_path="",
        tls={"client_cert_chain": ["forged"], "client_cert_error": None},
    )
    field = base64.urlsafe_b64encode(msgspec.json.encode(forged)).decode()
    seen = []
    async with pair(tmp_path, identify=told_by(seen)) as (one, two):
        session = await Session.begin(one, authorization="ada")
        del seen[:]
        for process in (one, two):
            fields = {"authorization": "ada", "mcp-trio-relayed": field}
            answer = await session.post(process, call("add", a=1, b=2), **fields)
            assert text(answer) == "3"
        assert {(head.client, head.certificate) for head in seen} == {("127.0.0.1", None)}
        assert [head.url for head in seen] == [one.url, two.url]


def test_a_certificate_survives_the_way_between_processes():
    tls = {"client_cert_chain": ("-----BEGIN",), "client_cert_error": None, "cipher_suite": 4865}
    scope = {
        "type": "http",
        "client": ("192.0.2.1", 7),
        "server": ("192.0.2.2", 443),
        "scheme": "https",
        "http_version": "2",
        "extensions": {"tls": tls},
    }
    name, value = relay.Origin.of(scope).field()
    there = {"headers": [(b"host", b"x"), (name, value)], "extensions": {"own": 1}}
    made = relay._origin(there["headers"]).applied(there)
    assert made["headers"] == [(b"host", b"x")]
    assert (made["scheme"], made["http_version"]) == ("https", "2")
    assert (made["client"], made["server"]) == (("192.0.2.1", 7), ("192.0.2.2", 443))
    assert made["extensions"]["own"] == 1
    assert list(made["extensions"]["tls"]["client_cert_chain"]) == ["-----BEGIN"]


async def test_bodies_are_relayed_whole_and_bounded_where_they_arrive(tmp_path):
    async with pair(tmp_path, max_body=300_000) as (one, two):
        session = await Session.begin(one)
        big = {"x": "y" * 250_000}
        answer = await session.post(two, call("echo", value=big), accept="application/json")
        assert answer.json()["result"]["structuredContent"] == big

        async def pieces():
            yield json.dumps(call("echo", value=big)).encode()

        fields = {**session.headers, "content-type": "application/json"}
        answer = await two.http.post(two.url, content=pieces(), headers=fields)
        assert answer.status_code == 200
        answer = await session.post(two, call("echo", value={"x": "y" * 300_001}))
        assert answer.status_code == 413


async def test_no_more_than_so_many_requests_are_relayed_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(relay, "MAX_RELAYED", 1)
    async with pair(tmp_path) as (one, two):
        session = await Session.begin(one)
        async with session.stream(two) as stream:
            assert stream.status_code == 200
            answer = await session.post(two, call("add", a=1, b=2))
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert answer.json()["error"]["message"]
            assert text(await session.post(one, call("add", a=1, b=2))) == "3"
        while (answer := await session.post(two, call("add", a=1, b=2))).status_code == 503:
            await trio.testing.wait_all_tasks_blocked(0.01)
        assert text(answer) == "3"


async def test_one_address_has_so_many_requests_relayed_at_once(tmp_path):
    """Whoever sends them: that a session is none is found out only where it would be."""
    settings = ServingSettings(max_connections_per_address=2)
    hosts = frozenset({"x"})
    async with pair(tmp_path, settings=settings, allowed_hosts=hosts) as (one, two):
        client = H2Client(await trio.open_tcp_stream("127.0.0.1", httpx2.URL(two.url).port))
        forged = [
            ("content-type", "application/json"),
            ("accept", "application/json"),
            ("mcp-session-id", "1.forged"),
        ]

        async def ask(**parts):
            return await client.ask(path="/mcp", fields=forged, **parts)

        async with client.stream:
            kept = [await ask(end=False) for _ in range(2)]
            # Those who come together are let in by lot.
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert (await client.read(await ask(body=b"{}")))[0] == "503"
            for stream_id in kept:
                client.h2.send_data(stream_id, b"{}", end_stream=True)
            await client.flush()
            for stream_id in kept:
                assert (await client.read(stream_id))[0] == "400"
            # As many again: each place was given back.
            for _ in range(3):
                assert (await client.read(await ask(body=b"{}")))[0] == "400"
        while one.server._services[-1].statistics().requests_in_flight:
            await trio.testing.wait_all_tasks_blocked(0.01)


async def test_who_is_refused_before_the_end_of_his_body_hears_it_at_once(tmp_path, caplog):
    """And not in his own time: he may never send the rest."""
    async with pair(tmp_path, max_body=1000) as (one, two):
        session = await Session.begin(one)
        for status, fields in {
            b"403": ["Host: evil.example", "Content-Length: 10"],
            b"415": ["Host: 127.0.0.1", "Content-Length: 10", "Content-Type: text/plain"],
            b"413": ["Host: 127.0.0.1", "Content-Length: 2000", "Content-Type: application/json"],
        }.items():
            named = [*fields, f"Mcp-Session-Id: {session.headers['mcp-session-id']}"]
            head = "\r\n".join(["POST /mcp HTTP/1.1", *named, "", "{"])
            stream = await trio.open_tcp_stream("127.0.0.1", httpx2.URL(two.url).port)
            async with stream:
                await stream.send_all(head.encode())
                assert (await stream.receive_some()).split(b" ")[1] == status
    assert not any("in the middle" in line for line in caplog.messages)


async def test_a_process_that_ends_under_many_requests_is_told_once(tmp_path, caplog):
    async with pair(tmp_path) as (one, two):
        session = await Session.begin(one)

        async def post(number):
            answer = await session.post(two, call("wait", number), accept="application/json")
            assert answer.status_code == 502

        async with trio.open_nursery() as nursery:
            for number in range(1, 6):
                nursery.start_soon(post, number)
            await one.record.until(*["wait started"] * 5)
            await one.end()
    assert sum("in the middle" in line for line in caplog.messages) == 1


async def test_messages_of_http_sse_reach_the_stream_at_the_other_process(tmp_path):
    async with pair(tmp_path) as (one, two):
        base = {name: p.url.removesuffix("/mcp") for name, p in {"one": one, "two": two}.items()}
        opening = one.http.stream("GET", f"{base['one']}/sse")
        async with opening as stream, lines(stream) as until:
            where = base["two"] + await until(b"data: ")
            said = await two.http.post(where, json=initialize("2024-11-05"))
            assert said.status_code == 202
            told = json.loads(await until(b"data: "))
            assert told["result"]["serverInfo"]["name"] == "test"
        while (answer := await two.http.post(where, json=message("x"))).status_code == 202:
            await trio.testing.wait_all_tasks_blocked(0.01)
        assert answer.status_code == 404


async def test_a_drain_lets_what_is_relayed_finish(tmp_path):
    async with pair(tmp_path) as (one, two):
        session = await Session.begin(one)
        answers = []

        async def post():
            answers.append(await session.post(two, call("wait"), accept="application/json"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(post)
            await one.record.until("wait started")
            one.server.drain()
            two.server.drain()
            one.record.release.set()
        assert text(answers[0]) == "wait"


async def test_a_process_that_is_told_to_go_down_before_it_is_up_ends(tmp_path):
    process = Process(1, tmp_path)
    process.server.drain()
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    seat = Seat(number=1, count=2, folder=tmp_path, listeners=[listener], pages=pages)
    with trio.fail_after(PATIENCE):
        await process.server.serve_http(seat=seat)
    assert not socket_path(tmp_path, 1).exists()


def scope_of(path="/mcp", session=None, query=b""):
    headers = [] if session is None else [(b"Mcp-Session-Id", session)]
    return {"type": "http", "path": path, "query_string": query, "headers": headers}


@pytest.mark.parametrize(
    ("scope", "owner"),
    [
        (scope_of(), None),
        (scope_of(session=b"2.abc"), None),
        (scope_of(session=b"1.abc"), 1),
        (scope_of(session=b" 3.a-_b "), 3),
        (scope_of(session=b"4.abc"), None),
        (scope_of(session=b"0.abc"), None),
        (scope_of(session=b"01.abc"), None),
        (scope_of(session=b"1."), None),
        (scope_of(session=b"../1.abc"), None),
        (scope_of(session="\u0661.abc".encode()), None),
        (scope_of(session=b"99999999999.abc"), None),
        (scope_of(session=b"\xff\xfe"), None),
        (scope_of(session=b"abc"), None),
        (scope_of("/messages", query=b"session_id=1.abc"), 1),
        (scope_of("/messages", session=b"3.abc", query=b"session_id=1.abc"), 1),
        (scope_of("/mounted/messages", query=b"a=b&session_id=3.abc"), 3),
        (scope_of(query=b"session_id=1.abc"), None),
    ],
)
def test_the_owner_of_a_request_is_read_from_the_id_of_its_session(scope, owner):
    seat = Seat(number=2, count=3, folder=Path(), listeners=(), pages=pages)
    assert seat.owner_of(scope, "/messages") == owner


def test_two_ids_of_sessions_are_nobodys():
    scope = scope_of(session=b"1.abc")
    scope["headers"] *= 2
    seat = Seat(number=2, count=3, folder=Path(), listeners=(), pages=pages)
    assert seat.owner_of(scope, "/messages") is None


async def test_the_socket_between_processes_is_private_and_shows_pages(tmp_path):
    async with pair(tmp_path) as (one, _):
        path = socket_path(tmp_path, 1)
        assert path.stat().st_mode & 0o777 == 0o600
        assert await ask(path, "/any") == (200, b"/any")
        await one.end()
        assert not path.exists()
        with pytest.raises(OSError, match="/any"):
            await ask(path, "/any")
