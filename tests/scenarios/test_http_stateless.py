"""Streamable HTTP without sessions: one POST, one request, and headers that mirror it."""

import base64

import pytest
import trio
import trio.testing

from mcp_trio.json_schema import SchemaError
from tests.http.tools import make_server
from tests.scenarios.manifest import scenario
from tests.scenarios.peers import VERSION, peer_of
from tests.scenarios.servers import full_server

EVIL = {"origin": "https://evil.example"}
LISTEN = {"notifications": {"toolsListChanged": True}}
NOW = {"mcp-protocol-version": "2026-07-28"}


def encoded(text):
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


async def refusal(peer, method="tools/list", params=None, **options):
    """The code and the status with which a request is refused."""
    answer = await peer.ask(method, params, **options)
    return answer["error"]["code"], peer.status(answer["id"])


@scenario("N1")
async def test_there_is_only_post_and_no_session(transport, revision):
    server, _ = make_server()
    async with peer_of(server, transport, revision) as peer:
        for method in ("GET", "DELETE"):
            for more in ({}, {"accept": "text/event-stream"}, {"mcp-session-id": "x"}):
                response = await peer.http.request(method, headers={**NOW, **more})
                assert response.status == 405
                assert "POST" in response.headers["allow"]
        peer.headers = {"mcp-session-id": "made-up", "last-event-id": "1-1"}
        answer = await peer.ask("tools/call", {"name": "report"}, meta={"progressToken": 1})
        assert "result" in answer
        response = peer.post(answer["id"])
        assert "mcp-session-id" not in response.headers
        assert all(id_ is None for id_, _ in response.raw_events())


@scenario("N2")
async def test_foreign_pages_are_turned_away(transport, revision):
    server, record = make_server()
    async with peer_of(server, transport, revision) as peer:
        for origin in ("https://evil.example", "null", "http://localhost.evil.example"):
            peer.headers = {"origin": origin}
            call = await peer.start_call("wait")
            await peer.post(call).ended.wait()
            assert peer.status(call) == 403
        assert record.events == []
        peer.headers = {"origin": "http://127.0.0.1:8000"}
        await peer.result("tools/list")


@scenario("N4", "A3")
async def test_a_notification_is_accepted_without_more_headers(transport, revision):
    server, _ = make_server()
    async with peer_of(server, transport, revision) as peer:
        for params in ({}, {"requestId": 1}, {"name": "add"}):
            for method in ("notifications/cancelled", "notifications/none"):
                note = {"jsonrpc": "2.0", "method": method, "params": params}
                response = await peer.http.post(note, NOW)
                assert (response.status, response.body) == (202, b"")


@scenario("N5")
async def test_an_answer_is_json_or_the_end_of_a_stream(transport, revision):
    server, _ = full_server()
    async with peer_of(server, transport, revision) as peer:
        plain = await peer.ask("tools/call", {"name": "add", "arguments": {"a": 1, "b": 1}})
        assert peer.post(plain["id"]).headers["content-type"] == "application/json"
        told = await peer.ask("tools/call", {"name": "report"}, meta={"progressToken": 1})
        stream = peer.post(told["id"])
        await stream.ended.wait()
        *before, last = stream.events()
        assert [event["method"] for event in before] == ["notifications/progress"] * 2
        assert last == told
        peer.headers = {"accept": "application/json"}
        alone = await peer.ask("tools/call", {"name": "report"}, meta={"progressToken": 1})
        assert peer.post(alone["id"]).json() == alone
        peer.headers = {"accept": "text/event-stream"}
        streamed = await peer.ask("tools/list")
        assert peer.post(streamed["id"]).is_stream


@scenario("N6")
async def test_a_stream_is_not_held_back_and_shows_that_it_lives(
    transport, revision, autojump_clock
):
    server, _ = make_server()
    async with peer_of(server, transport, revision) as peer:
        listen = await peer.start("subscriptions/listen", LISTEN)
        stream = peer.post(listen)
        await stream.event(0)
        assert stream.headers["x-accel-buffering"] == "no"
        assert "no-cache" in stream.headers["cache-control"]
        before = len(stream.body)
        await trio.sleep(60)
        quiet = stream.body[before:].decode()
        assert quiet.count(":") >= 2
        assert all(line in {"", ":"} or line.startswith(":") for line in quiet.split("\n"))


