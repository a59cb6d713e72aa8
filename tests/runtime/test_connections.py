"""Connections over TLS, their life, and the way from a registry to an upstream."""

from __future__ import annotations

import functools
import ssl
from contextlib import asynccontextmanager

import pytest
import trio
import trustme

from mcp_trio.catalog.actor import CatalogActor
from mcp_trio.catalog.registries.schema import create_registry, open_for_writing, publish
from mcp_trio.catalog.registries.sqlite import SqliteRegistry
from mcp_trio.config import parse_settings
from mcp_trio.errors import ConfigurationError
from mcp_trio.runtime.compiler import Compiler
from mcp_trio.runtime.connections import Connections, Timeouts
from mcp_trio.runtime.http_connection import Auth, HttpConnection, http_client
from mcp_trio.secrets import Secret


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
async def tls_upstream(upstream, authority, nursery):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)

    async def serve(stream):
        secured = trio.SSLStream(stream, context, server_side=True, https_compatible=True)
        try:
            await upstream.serve(secured)
        except (trio.BrokenResourceError, ssl.SSLError):
            upstream.hung_up.set()

    listeners = await nursery.start(functools.partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
    upstream.url = f"https://localhost:{listeners[0].socket.getsockname()[1]}"
    return upstream


async def test_a_trusted_certificate_is_accepted(tls_upstream, authority, make_bench, tmp_path):
    bundle = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(bundle)
    bench = make_bench(tls_upstream.url, verify_tls=str(bundle))
    async with bench.connections:
        assert (await bench.call()).is_error is None
        assert tls_upstream.last.header("host").startswith("localhost:")
    bench = make_bench(tls_upstream.url, verify_tls=False)
    async with bench.connections:
        assert (await bench.call()).is_error is None


async def test_an_unknown_certificate_is_refused_and_not_retried(tls_upstream, make_bench, failure):
    bench = make_bench(tls_upstream.url)
    async with bench.connections:
        result = await bench.call(execution_config={"retry": {"max_attempts": 3}})
    text, told = failure(result)
    assert text == (
        "[adapter_execution] the upstream's TLS certificate or handshake is not acceptable. "
        "Report the operation to its operator."
    )
    assert (told["sub"], told["retryable"]) == ("tls", False)
    assert tls_upstream.accepted == 1


async def test_cancelling_closes_a_tls_socket_too(tls_upstream, make_bench):
    tls_upstream.handler = tls_upstream.hang
    bench = make_bench(tls_upstream.url, verify_tls=False)
    async with bench.connections:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bench.call)
            await tls_upstream.asked.wait()
            nursery.cancel_scope.cancel()
        with trio.fail_after(5):
            await tls_upstream.hung_up.wait()


async def test_a_handshake_that_hangs_meets_the_connect_deadline(make_bench, failure, nursery):
    gone = trio.Event()

    async def silent(stream):
        while await stream.receive_some(4096):
            pass
        gone.set()

    listeners = await nursery.start(functools.partial(trio.serve_tcp, silent, 0, host="127.0.0.1"))
    bench = make_bench(f"https://127.0.0.1:{listeners[0].socket.getsockname()[1]}")
    async with bench.connections:
        # The first use reads the authorities from disk; that is not what is timed here.
        http_client(bench.connections, bench.connection)
        config = {"timeout_ms": {"connect": 100}}
        _, told = failure(await bench.call(execution_config=config))
        assert (told["sub"], told["code"]) == ("timeout", "connect")
        with trio.fail_after(5):
            await gone.wait()


async def test_leaving_the_connections_cuts_what_is_running(upstream, make_bench):
    upstream.handler = upstream.hang
    bench = make_bench(upstream.url)
    results: list[object] = []

    async def one():
        results.append(await bench.call())

    async with trio.open_nursery() as nursery:
        async with bench.connections:
            nursery.start_soon(one)
            await upstream.asked.wait()
        with trio.fail_after(5):
            await upstream.hung_up.wait()
    assert results[0].is_error


async def test_connections_can_be_opened_again(upstream, make_bench):
    bench = make_bench(upstream.url)
    for _ in range(2):
        async with bench.connections:
            assert (await bench.call()).is_error is None


class Host:
    def owns(self, _name):
        return False

    def changed(self):
        pass

    def emit(self, event):
        pass


