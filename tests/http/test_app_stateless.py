"""The stateless era over HTTP: one POST is one scope."""

import pytest
import trio
import trio.testing

from mcp_trio import Context, HTTPOptions
from mcp_trio.session.limits import LoadLimits
from tests.http.asgi import serving
from tests.http.tools import make_server

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


async def test_a_plain_call_is_answered_in_json_with_who_answered():
    server, _ = make_server()
    async with serving(server) as client:
        response = await client.stateless(
            "tools/call", {"name": "add", "arguments": {"a": 2, "b": 3}}, id_="x"
        )
        assert response.status == 200
        assert response.headers["content-type"] == "application/json"
        assert response.json() == {
            "jsonrpc": "2.0",
            "id": "x",
            "result": {
                "resultType": "complete",
                "content": [{"type": "text", "text": "5"}],
                "structuredContent": {"result": 5},
                "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "test", "version": "1"}},
            },
        }


async def test_discover_says_what_is_offered_and_may_be_cached():
    server, _ = make_server()
    async with serving(server) as client:
        result = (await client.stateless("server/discover")).json()["result"]
        assert result["supportedVersions"][0] == "2026-07-28"
        assert result["capabilities"]["tools"] == {"listChanged": True}
        assert "serverInfo" not in result
        assert result["ttlMs"] >= 0
        assert result["cacheScope"] in {"public", "private"}


async def test_a_listing_is_paged_and_survives_a_change_half_way():
    server, _ = make_server(page_size=2)
    async with serving(server) as client:
        first = (await client.stateless("tools/list")).json()["result"]
        server.remove_tool("add")
        names = [tool["name"] for tool in first["tools"]]
        cursor = first["nextCursor"]
        while cursor is not None:
            page = (await client.stateless("tools/list", {"cursor": cursor})).json()["result"]
            names += [tool["name"] for tool in page["tools"]]
            cursor = page.get("nextCursor")
        assert names == ["add", "wait", "report", "fail", "needs_sampling", "echo"]
        for wrong in ("", "x", "Zm9vYmFyYmF6cXV4Zm9v", first["nextCursor"][:-2] + "AA"):
            response = await client.stateless("tools/list", {"cursor": wrong})
            assert response.json()["error"]["code"] == -32602


async def test_a_cursor_of_a_list_long_gone_is_refused():
    server, _ = make_server(page_size=2)
    async with serving(server) as client:
        cursor = (await client.stateless("tools/list")).json()["result"]["nextCursor"]
        for name in ("add", "wait", "report"):
            server.remove_tool(name)
        response = await client.stateless("tools/list", {"cursor": cursor})
        assert response.json()["error"]["code"] == -32602


async def test_progress_turns_the_answer_into_a_stream():
    server, _ = make_server()
    async with serving(server) as client:
        response = await client.stateless(
            "tools/call", {"name": "report"}, meta={"progressToken": "t"}
        )
        assert response.is_stream
        assert response.headers["x-accel-buffering"] == "no"
        first, second, last = response.events()
        assert first["params"] == {"progressToken": "t", "progress": 1, "total": 2}
        assert second["params"]["progress"] == 2
        assert last["result"]["structuredContent"] == {"result": "reported"}
        assert all(id_ is None for id_, _ in response.raw_events())


async def test_without_a_token_there_is_no_progress():
    server, _ = make_server()
    async with serving(server) as client:
        response = await client.stateless("tools/call", {"name": "report"})
        assert not response.is_stream


async def test_a_client_that_takes_only_json_gets_no_progress():
    server, _ = make_server()
    async with serving(server) as client:
        response = await client.stateless(
            "tools/call",
            {"name": "report"},
            meta={"progressToken": 1},
            headers={"accept": "application/json"},
        )
        assert response.json()["result"]["structuredContent"] == {"result": "reported"}


