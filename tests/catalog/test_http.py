"""An HTTPS document as a registry: a real server, and what servers do."""

from __future__ import annotations

import gzip
import json
import ssl
import time
import zlib
from contextlib import asynccontextmanager, suppress
from email.utils import formatdate
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import h11
import pytest
import trio
import trustme

from mcp_trio.abc import RegistryError, Trouble
from mcp_trio.catalog.registries.http import HttpRegistry
from mcp_trio.catalog.registries.options import RegistryOptions
from mcp_trio.errors import ConfigurationError
from mcp_trio.secrets import FileSecret, Secret
from mcp_trio.testing import cancelled_after, check_registry

CANARY = "s3cret-canary-71"
YEARS = [b"Wed, 01 Jan 2020 00:00:00 GMT", b"Fri, 01 Jan 2021 00:00:00 GMT"]


class Shelf:
    """A server of one document. What it says is changed by what the test sets."""

    def __init__(self):
        self.views = {}
        self.version = 0
        self.seen = []
        self.accepted = 0
        self.validators = "etag"
        self.gzip = False
        self.handler = self.serve_document
        self.gone = trio.Event()
        self.asked = trio.Event()
        self.url = ""

    def put(self, *views):
        self.views.update({view["operation_id"]: view for view in views})
        self.version += 1

    @property
    def body(self):
        views = list(self.views.values())
        return json.dumps({"format": "mcp-operations/1", "operations": views}).encode()

    @property
    def headers(self):
        match self.validators:
            case "etag":
                return [("etag", f'"v{self.version}"')]
            case "weak":
                return [("etag", f'W/"v{self.version}"')]
            case "modified":
                # Long enough ago to be sure of, and another one for each version.
                return [("last-modified", formatdate(1_000_000_000 + self.version, usegmt=True))]
        return []

    async def serve_document(self, answer, asked):
        now = [("date", formatdate(time.time(), usegmt=True))]
        for name, value in self.headers:
            condition = {"etag": "if-none-match", "last-modified": "if-modified-since"}[name]
            if asked.get(condition) == value:
                await answer(304, [*self.headers, *now])
                return
        if self.gzip:
            await answer(
                200, [*self.headers, *now, ("content-encoding", "gzip")], gzip.compress(self.body)
            )
        else:
            await answer(200, [*self.headers, *now], self.body)

    def says(self, status, headers=(), body=b""):
        async def handler(answer, asked):
            await answer(status, list(headers), body)

        self.handler = handler

    async def hang(self, answer, asked):
        self.asked.set()
        try:
            while await answer.stream.receive_some(1000):
                pass
        except trio.BrokenResourceError:
            pass
        self.gone.set()

    async def serve(self, stream):
        self.accepted += 1
        http = h11.Connection(h11.SERVER)
        try:
            while True:
                while (event := http.next_event()) is h11.NEED_DATA:
                    http.receive_data(await stream.receive_some(65536))
                if not isinstance(event, h11.Request):
                    return
                asked = {k.decode(): v.decode() for k, v in event.headers}
                asked[":target"] = event.target.decode()
                self.seen.append(asked)
                while not isinstance(http.next_event(), h11.EndOfMessage):
                    pass
                await self.handler(Answer(stream, http), asked)
                if http.our_state is not h11.DONE:
                    return
                http.start_next_cycle()
        except (trio.BrokenResourceError, h11.ProtocolError):
            return


class Answer:
    def __init__(self, stream, http):
        self.stream, self.http = stream, http

    async def __call__(self, status, headers, body=b"", length=None):
        if status != 304:
            headers = [*headers, ("content-length", str(len(body) if length is None else length))]
        data = self.http.send(h11.Response(status_code=status, headers=headers))
        if body:
            data += self.http.send(h11.Data(data=body))
        if length is None:
            data += self.http.send(h11.EndOfMessage()) or b""
        await self.stream.send_all(data)


@asynccontextmanager
async def shelf_at_work(tls=None):
    shelf = Shelf()

    async def serve(stream):
        if tls is not None:
            stream = trio.SSLStream(stream, tls, server_side=True, https_compatible=True)
        with suppress(trio.BrokenResourceError, ssl.SSLError):
            await shelf.serve(stream)

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        port = listeners[0].socket.getsockname()[1]
        scheme, host = ("http", "127.0.0.1") if tls is None else ("https", "localhost")
        shelf.url = f"{scheme}://{host}:{port}/ops.json"
        yield shelf
        nursery.cancel_scope.cancel()


@pytest.fixture
async def shelf():
    async with shelf_at_work() as made:
        yield made


