"""The three instruments, on both sides: labels, statuses, and methods that do not exist."""

import pytest
import trio
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import mcp_trio
from mcp_trio.telemetry.instrument import instrument
from mcp_trio.wire.revisions import R2025_11_25, R2026_07_28
from tests.scenarios.worlds import world
from tests.test_events import end_in_every_way, make_server

both_eras = pytest.mark.parametrize("revision", [R2025_11_25, R2026_07_28], ids=str)


class Meter:
    """A meter provider, and what it has measured."""

    def __init__(self):
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider(metric_readers=[self.reader])

    def points(self, name):
        """The points of one instrument by their labels, as (method, status or direction)."""
        data = self.reader.get_metrics_data()
        return {
            tuple(sorted(point.attributes.items())): point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if (scope.scope.name, metric.name) == ("mcp_trio", name)
            for point in metric.data.data_points
        }


def labels(**given):
    return tuple(sorted(given.items()))


@both_eras
async def test_requests_and_notifications_are_counted_on_both_sides(revision):
    server, began = make_server()
    on_server, on_client = Meter(), Meter()
    async with world(server, "memory", revision) as client:
        with (
            instrument(server, meter_provider=on_server.provider),
            instrument(client, meter_provider=on_client.provider),
        ):
            await end_in_every_way(client, began)
    for meter, direction in ((on_server, "inbound"), (on_client, "outbound")):
        counted = {key: p.value for key, p in meter.points("mcp_request_total").items()}
        call = {"direction": direction, "method": "tools/call"}
        assert counted == {
            labels(**call, status="success"): 2,
            labels(**call, status="error"): 1,
            labels(**call, status="cancelled"): 1,
            labels(direction=direction, method="other", status="error"): 1,
        }
        durations = meter.points("mcp_request_duration_ms")
        assert {key: p.count for key, p in durations.items()} == {
            labels(**call): 4,
            labels(direction=direction, method="other"): 1,
        }
        assert all(point.sum >= 0 for point in durations.values())
    progress = "notifications/progress"
    told = on_server.points("mcp_notification_total")
    heard = on_client.points("mcp_notification_total")
    assert told[labels(direction="outbound", method=progress)].value == 2
    assert heard[labels(direction="inbound", method=progress)].value == 2
    seconds = on_server.points("mcp.server.operation.duration")
    assert seconds[(("mcp.method.name", "tools/call"),)].count == 2


async def test_texts_of_a_peer_never_become_labels():
    server, _ = make_server()
    meter = Meter()
    async with world(server, "memory", R2026_07_28) as client:
        with instrument(server, meter_provider=meter.provider):
            for number in range(50):
                with pytest.raises(Exception, match="not found"):
                    await client.call(f"made/up/{number}")
                await client.session.notify(f"notifications/made/up/{number}")
            await trio.testing.wait_all_tasks_blocked()
    assert len(meter.points("mcp_request_total")) == 1
    assert list(meter.points("mcp_notification_total")) == [
        labels(direction="inbound", method="other")
    ]


async def test_measuring_ends_with_its_block():
    server, _ = make_server()
    meter = Meter()
    with instrument(server, meter_provider=meter.provider):
        assert server.events.active
    assert not server.events.active
    assert server.layers == ()


async def test_without_an_sdk_it_does_nothing_and_costs_no_request():
    server, _ = make_server()
    with instrument(server):
        async with world(server, "memory", R2026_07_28) as client:
            assert (await client.call_tool("good")).content[0].text == "ok"


async def test_refusals_are_counted_by_limit():
    server = mcp_trio.MCPServer(
        "s", options=mcp_trio.ServerOptions(load=mcp_trio.LoadLimits(max_in_flight=1))
    )
    began = trio.Event()

    @server.tool
    async def hold() -> None:
        began.set()
        await trio.sleep_forever()

    meter = Meter()
    async with world(server, "memory", R2026_07_28) as client:
        with instrument(server, meter_provider=meter.provider):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.call_tool, "hold")
                await began.wait()
                for method in ("tools/list", "made/up"):
                    with pytest.raises(mcp_trio.RemoteError, match="Too many requests"):
                        await client.call(method)
                nursery.cancel_scope.cancel()
    counted = meter.points("mcp_request_refused_total")
    assert {key: point.value for key, point in counted.items()} == {
        labels(method="tools/list", limit="requests"): 1,
        labels(method="other", limit="requests"): 1,
    }