@pytest.mark.parametrize("extension", [True, False])
@pytest.mark.parametrize("streaming", [True, False])
async def test_a_client_that_goes_away_ends_the_call(extension, streaming):
    server, record = make_server()
    async with serving(server) as client:
        client.extension = extension
        if streaming:
            response = client.start_stateless(
                "tools/call",
                {"name": "report", "arguments": {"stay": True}},
                meta={"progressToken": 1},
            )
            await response.event(1)
        else:
            response = client.start_stateless("tools/call", {"name": "wait"})
            await trio.testing.wait_all_tasks_blocked()
        assert client.app.statistics().in_flight == 1
        response.disconnect()
        await response.ended.wait()
        assert record.events[-1] == ("report over" if streaming else "wait over")
        assert client.app.statistics().in_flight == 0
        if not streaming:
            assert response.status is None


async def test_equal_ids_of_two_clients_do_not_meet():
    server, record = make_server()
    async with serving(server) as client:
        calls = [
            client.start_stateless("tools/call", {"name": "wait", "arguments": {"label": label}})
            for label in ("one", "two")
        ]
        await trio.testing.wait_all_tasks_blocked()
        calls[0].disconnect()
        await calls[0].ended.wait()
        assert record.events[-1] == "one over"
        record.release.set()
        await calls[1].ended.wait()
        assert calls[1].json()["result"]["structuredContent"] == {"result": "two"}


async def test_a_request_over_its_time_is_told_so(autojump_clock):
    server, record = make_server(request_timeout=7)
    async with serving(server) as client:
        response = await client.stateless("tools/call", {"name": "wait"})
        assert trio.current_time() == pytest.approx(7)
        assert record.events == ["wait started", "wait over"]
        error = response.json()["error"]
        assert (error["code"], error["data"]) == (-32603, {"code": "MCP.TIMEOUT"})
        assert response.status == 200


async def test_a_stream_over_its_time_ends_with_the_error(autojump_clock):
    server, _ = make_server(request_timeout=7)
    async with serving(server) as client:
        response = await client.stateless(
            "tools/call",
            {"name": "report", "arguments": {"stay": True}},
            meta={"progressToken": 1},
        )
        assert response.events()[-1]["error"]["data"] == {"code": "MCP.TIMEOUT"}


async def test_a_handler_that_shields_itself_is_bounded(autojump_clock):
    server, _ = make_server()
    over = []

    @server.tool
    async def stubborn() -> str:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                try:
                    await trio.sleep(1000)
                finally:
                    over.append(trio.current_time())
        return ""

    async with serving(server, HTTPOptions(cleanup_timeout=3)) as client:
        response = client.start_stateless("tools/call", {"name": "stubborn"})
        await trio.testing.wait_all_tasks_blocked()
        response.disconnect()
        await response.ended.wait()
        assert over == [pytest.approx(3)]
        assert client.app.reaper.lifted == 1


async def test_an_unexpected_exception_is_a_masked_result():
    server, _ = make_server()
    async with serving(server) as client:
        response = await client.stateless("tools/call", {"name": "fail"})
        result = response.json()["result"]
        assert result["isError"] is True
        assert "reference" in result["content"][0]["text"]
        assert b"secret" not in response.body


async def test_log_messages_come_only_when_asked_for():
    server, _ = make_server()

    @server.tool
    async def chatty(ctx: Context) -> str:
        await ctx.log("debug", "fine")
        await ctx.log("error", {"bad": True}, logger="part")
        return "said"

    async with serving(server) as client:
        quiet = await client.stateless("tools/call", {"name": "chatty"})
        assert not quiet.is_stream
        loud = await client.stateless(
            "tools/call",
            {"name": "chatty"},
            meta={"io.modelcontextprotocol/logLevel": "warning"},
        )
        told = [event["params"] for event in loud.events()[:-1]]
        assert told == [{"level": "error", "data": {"bad": True}, "logger": "part"}]
        wrong = await client.stateless(
            "tools/call",
            {"name": "chatty"},
            meta={"io.modelcontextprotocol/logLevel": "loud"},
        )
        assert (wrong.status, wrong.json()["error"]["code"]) == (400, -32602)


