"""Metrics for Prometheus: what is counted and read, and that labels stay few."""

import re
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
import trio
import trustme
from prometheus_client.parser import text_string_to_metric_families

from mcp_trio import HTTPOptions, TLSOptions
from mcp_trio.catalog.actor import CatalogActor
from mcp_trio.catalog.toolsets import Choice, Fan
from mcp_trio.errors import MCPError, UnauthorizedError
from mcp_trio.events import RequestCompleted, ToolCompleted
from mcp_trio.runtime.compiler import Compiler
from mcp_trio.runtime.connections import Connections
from mcp_trio.runtime.stages import ERROR_KEY
from mcp_trio.server.server import MCPServer
from mcp_trio.telemetry.gauges import catalog_gauges, log_gauges, server_gauges
from mcp_trio.telemetry.labels import MAX_KINDS
from mcp_trio.telemetry.line_writer import LineWriter
from mcp_trio.telemetry.prometheus import MAX_TOOLS, MEDIA, Prometheus
from mcp_trio.wire import Tool
from mcp_trio.wire.revisions import R2025_11_25, R2026_07_28
from tests.catalog.conftest import MemoryRegistry
from tests.programs import ROOT
from tests.scenarios.worlds import world
from tests.server.test_server import Provider
from tests.test_events import end_in_every_way, make_server

both_eras = pytest.mark.parametrize("revision", [R2025_11_25, R2026_07_28], ids=str)