@scenario("N7")
async def test_closing_the_stream_ends_the_request(transport, revision):
    server, record = make_server()
    async with peer_of(server, transport, revision) as peer:
        for tool, arguments in (("wait", {}), ("report", {"stay": True})):
            call = await peer.start_call(tool, arguments, meta={"progressToken": 1})
            await trio.testing.wait_all_tasks_blocked()
            sent = peer.post(call).body
            peer.post(call).disconnect()
            await peer.post(call).ended.wait()
            assert record.events[-1] == f"{tool} over"
            assert peer.post(call).body == sent
        await peer.result("tools/list")


@scenario("N8")
async def test_the_version_in_the_header_is_that_of_the_message(transport, revision):
    server, _ = make_server()
    async with peer_of(server, transport, revision) as peer:
        for header in (None, "", "2025-11-25", "3000-01-01", "2026-07-28, 2026-07-28"):
            peer.headers = {"mcp-protocol-version": header}
            assert await refusal(peer) == (-32020, 400), header
        peer.headers = {}
        assert await refusal(peer, meta={VERSION: "3000-01-01"}) == (-32020, 400)
        peer.headers = {"mcp-protocol-version": "3000-01-01"}
        assert await refusal(peer, meta={VERSION: "3000-01-01"}) == (-32022, 400)


@scenario("N10")
async def test_method_and_name_stand_in_the_headers_as_in_the_body(transport, revision):
    server, _ = full_server()
    async with peer_of(server, transport, revision) as peer:
        for wrong in (None, "", "tools/call", "TOOLS/LIST", "\u00e9"):
            peer.headers = {"mcp-method": wrong}
            assert await refusal(peer) == (-32020, 400), wrong
        named = {
            "tools/call": {"name": "add", "arguments": {"a": 1, "b": 2}},
            "prompts/get": {"name": "greet", "arguments": {"name": "x"}},
            "resources/read": {"uri": "test://note"},
        }
        for method, params in named.items():
            peer.headers = {}
            await peer.result(method, params)
            for wrong in (None, "", "other", (params.get("name") or params["uri"]).upper()):
                peer.headers = {"mcp-name": wrong}
                assert await refusal(peer, method, params) == (-32020, 400), (method, wrong)
        # Names of headers have no case, and white space around a value means nothing.
        peer.headers = {
            "mcp-method": None,
            "Mcp-Method": "  tools/call ",
            "mcp-name": None,
            "MCP-NAME": " add",
        }
        await peer.result("tools/call", named["tools/call"])


@scenario("N11")
async def test_an_unknown_method_is_not_found_unlike_a_wrong_path(transport, revision):
    server, _ = make_server()
    async with peer_of(server, transport, revision) as peer:
        assert await refusal(peer, "no/such") == (-32601, 404)
        assert await refusal(peer, "prompts/list") == (-32601, 404)
        elsewhere = await peer.http.request("POST", path="/other", body=b"{}")
        assert elsewhere.status == 404
        assert "jsonrpc" not in elsewhere.json()


def annotated(**properties):
    return {"type": "object", "properties": properties}


REGION = {"type": "string", "x-mcp-header": "Region"}
BAD = [
    annotated(a={"type": "string", "x-mcp-header": ""}),
    annotated(a={"type": "string", "x-mcp-header": "a b"}),
    annotated(a={"type": "string", "x-mcp-header": "a\r\nb"}),
    annotated(a={"type": "string", "x-mcp-header": 7}),
    annotated(a={"type": "number", "x-mcp-header": "A"}),
    annotated(a={"type": "object", "x-mcp-header": "A"}),
    annotated(a={"x-mcp-header": "A"}),
    annotated(a=REGION, b={**REGION, "x-mcp-header": "REGION"}),
    annotated(a={"type": "array", "items": REGION}),
    annotated(a={"anyOf": [REGION]}),
    {**annotated(), "$defs": {"r": REGION}},
    {**annotated(), "if": annotated(a=REGION)},
]