async def test_a_listener_is_acknowledged_told_once_and_ended_with_a_result():
    server, _ = make_server()
    async with serving(server) as client:
        response = client.start_stateless(
            "subscriptions/listen",
            {"notifications": {"toolsListChanged": True, "promptsListChanged": True}},
            id_="sub",
        )
        first = await response.event(0)
        assert first["method"] == "notifications/subscriptions/acknowledged"
        assert first["params"] == {
            "notifications": {"toolsListChanged": True},
            "_meta": {SUBSCRIPTION: "sub"},
        }
        server.remove_tool("add")
        second = await response.event(1)
        assert second["method"] == "notifications/tools/list_changed"
        assert second["params"]["_meta"] == {SUBSCRIPTION: "sub"}
        await trio.testing.wait_all_tasks_blocked()
        assert len(response.events()) == 2
        client.app.drain()
        await response.ended.wait()
        last = response.events()[2]
        assert last["id"] == "sub"
        assert last["result"]["resultType"] == "complete"
        assert last["result"]["_meta"][SUBSCRIPTION] == "sub"
        assert len(response.events()) == 3


async def test_a_burst_of_changes_is_one_notice():
    server, _ = make_server()
    async with serving(server) as client:
        response = client.start_stateless(
            "subscriptions/listen", {"notifications": {"toolsListChanged": True}}
        )
        await response.event(0)
        await trio.testing.wait_all_tasks_blocked()
        for name in ("add", "wait", "report"):
            server.remove_tool(name)
        await response.event(1)
        await trio.testing.wait_all_tasks_blocked()
        assert len(response.events()) == 2
        response.disconnect()


@pytest.mark.parametrize("wanted", [{}, {"toolsListChanged": False}, {"promptsListChanged": True}])
async def test_a_listener_of_nothing_is_acknowledged_and_ended(wanted):
    server, _ = make_server()
    async with serving(server) as client:
        response = await client.stateless("subscriptions/listen", {"notifications": wanted})
        acknowledged, result = response.events()
        assert acknowledged["params"]["notifications"] == {}
        assert result["result"]["resultType"] == "complete"


async def test_a_quiet_listener_is_kept_alive_and_forgotten_when_it_goes(autojump_clock):
    server, _ = make_server()
    async with serving(server) as client:
        response = client.start_stateless(
            "subscriptions/listen", {"notifications": {"toolsListChanged": True}}
        )
        await response.event(0)
        assert len(server.notices) == 1
        await trio.sleep(100)
        assert response.body.count(b":\n\n") == 6
        response.disconnect()
        await response.ended.wait()
        assert len(server.notices) == 0


async def test_listening_has_no_deadline(autojump_clock):
    server, _ = make_server(request_timeout=7)
    async with serving(server) as client:
        response = client.start_stateless(
            "subscriptions/listen", {"notifications": {"toolsListChanged": True}}
        )
        await trio.sleep(100)
        assert not response.ended.is_set()
        response.disconnect()


async def test_mirrored_arguments_are_checked():
    server, _ = make_server()

    async def by_region(region: str = "", n: int = 0) -> str:
        return region

    server.add_tool(
        by_region,
        input_schema={
            "type": "object",
            "properties": {
                "region": {"type": "string", "x-mcp-header": "Region"},
                "n": {"type": "integer", "x-mcp-header": "N"},
            },
        },
    )
    async with serving(server) as client:
        for arguments, headers, status in (
            ({"region": "eu"}, {"mcp-param-region": "eu"}, 200),
            ({"region": "Hello"}, {"mcp-param-region": "=?base64?SGVsbG8=?="}, 200),
            ({"region": "eu"}, {}, 400),
            ({"region": "eu"}, {"mcp-param-region": "us"}, 400),
            ({"region": "Hello"}, {"mcp-param-region": "=?base64?SGVsbG8?="}, 400),
            ({}, {}, 200),
            ({}, {"mcp-param-region": "eu"}, 400),
            ({"n": 42}, {"mcp-param-n": "42.0"}, 200),
            ({"n": 42}, {"mcp-param-n": "43"}, 400),
        ):
            response = await client.stateless(
                "tools/call", {"name": "by_region", "arguments": arguments}, headers=headers
            )
            assert response.status == status, (arguments, headers)
            if status == 400:
                assert response.json()["error"]["code"] == -32020