@pytest.fixture
async def registry(shelf):
    made = HttpRegistry(shelf.url)
    yield made
    await made.aclose()


def ids(reading):
    return sorted(entry.operation_id for entry in reading.entries)


async def refused(registry, trouble, says):
    for ask in (registry.change_token, partial(registry.read, None)):
        with pytest.raises(RegistryError, match=says) as caught:
            await ask()
        assert caught.value.trouble is trouble
        assert CANARY not in str(caught.value)


class PublishedOnAShelf:
    def __init__(self, shelf):
        self.shelf = shelf
        self.registry = HttpRegistry(shelf.url)

    async def publish(self, *views):
        self.shelf.put(*views)
        await trio.lowlevel.checkpoint()

    async def withdraw(self, *operation_ids):
        for operation_id in operation_ids:
            self.shelf.views.pop(operation_id, None)
        self.shelf.put()
        await trio.lowlevel.checkpoint()

    async def hide(self):
        self.shelf.says(503)

    async def show(self):
        self.shelf.handler = self.shelf.serve_document


@pytest.mark.parametrize("validators", ["etag", "weak", "modified", None])
@pytest.mark.parametrize("compressed", [False, True])
async def test_it_passes_the_battery(validators, compressed):
    @asynccontextmanager
    async def make():
        async with shelf_at_work() as shelf:
            shelf.validators, shelf.gzip = validators, compressed
            yield PublishedOnAShelf(shelf)

    await check_registry(make)


@pytest.mark.parametrize("validators", ["etag", "weak", "modified"])
async def test_while_nothing_changes_nothing_is_sent(shelf, registry, view, validators):
    shelf.validators = validators
    shelf.put(view("a"))
    base = await registry.read(None)
    statuses = []
    served = shelf.handler

    async def watch(answer, asked):
        async def note(status, headers, body=b""):
            statuses.append(status)
            await answer(status, headers, body)

        await served(note, asked)

    shelf.handler = watch
    for _ in range(3):
        assert await registry.change_token() == base.token
    assert statuses == [304] * 3
    shelf.put(view("b"))
    reading = await registry.read(base.token)
    assert (ids(reading), reading.complete) == (["b"], False)
    assert statuses == [304] * 3 + [200]
    assert shelf.accepted == 1


async def test_without_a_validator_the_hash_tells(shelf, registry, view):
    shelf.validators = None
    shelf.put(view("a"))
    token = await registry.change_token()
    assert await registry.change_token() == token
    shelf.put(view("a"))
    assert await registry.change_token() == token
    shelf.put(view("b"))
    assert await registry.change_token() != token


async def test_an_etag_that_changes_for_nothing_is_no_change(shelf, registry, view):
    shelf.put(view("a"))
    token = await registry.change_token()
    shelf.put()
    assert await registry.change_token() == token


@pytest.mark.parametrize(
    "headers",
    [
        [("etag", b'"\xe9"')],
        [("etag", '"é"'.encode())],
        [("date", YEARS[1]), ("last-modified", YEARS[0] + b" (\xe9)")],
        [("date", YEARS[1]), ("last-modified", YEARS[0] + b" (" + b"x" * 5000 + b")")],
        [("etag", b"x" * 5000)],
        [("etag", b"")],
        [("etag", b"*")],
        [("etag", b'"v1", "common"')],
        [("etag", b'"v1"'), ("etag", b'"common"')],
    ],
)
async def test_a_validator_that_cannot_be_relied_on_is_none(shelf, registry, view, headers):
    shelf.put(view("a"))

    async def handler(answer, asked):
        assert not {"if-none-match", "if-modified-since"} & asked.keys()
        await answer(200, headers, shelf.body)

    shelf.handler = handler
    base = await registry.read(None)
    shelf.put(view("b"))
    assert ids(await registry.read(base.token)) == ["b"]


async def test_last_modified_of_just_now_is_not_relied_on(shelf, registry, view):
    # Two versions within one second have the same date.
    now = formatdate(time.time(), usegmt=True)
    shelf.put(view("a"))

    async def handler(answer, asked):
        assert "if-modified-since" not in asked
        await answer(200, [("last-modified", now), ("date", now)], shelf.body)

    shelf.handler = handler
    token = await registry.change_token()
    shelf.put(view("b"))
    assert await registry.change_token() != token
    assert len(shelf.seen) == 2


async def test_304_without_a_condition_is_no_document(shelf, registry):
    shelf.says(304)
    await refused(registry, Trouble.UNREADABLE, "answered with HTTP status 304")