def values(numbers, prefix="mcp_"):
    """Every sample by its name and labels."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(numbers.show().decode())
        for sample in family.samples
        if sample.name.startswith(prefix) and not sample.name.endswith("_created")
    }


def tool_ended(**given):
    facts = {"tool": "t", "id": 1, "duration_ms": 5.0, "outcome": "success", "subject": None}
    return ToolCompleted(side="server", **{**facts, **given})


@both_eras
async def test_requests_calls_failures_and_notices_are_counted(revision, autojump_clock):
    server, began = make_server()
    numbers = Prometheus()
    async with world(server, "memory", revision) as client:
        with server.events.attach(numbers):
            await end_in_every_way(client, began)
    found = values(numbers)
    call = ("inbound", "tools/call")
    assert found["mcp_request_total", *call, "success"] == 2
    assert found["mcp_request_total", *call, "error"] == 1
    assert found["mcp_request_total", *call, "cancelled"] == 1
    assert found["mcp_request_total", "inbound", "other", "error"] == 1
    assert found["mcp_request_duration_seconds_count", *call] == 4
    assert found["mcp_request_cancel_seconds_count",] == 1
    assert found["mcp_notification_total", "outbound", "notifications/progress"] == 2
    assert found["mcp_tool_call_total", "success", "steps"] == 2
    assert found["mcp_tool_call_total", "cancelled", "hold"] == 1
    assert found["mcp_tool_error_total", "", "handler"] == 1
    assert found["mcp_tool_call_seconds_count", "steps"] == 2


def test_durations_are_in_seconds():
    numbers = Prometheus()
    numbers(
        RequestCompleted(
            side="server",
            method="ping",
            id=1,
            duration_ms=250.0,
            outcome="success",
            direction="inbound",
            cancel_ms=40.0,
        )
    )
    found = values(numbers)
    assert found["mcp_request_duration_seconds_sum", "inbound", "ping"] == 0.25
    assert found["mcp_request_cancel_seconds_sum",] == 0.04
    assert found["mcp_request_duration_seconds_bucket", "inbound", "0.2", "ping"] == 0
    assert found["mcp_request_duration_seconds_bucket", "inbound", "0.5", "ping"] == 1


def test_texts_of_clients_tools_and_upstreams_make_few_labels():
    numbers = Prometheus()
    for number in range(500):
        told = {"stage": f"stage {number}", "sub": f"sub {number}"}
        numbers(tool_ended(tool=f"tool{number}", outcome="error", meta={ERROR_KEY: told}))
        numbers(tool_ended(tool=f"asked{number}", outcome="error", code="MCP.NOT_FOUND"))
        numbers(tool_ended(tool="odd", meta={ERROR_KEY: "no object"}, outcome="error"))
    found = values(numbers)
    tools = {key[2] for key in found if key[0] == "mcp_tool_call_total"}
    assert len(tools) == MAX_TOOLS + 1
    assert not any(tool.startswith("asked") for tool in tools)
    assert found["mcp_tool_call_total", "error", "other"] >= 500
    errors = [key for key in found if key[0] == "mcp_tool_error_total"]
    assert len(errors) <= MAX_KINDS + 3
    assert sum(found[key] for key in errors) == 1500


class RefusedError(Exception):
    """What is raised by somebody who has a `code` of his own, as HTTP clients have."""

    code = 404


class Raising:
    definition = Tool(name="raising", input_schema={"type": "object"})
    authorize = None

    async def call(self, context, arguments):
        raise RefusedError


async def test_a_call_that_fails_counts_whatever_a_provider_raises(caplog):
    server, numbers = MCPServer("s"), Prometheus()
    server.add_provider(Provider(Raising()))
    with server.events.attach(numbers):
        async with world(server, "memory", R2026_07_28) as client:
            with pytest.raises(MCPError):
                await client.call_tool("raising")
    found = values(numbers)
    assert found["mcp_tool_call_total", "error", "raising"] == 1
    assert found["mcp_tool_error_total", "MCP.HANDLER_FAILED", "handler"] == 1
    assert "a listener failed" not in caplog.text


async def test_what_there_is_now_is_read_when_somebody_asks(autojump_clock):
    server, began = make_server()
    numbers = Prometheus(partial(server_gauges, server))
    assert values(numbers)["mcp_connections",] == 0
    async with world(server, "websocket", R2025_11_25) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "hold")
            await began.wait()
            found = values(numbers)
            assert found["mcp_connections",] == found["mcp_connections_accepted_total",] == 1
            assert (found["mcp_sessions", "line"], found["mcp_sessions", "http"]) == (1, 0)
            assert found["mcp_requests_in_flight",] == 1
            assert found["mcp_tasks",] > 3
            assert found["mcp_draining",] == 0
            nursery.cancel_scope.cancel()
    assert found["mcp_server_info", server.info.name, "0"] == 1
    server.drain()
    assert values(numbers)["mcp_draining",] == 1


async def test_the_end_of_a_certificate_is_told_where_there_is_one(tmp_path):
    end = datetime.now(UTC).replace(microsecond=0) + timedelta(days=30)
    cert = trustme.CA().issue_cert("localhost", not_after=end)
    cert.cert_chain_pems[0].write_to_path(tmp_path / "c.pem")
    cert.private_key_pem.write_to_path(tmp_path / "c.key")
    tls = TLSOptions(cert_file=tmp_path / "c.pem", key_file=tmp_path / "c.key")
    for options, told in ((None, None), (tls, end.timestamp())):
        server = MCPServer("s")
        numbers = Prometheus(partial(server_gauges, server))
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(server.serve_http, "127.0.0.1", 0, tls=options))
            found = values(numbers).get(("mcp_certificate_expires_timestamp_seconds",))
            server.drain()
        assert found == told


async def test_what_is_refused_is_counted_by_its_reason():
    server = MCPServer("refusing")
    numbers = Prometheus(partial(server_gauges, server))

    async def status(**fields):
        fields = {"Host": "127.0.0.1", "Connection": "close", "Content-Length": "0", **fields}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        async with stream:
            await stream.send_all(f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode())
            return int((await stream.receive_some()).split()[1])

    def stranger(head):
        raise UnauthorizedError("who?")

    async with trio.open_nursery() as nursery:
        options = HTTPOptions(identify=stranger)
        serve = partial(server.serve_http, "127.0.0.1", 0, options=options)
        (url,) = await nursery.start(serve)
        port = int(url.split(":")[2].split("/")[0])
        assert await status() == 401
        assert await status(Host="rebound.example") == 403
        assert await status(Origin="https://evil.example") == 403
        found = values(numbers)
        nursery.cancel_scope.cancel()
    assert found["mcp_refused_total", "identity"] == 1
    assert found["mcp_refused_total", "source"] == 2
    assert found["mcp_refused_total", "connections"] == found["mcp_refused_total", "address"] == 0


async def test_the_catalog_is_told_and_its_look_counted_once_whatever_the_number_of_toolsets(
    autojump_clock,
):
    registry = MemoryRegistry()
    actor = CatalogActor(registry, Compiler(Connections([])), interval=30.0)
    fan = Fan(actor)
    numbers = Prometheus(partial(catalog_gauges, actor))
    servers = [MCPServer("one"), MCPServer("two")]
    for server in servers:
        server.add_provider(fan.part(Choice(names=("*",))))
    with servers[0].events.attach(numbers), servers[1].events.attach(numbers):
        assert values(numbers)["mcp_catalog_state", "stopped"] == 1
        assert ("mcp_catalog_age_seconds",) not in values(numbers)
        async with trio.open_nursery() as nursery:
            await nursery.start(actor.run)
            await actor.ready.wait()
            await trio.sleep(10)
            found = values(numbers)
            nursery.cancel_scope.cancel()
    assert found["mcp_catalog_state", "fresh"] == found["mcp_catalog_ready",] == 1
    assert found["mcp_catalog_age_seconds",] == pytest.approx(10, abs=1)
    assert found["mcp_catalog_operations", "served"] == 0
    assert sum(found[key] for key in found if key[0] == "mcp_catalog_look_total") == 1


async def test_lines_of_logs_that_are_lost_are_counted():
    writer = LineWriter(Path("/dev/full"), "the audit log", report=lambda text: None)
    numbers = Prometheus(partial(log_gauges, [writer]))
    assert values(numbers)["mcp_log_dropped_total", "audit log"] == 0
    writer.put(b"line\n")
    assert values(numbers)["mcp_log_dropped_total", "audit log"] == 1
    assert values(numbers)["mcp_log_failing", "audit log"] == 0
    writer.close()


async def test_the_page_for_operators_lists_every_metric_there_is():
    server, actor = MCPServer("listed"), CatalogActor(MemoryRegistry(), Compiler(Connections([])))
    reads = (
        partial(server_gauges, server),
        partial(catalog_gauges, actor),
        partial(log_gauges, []),
    )
    numbers = Prometheus(*reads)
    found = set(re.findall(r"^# TYPE (mcp_\w+)", numbers.show().decode(), re.MULTILINE))
    page = (ROOT / "docs" / "operating.md").read_text()
    listed = set(re.findall(r"^\| `(mcp_\w+)` \|", page, re.MULTILINE))
    assert listed - {"mcp_catalog_age_seconds", "mcp_certificate_expires_timestamp_seconds"} == {
        name for name in found if not name.endswith("_created")
    }


def test_it_is_text_that_prometheus_reads_with_the_process_beside_it():
    numbers = Prometheus()
    assert MEDIA.startswith(b"text/plain; version=0.0.4")
    assert ("process_resident_memory_bytes",) in values(numbers, "process_")
