"""Traces and metrics at a collector: what arrives, and that one that is gone ends nothing."""

import gzip
import logging
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import trio
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from mcp_trio.cli.exporting import exporting
from mcp_trio.config import parse_settings
from mcp_trio.telemetry import otlp
from mcp_trio.wire.revisions import R2025_11_25
from tests.scenarios.worlds import world
from tests.test_events import make_server

KINDS = {"/v1/traces": ExportTraceServiceRequest, "/v1/metrics": ExportMetricsServiceRequest}


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        message = KINDS[self.path]()
        message.ParseFromString(body)
        self.server.got.append(message)
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def collector():
    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        server.got = []
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def settings(endpoint):
    return parse_settings(
        {
            "server": {"name": "ours", "version": "7"},
            "catalog": {"registry": "r.sqlite"},
            "telemetry": {"endpoint": endpoint},
        }
    )


async def test_spans_and_metrics_arrive_before_the_service_ends(collector):
    server, _ = make_server()
    asked = settings(f"http://127.0.0.1:{collector.server_port}/")
    async with exporting(asked, [server]):
        async with world(server, "memory", R2025_11_25) as client:
            await client.call_tool("good")
            await client.call_tool("bad")
    kinds = {type(message): message for message in collector.got}
    (spans,) = kinds[ExportTraceServiceRequest].resource_spans
    assert "tools/call good" in [span.name for span in spans.scope_spans[0].spans]
    who = {each.key: each.value.string_value for each in spans.resource.attributes}
    assert (who["service.name"], who["service.version"]) == ("ours", "7")
    (found,) = kinds[ExportMetricsServiceRequest].resource_metrics
    metrics = {metric.name: metric for metric in found.scope_metrics[0].metrics}
    assert metrics["mcp.server.session.duration"].histogram.data_points[0].count == 1
    (failed,) = metrics["mcp_tool_error_total"].sum.data_points
    told = {each.key: each.value.string_value for each in failed.attributes}
    assert told == {"stage": "handler", "kind": ""}


async def test_a_collector_that_is_not_there_holds_up_nobody_for_long(monkeypatch):
    monkeypatch.setattr(otlp, "FLUSH_TIMEOUT", 0.2)
    server, _ = make_server()
    with trio.fail_after(10):
        async with exporting(settings("http://127.0.0.1:9"), [server]):
            async with world(server, "memory", R2025_11_25) as client:
                assert (await client.call_tool("good")).content[0].text == "ok"
    assert not server.events.active
    assert server.layers == ()


async def test_a_collector_that_is_gone_is_told_of_once_in_a_while(monkeypatch, caplog):
    monkeypatch.setattr(otlp, "FLUSH_TIMEOUT", 0.1)
    clock = [100.0]
    monkeypatch.setattr(otlp, "monotonic", lambda: clock[0])
    server, _ = make_server()
    async with exporting(settings("http://127.0.0.1:9"), [server]):
        told = logging.getLogger(otlp.OTLPMetricExporter.__module__)
        caplog.clear()
        for number in range(1000):
            told.warning("the try %d of it", number)
        clock[0] += otlp.SILENCE
        told.warning("the next")
        of_spans = logging.getLogger(otlp.OTLPSpanExporter.__module__)
        of_spans.warning("of spans")
    assert [each.getMessage() for each in caplog.records] == [
        "the try 0 of it",
        "the next (999 lines before it are left out)",
        "of spans",
    ]
    told.warning("nobody keeps it back any more")
    assert len(caplog.records) == 4


async def test_without_the_table_nothing_listens():
    server, _ = make_server()
    bare = parse_settings({"catalog": {"registry": "r.sqlite"}})
    async with exporting(bare, [server]):
        assert not server.events.active
