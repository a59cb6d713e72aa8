"""How a service goes down and reads anew: what a load balancer, a client and an operator see."""

import signal

import trio

from mcp_trio import MCPClient, MCPServer
from mcp_trio.catalog.registries.schema import create_registry, publish
from mcp_trio.cli.lifecycle import Lifecycle
from tests.cli.test_serve import HELLO, PATIENCE, Service


async def test_it_is_not_ready_at_once_and_drains_after_the_delay(autojump_clock):
    server = MCPServer("leaving")
    life = Lifecycle(server, drain_delay=5)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(life.run)
        await trio.sleep(100)
        assert not life.leaving
        life.leave()
        life.leave()
        assert life.leaving
        await trio.sleep(4.9)
        assert not server.notices.draining
        await trio.sleep(0.2)
        assert server.notices.draining


async def test_without_a_delay_it_drains_at_once(autojump_clock):
    server = MCPServer("leaving")
    life = Lifecycle(server)
    life.leave()  # before it runs
    began = trio.current_time()
    await life.run()
    assert server.notices.draining
    assert trio.current_time() == began


async def test_a_server_that_is_drained_otherwise_is_not_ready_either():
    server = MCPServer("leaving")
    life = Lifecycle(server)
    server.drain()
    assert life.leaving


async def test_a_reload_reads_certificates_and_all_else_each_time(monkeypatch):
    server, done = MCPServer("reloading"), []
    monkeypatch.setattr(server, "reload_certificates", lambda: done.append("certificates"))
    life = Lifecycle(server)
    life.on_reload(lambda: done.append("logs"))
    life.on_reload(lambda: done.append("catalog"))
    life.reload()
    life.reload()
    assert done == ["certificates", "logs", "catalog"] * 2
    assert not life.leaving


def service(tmp_path, delay):
    (tmp_path / "config.toml").write_text(
        f"""
        [server]
        port = 0
        drain_delay = {delay}
        [catalog]
        registry = "registry.sqlite"
        interval = 600.0
        [logging]
        level = "debug"
        """
    )
    return Service(tmp_path / "config.toml")


async def test_a_balancer_looks_away_before_a_service_takes_nothing_more(tmp_path):
    running = service(tmp_path, 1.0)
    try:
        running.process.send_signal(signal.SIGTERM)
        await trio.to_thread.run_sync(running.until_log, "not ready any more")
        assert await trio.to_thread.run_sync(running.get, "/readyz") == 503
        assert await trio.to_thread.run_sync(running.get, "/healthz") == 200
        async with MCPClient(running.url) as client:
            assert [tool async for tool in client.tools()] == []
        assert await trio.to_thread.run_sync(running.process.wait, PATIENCE) == 0
    finally:
        running.close()


def test_a_second_signal_ends_the_delay_at_once(tmp_path):
    running = service(tmp_path, 300.0)
    try:
        running.process.send_signal(signal.SIGTERM)
        running.until_log("not ready any more")
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(timeout=PATIENCE) == 0
    finally:
        running.close()


def test_a_hangup_ends_nothing_and_has_the_registry_looked_at(tmp_path):
    registry = tmp_path / "registry.sqlite"
    create_registry(registry)
    publish(registry, HELLO)
    running = service(tmp_path, 0.0)
    try:
        running.until_log("1 operations")
        publish(registry, {**HELLO, "operation_id": "second", "name": "second"})
        running.process.send_signal(signal.SIGHUP)
        running.until_log("2 operations")  # the next look by itself is in ten minutes
        assert running.get("/readyz") == 200
        assert running.stop() == 0
    finally:
        running.close()