async def test_big_integers_keep_their_digits():
    server, _ = make_server()
    async with serving(server) as client:
        for number in (9007199254740993, 2**63, 10**40):
            response = await client.stateless(
                "tools/call", {"name": "echo", "arguments": {"value": {"n": number}}}, id_=number
            )
            assert response.json()["id"] == number
            assert response.json()["result"]["structuredContent"] == {"n": number}
            assert str(number) in response.json()["result"]["content"][0]["text"]


async def test_stateless_calls_work_without_the_lifespan_and_sessions_say_what_is_missing():
    server, _ = make_server()
    from mcp_trio.http.app import HTTPApp
    from tests.http.asgi import Client

    async with trio.open_nursery() as nursery:
        client = Client(HTTPApp(server), nursery)
        call = {"name": "add", "arguments": {"a": 1, "b": 1}}
        assert (await client.stateless("tools/call", call)).status == 200
        response = await client.post(
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}
        )
        assert response.status == 503
        assert "lifespan" in response.json()["error"]["message"]
        nursery.cancel_scope.cancel()


async def test_listening_is_no_work_and_has_a_limit_of_its_own():
    server, _ = make_server(load=LoadLimits(max_in_flight=1, max_listeners=2))
    async with serving(server) as client:
        wanted = {"notifications": {"toolsListChanged": True}}
        listeners = [client.start_stateless("subscriptions/listen", wanted) for _ in range(2)]
        for listener in listeners:
            await listener.event(0)
        assert client.app.statistics().in_flight == 0
        called = await client.stateless(
            "tools/call", {"name": "add", "arguments": {"a": 1, "b": 1}}
        )
        assert called.status == 200
        refused = await client.stateless("subscriptions/listen", wanted)
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")


async def test_refused_sources_are_logged_with_their_values_and_each_once(caplog):
    server, _ = make_server()
    async with serving(server) as client:
        for _ in range(5):
            await client.stateless("server/discover", headers={"host": "evil.example"})
        for number in range(200):
            await client.stateless("server/discover", headers={"host": f"evil{number}.example"})
    told = [record for record in caplog.records if "Host is not allowed" in record.message]
    assert "'evil.example'" in told[0].message
    assert len(told) == 100


async def test_another_event_loop_is_told_at_start_up_that_trio_is_needed():
    server, _ = make_server()
    said = []

    async def receive():
        return {"type": "lifespan.startup"}

    async def send(event):
        said.append(event)

    def drive():
        """Run the coroutine as a loop that is not Trio would."""
        running = server.asgi_app()({"type": "lifespan"}, receive, send)
        with pytest.raises(StopIteration):
            running.send(None)

    await trio.to_thread.run_sync(drive)
    assert said[0]["type"] == "lifespan.startup.failed"
    assert "Trio" in said[0]["message"]


async def test_cleanup_after_the_servers_own_deadline_is_bounded_too(autojump_clock):
    server, _ = make_server(request_timeout=7)

    @server.tool
    async def stubborn() -> str:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(1000)
        return ""

    async with serving(server, HTTPOptions(cleanup_timeout=3)) as client:
        stateless = client.start_stateless("tools/call", {"name": "stubborn"})
        session = await client.open_session()
        called = await session.call("stubborn")
        await stateless.ended.wait()
        for response in (stateless, called):
            assert response.message()["error"]["data"] == {"code": "MCP.TIMEOUT"}
        assert trio.current_time() == pytest.approx(10)
        assert client.app.reaper.lifted == 2
        assert not client.app.reaper._limited