@pytest.mark.parametrize(
    ("status", "trouble", "says"),
    [
        (204, Trouble.UNREADABLE, "answered with HTTP status 204"),
        (206, Trouble.UNREADABLE, "answered with HTTP status 206"),
        (400, Trouble.UNREADABLE, "answered with HTTP status 400"),
        (401, Trouble.DENIED, "does not let us in"),
        (403, Trouble.DENIED, "does not let us in"),
        (404, Trouble.MISSING, "is not there"),
        (410, Trouble.MISSING, "is not there"),
        (429, Trouble.UNREACHABLE, "cannot answer now"),
        (500, Trouble.UNREACHABLE, "cannot answer now"),
        (503, Trouble.UNREACHABLE, "cannot answer now"),
    ],
)
async def test_other_statuses_are_troubles_and_pass(shelf, registry, view, status, trouble, says):
    shelf.put(view("a"))
    base = await registry.read(None)
    served = shelf.handler
    shelf.says(status)
    await refused(registry, trouble, says)
    shelf.handler = served
    assert await registry.change_token() == base.token


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_not_followed(shelf, view, status):
    async with shelf_at_work() as other:
        other.put(view("a"))
        shelf.says(status, [("location", other.url)])
        registry = HttpRegistry(
            shelf.url, RegistryOptions(secret=Secret(CANARY), allow_private=True)
        )
        await refused(registry, Trouble.UNREADABLE, "wants to redirect us")
        await registry.aclose()
        assert other.accepted == 0


async def test_the_size_is_bounded_while_it_streams(shelf, view):
    registry = HttpRegistry(shelf.url, RegistryOptions(max_bytes=10_000))
    sent = 0

    async def endless(answer, asked):
        nonlocal sent
        data = answer.http.send(h11.Response(status_code=200, headers=[]))
        await answer.stream.send_all(data)
        while True:
            await answer.stream.send_all(answer.http.send(h11.Data(data=b" " * 4096)))
            sent += 4096

    shelf.handler = endless
    with trio.fail_after(20):
        await refused(registry, Trouble.TOO_LARGE, "is larger than 10000 bytes")
    await registry.aclose()
    assert sent < 50_000_000


async def test_a_bomb_of_gzip_is_larger_than_it_looks(shelf):
    bomb = gzip.compress(b" " * 100_000_000)
    assert len(bomb) < 100_000
    registry = HttpRegistry(shelf.url, RegistryOptions(max_bytes=200_000))
    shelf.says(200, [("content-encoding", "gzip")], bomb)
    await refused(registry, Trouble.TOO_LARGE, "is larger than 200000 bytes")
    # The same in many small members.
    shelf.says(200, [("content-encoding", "gzip")], gzip.compress(b" " * 1000) * 1000)
    await refused(registry, Trouble.TOO_LARGE, "is larger than 200000 bytes")
    await registry.aclose()


async def test_members_of_gzip_cost_their_bytes_and_no_more(shelf, registry, view, monkeypatch):
    left = 0

    class Counting:
        def __init__(self, **options):
            self.of = zlib.decompressobj(**options)

        def decompress(self, data, most):
            nonlocal left
            unpacked = self.of.decompress(data, most)
            left += len(self.of.unused_data)
            return unpacked

        def __getattr__(self, name):
            return getattr(self.of, name)

    monkeypatch.setattr(
        "mcp_trio.catalog.registries.http.zlib",
        SimpleNamespace(decompressobj=Counting, error=zlib.error, MAX_WBITS=zlib.MAX_WBITS),
    )
    shelf.put(view("a"))
    number = 5_000
    body = gzip.compress(b"") * number + gzip.compress(shelf.body)
    shelf.says(200, [("content-encoding", "gzip")], body)
    assert ids(await registry.read(None)) == ["a"]
    # What is unpacked twice, because it stood after the end of a member.
    assert left < number * 20_000


@pytest.mark.parametrize(
    ("headers", "body", "trouble", "says"),
    [
        ([("content-encoding", "gzip")], b"not gzip", Trouble.CORRUPT, "not compressed as it"),
        (
            [("content-encoding", "gzip")],
            gzip.compress(b"{}" * 1000)[:-9],
            Trouble.CORRUPT,
            "half of a compressed document",
        ),
        ([("content-encoding", "deflate")], zlib.compress(b"{}"), Trouble.UNREADABLE, "encoding"),
        ([("content-encoding", "br")], b"x", Trouble.UNREADABLE, "encoding"),
        ([], b"<html>Please log in</html>", Trouble.CORRUPT, "is not JSON"),
        ([], b"", Trouble.CORRUPT, "is not JSON"),
        ([], b'{"format": "mcp-operations/1", "operations": [{', Trouble.CORRUPT, "is not JSON"),
        ([], b"format: mcp-operations/1\n", Trouble.CORRUPT, "is not JSON"),
        ([], b'{"operations": []}', Trouble.SCHEMA, "misses 'format'"),
    ],
)
async def test_what_is_no_document_is_refused_and_the_last_good_one_stays(
    shelf, registry, headers, body, trouble, says
):
    shelf.put({"operation_id": "a"})
    base = await registry.read(None)
    served = shelf.handler
    shelf.says(200, [("etag", '"v1"'), *headers], body)
    await refused(registry, trouble, says)
    shelf.handler = served
    assert await registry.change_token() == base.token