CANARY = "canary-5d1c"


@pytest.fixture
def serving(upstream, tmp_path):
    """A registry, connections, compiler and actor, put together as a server would."""

    @asynccontextmanager
    async def serve(*views):
        path = tmp_path / "registry.db"
        create_registry(path)
        publish(path, *views)
        connection = HttpConnection(
            name="crm", base_url=upstream.url, auth=Auth(kind="bearer", secret=Secret(CANARY))
        )
        async with Connections([connection]) as connections, trio.open_nursery() as nursery:
            actor = CatalogActor(SqliteRegistry(path), Compiler(connections))
            actor.bind(Host())
            await nursery.start(actor.run)
            with trio.fail_after(10):
                await actor.ready.wait()
            yield actor, path
            nursery.cancel_scope.cancel()

    return serve


async def test_a_call_in_flight_keeps_its_version_across_a_swap(
    serving, upstream, view, context_of
):
    release = trio.Event()

    async def slow(line, seen):
        if "/v1/" in seen.target:
            await release.wait()
        await line.answer(b'{"path": "%s"}' % seen.target.encode())

    upstream.handler = slow
    results: list[object] = []

    def version(number):
        target = {"connection": "crm", "method": "GET", "path": f"/v{number}/{{id}}"}
        return view(target=target, output_mapping={"result": {f"v{number}": "=body.path"}})

    async with serving(version(1)) as (actor, path):

        async def call():
            entry = actor.tools.entries["crm_get_lead"]
            results.append((await entry.call(context_of(), {"id": "x"})).structured_content)

        async with trio.open_nursery() as callers:
            callers.start_soon(call)
            await upstream.asked.wait()
            publish(path, version(2))
            assert (await actor.refresh()).swaps == 2
            await call()
            release.set()
    assert results == [{"v2": "/v2/x"}, {"v1": "/v1/x"}]


async def test_a_withdrawn_operation_finishes_its_calls(serving, upstream, view, context_of):
    async with serving(view(), view(operation_id="other", name="other")) as (actor, path):
        entry = actor.tools.entries["crm_get_lead"]
        connection = open_for_writing(path)
        connection.execute("UPDATE operations SET status = 'withdrawn' WHERE name <> 'other'")
        connection.close()
        await actor.refresh()
        await actor.refresh()
        assert list(actor.tools.entries) == ["other"]
        assert (await entry.call(context_of(), {"id": "1"})).is_error is None


async def test_no_secret_and_no_draft_reaches_a_snapshot(serving, view, caplog):
    caplog.set_level(10)
    async with serving(
        view(),
        view(
            operation_id="b", name="b", protocol="pigeon", target={"connection": "crm", "tool": "t"}
        ),
    ) as (actor, path):
        connection = open_for_writing(path)
        connection.execute("UPDATE operations SET sample_payload = 'DRAFTY', ui = 'DRAFTY'")
        connection.close()
        status = await actor.refresh()
        [record] = status.quarantine
        assert record.reason == "protocol: pigeon is not available in this installation"
        shown = repr((actor.snapshot, status, actor.tools)) + caplog.text
    assert CANARY not in shown
    assert "DRAFTY" not in shown


BAD = [-1.0, 0.0, float("nan"), float("inf"), float("-inf")]


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("which", ["connect", "first_byte", "total"])
def test_a_deadline_that_is_none_is_refused(which, value):
    with pytest.raises(ConfigurationError, match=which):
        Timeouts(**{which: value})


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        *(("http", f"{key}_timeout") for key in ("connect", "first_byte", "total")),
        *(("http", key) for key in ("response_bytes", "concurrency", "max_connections")),
        ("sql", "max_connections"),
        ("mcp", "max_sessions"),
        ("mcp", "idle_timeout"),
    ],
)
def test_a_setting_that_lets_no_call_through_is_refused(kind, key):
    where = {"http": "base_url", "sql": "address", "mcp": "url"}[kind]
    section = {"kind": kind, where: "https://x.example", key: 0}
    with pytest.raises(ConfigurationError, match=rf"{key}.*greater than 0|greater than 0.*{key}"):
        parse_settings({"catalog": {"registry": "r"}, "connections": {"a": section}})