@scenario("N12")
async def test_a_tool_with_wrong_annotations_is_not_listed(transport, revision):
    server, _ = make_server()

    async def tool(a: str = "", b: str = "", deep: dict[str, int] | None = None) -> str:
        return "x"

    for schema in BAD:
        with pytest.raises(SchemaError):
            server.add_tool(tool, name="bad", input_schema=schema)
    deep = {"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "N"}}}
    server.add_tool(tool, name="good", input_schema=annotated(a=REGION, deep=deep))
    async with peer_of(server, transport, revision) as peer:
        listed = {tool["name"]: tool for tool in (await peer.result("tools/list"))["tools"]}
        assert "bad" not in listed
        assert listed["good"]["inputSchema"]["properties"]["a"] == REGION


@scenario("N15")
async def test_an_encoded_header_is_decoded_before_it_is_compared(transport, revision):
    server, _ = full_server()
    add = {"name": "add", "arguments": {"a": 1, "b": 2}}
    async with peer_of(server, transport, revision) as peer:
        peer.headers = {"mcp-name": encoded("add")}
        await peer.result("tools/call", add)
        uri = "test://user/\u00fc"
        peer.headers = {"mcp-name": encoded(uri)}
        assert (await peer.result("resources/read", {"uri": uri}))["contents"][0][
            "text"
        ] == "\u00fc"
        broken = ("=?base64?!!!?=", "=?base64?YQ?=", "=?base64?/w==?=", encoded("other"))
        for wrong in (*broken, "=?BASE64?YWRk?=", "add\x7f", "\u00e4dd"):
            peer.headers = {"mcp-name": wrong}
            assert await refusal(peer, "tools/call", add) == (-32020, 400), wrong


@scenario("N16")
async def test_a_mirrored_argument_stands_in_its_header(transport, revision):
    server, _ = make_server()

    async def where(
        region: str | None = None, count: int = 0, deep: dict[str, bool] | None = None
    ) -> str:
        return f"{region} {count} {deep}"

    schema = annotated(
        region={**REGION},
        count={"type": "integer", "x-mcp-header": "Count"},
        deep=annotated(on={"type": "boolean", "x-mcp-header": "On"}),
    )
    server.add_tool(where, name="where", input_schema=schema)
    call = {"name": "where", "arguments": {"region": "Z\u00fcrich", "count": 42}}
    good = {"mcp-param-region": encoded("Z\u00fcrich"), "mcp-param-count": "42"}
    async with peer_of(server, transport, revision) as peer:
        for same in ({}, {"mcp-param-count": "42.0"}, {"mcp-param-count": " 42 "}):
            peer.headers = {**good, **same}
            await peer.result("tools/call", call)
        for wrong in (
            {"mcp-param-region": None},
            {"mcp-param-region": "Bern"},
            {"mcp-param-region": "Z\u00fcrich"},
            {"mcp-param-region": "=?base64?x?="},
            {"mcp-param-count": "43"},
            {"mcp-param-count": "4e1"},
            {"mcp-param-on": "true"},
        ):
            peer.headers = {**good, **wrong}
            assert await refusal(peer, "tools/call", call) == (-32020, 400), wrong
        peer.headers = {}
        await peer.result("tools/call", {"name": "where", "arguments": {}})
        deep = {"name": "where", "arguments": {"deep": {"on": False}}}
        peer.headers = {"mcp-param-on": "false"}
        await peer.result("tools/call", deep)


@scenario("A6")
async def test_a_refusal_keeps_its_status_because_no_stream_has_begun(transport, revision):
    server, _ = full_server()
    async with peer_of(server, transport, revision) as peer:
        call = await peer.start_call("wait", meta={"progressToken": 1})
        await trio.testing.wait_all_tasks_blocked()
        assert not peer.post(call).started.is_set()
        assert await refusal(peer, "tools/call", {"name": "think"}) == (-32021, 400)
        listen = await peer.start("subscriptions/listen", LISTEN)
        await peer.post(listen).event(0)
        assert peer.post(listen).is_stream