async def test_an_answer_that_breaks_off_is_no_answer(shelf, registry):
    async def half(answer, asked):
        await answer(200, [], b'{"format": "mcp-operations/1", "operations": []}', length=5000)
        await answer.stream.aclose()

    shelf.handler = half
    await refused(registry, Trouble.UNREACHABLE, "does not speak HTTP, or broke off")

    async def other_protocol(answer, asked):
        await answer.stream.send_all(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
        await answer.stream.aclose()

    shelf.handler = other_protocol
    await refused(registry, Trouble.UNREACHABLE, "does not speak HTTP, or broke off")


async def test_nobody_there_is_unreachable():
    with trio.socket.socket() as taken:
        await taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/ops.json?token={CANARY}"
        registry = HttpRegistry(url)
        await refused(registry, Trouble.UNREACHABLE, "cannot be reached: ")
        await registry.aclose()


async def test_a_server_that_is_slow_costs_bounded_time(shelf, view):
    async def drip(answer, asked):
        data = answer.http.send(h11.Response(status_code=200, headers=[]))
        await answer.stream.send_all(data)
        for byte in b" " * 1000:
            await answer.stream.send_all(answer.http.send(h11.Data(data=bytes([byte]))))
            await trio.sleep(0.05)

    registry = HttpRegistry(shelf.url, RegistryOptions(total_timeout=0.2))
    for handler in (shelf.hang, drip):
        shelf.handler = handler
        with trio.fail_after(10):
            await refused(registry, Trouble.UNREACHABLE, "gave no whole answer within 0.2 seconds")
    shelf.put(view("a"))
    shelf.handler = shelf.serve_document
    assert ids(await registry.read(None)) == ["a"]
    await registry.aclose()


async def test_cancelling_closes_the_socket(shelf, registry):
    shelf.handler = shelf.hang
    async with trio.open_nursery() as nursery:
        nursery.start_soon(registry.change_token)
        with trio.fail_after(10):
            await shelf.asked.wait()
        nursery.cancel_scope.cancel()
    with trio.fail_after(10):
        await shelf.gone.wait()


@pytest.mark.parametrize(
    ("header", "name", "value"),
    [(None, "authorization", f"Bearer {CANARY}"), ("X-Api-Key", "x-api-key", CANARY)],
)
async def test_the_secret_is_sent_and_read_again_each_time(
    shelf, view, tmp_path, header, name, value
):
    (tmp_path / "token").write_text(f"{CANARY}\n")
    options = RegistryOptions(secret=FileSecret(tmp_path / "token"), header=header)
    registry = HttpRegistry(shelf.url, options)
    shelf.put(view("a"))
    await registry.read(None)
    assert shelf.seen[-1][name] == value
    (tmp_path / "token").write_text("rotated")
    await registry.change_token()
    assert shelf.seen[-1][name] == value.replace(CANARY, "rotated")
    # A second line is no secret: what was there before stays.
    (tmp_path / "token").write_text(f"{CANARY}\nx: y")
    await registry.change_token()
    assert shelf.seen[-1][name] == value.replace(CANARY, "rotated")
    assert CANARY not in repr(options)
    await registry.aclose()


@pytest.mark.parametrize("lose", [Path.unlink, lambda path: path.write_text(" \n")])
async def test_a_secret_whose_file_is_gone_or_empty_stays_and_the_log_says_so_once(
    shelf, view, tmp_path, caplog, lose
):
    path = tmp_path / "token"
    path.write_text(CANARY)
    registry = HttpRegistry(shelf.url, RegistryOptions(secret=FileSecret(path)))
    shelf.put(view("a"))
    await registry.read(None)
    lose(path)
    for _ in range(3):
        await registry.change_token()
        assert shelf.seen[-1]["authorization"] == f"Bearer {CANARY}"
    [told] = [each.getMessage() for each in caplog.records if each.name == "mcp_trio.secrets"]
    assert "the last secret stays" in told
    assert CANARY not in told
    path.write_text("rotated")
    await registry.change_token()
    assert shelf.seen[-1]["authorization"] == "Bearer rotated"
    await registry.aclose()


async def test_what_a_server_says_does_not_reach_an_error(shelf):
    async def echo(answer, asked):
        await answer(500, [("x-echo", asked["authorization"])], asked["authorization"].encode())

    shelf.handler = echo
    url = f"{shelf.url}?sig={CANARY}"
    registry = HttpRegistry(url, RegistryOptions(secret=Secret(CANARY)))
    await refused(registry, Trouble.UNREACHABLE, "/ops.json cannot answer now")
    assert shelf.seen[-1][":target"] == f"/ops.json?sig={CANARY}"
    await registry.aclose()


async def test_a_name_that_leads_inside_is_refused_unless_allowed(shelf, view):
    shelf.put(view("a"))
    port = shelf.url.rpartition(":")[2]
    url = f"http://registry.example:{port}"

    async def inside(host, port):
        await trio.lowlevel.checkpoint()
        return ["127.0.0.1"]

    guarded = HttpRegistry(url, RegistryOptions(allow_http=True), resolver=inside)
    await refused(guarded, Trouble.UNREACHABLE, "refuses a private or loopback address")
    assert shelf.accepted == 0
    allowed = RegistryOptions(allow_http=True, allow_private=True)
    registry = HttpRegistry(url, allowed, resolver=inside)
    assert ids(await registry.read(None)) == ["a"]

    async def metadata(host, port):
        await trio.lowlevel.checkpoint()
        return ["169.254.169.254"]

    await refused(
        HttpRegistry(url, allowed, resolver=metadata), Trouble.UNREACHABLE, "link-local address"
    )
    for each in (guarded, registry):
        await each.aclose()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (f"http://registry.example/ops.json?x={CANARY}", "without TLS anybody"),
        (f"https://me:{CANARY}@registry.example/ops.json", "no user information"),
        ("https://registry.example/ops.json#part", "no fragment"),
        ("https:///ops.json", "is no http or https address"),
        ("ftp://registry.example/ops.json", "is no http or https address"),
    ],
)
def test_addresses_that_cannot_be_are_refused_at_once(url, says):
    with pytest.raises(ConfigurationError, match=says) as caught:
        HttpRegistry(url)
    assert CANARY not in str(caught.value)


def test_a_file_of_authorities_has_to_be_one(tmp_path):
    (tmp_path / "ca.pem").write_text("none")
    for name in ("ca.pem", "missing.pem"):
        options = RegistryOptions(ca_file=str(tmp_path / name))
        with pytest.raises(ConfigurationError, match="cannot use its ca_file"):
            HttpRegistry("https://registry.example/ops.json", options)


async def test_over_tls_the_certificate_counts(tmp_path, view):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    async with shelf_at_work(context) as shelf:
        shelf.put(view("a"))
        stranger = HttpRegistry(shelf.url)
        await refused(stranger, Trouble.UNREACHABLE, "TLS certificate or handshake")
        trusted = RegistryOptions(ca_file=str(tmp_path / "ca.pem"))
        registry = HttpRegistry(shelf.url, trusted)
        assert ids(await registry.read(None)) == ["a"]
        # Another name than the certificate's.
        other = HttpRegistry(shelf.url.replace("localhost", "127.0.0.1"), trusted)
        await refused(other, Trouble.UNREACHABLE, "TLS certificate or handshake")
        for each in (stranger, registry, other):
            await each.aclose()


@pytest.mark.parametrize("afresh", [True, False])
async def test_a_look_can_be_cancelled_at_any_step_and_nothing_is_lost(shelf, view, afresh):
    registry = HttpRegistry(shelf.url)
    shelf.put(view("a"), view("b"))
    taken, token = {}, None

    async def take():
        nonlocal token
        reading = await registry.read(token)
        token = reading.token
        for operation_id in reading.removed:
            del taken[operation_id]
        taken.update({entry.operation_id: entry.view for entry in reading.entries})

    async def look():
        if afresh:
            await registry.aclose()
        await registry.change_token()
        await take()

    await take()
    step = 1
    while await cancelled_after(step, look):
        # One comes, one goes, one changes.
        shelf.views.pop(f"new{step - 1}", None)
        shelf.put(view(f"new{step}"), view("a", tool_description=f"v{step}"))
        with trio.fail_after(5):
            await take()
        assert taken == shelf.views
        assert len(registry._client._transport._pool.connections) <= 1
        step += 1
    await registry.aclose()
    assert step > 10
