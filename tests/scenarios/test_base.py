"""The base of it all: messages, ids, answers, and what gets none."""

import json

import trio.testing

from mcp_trio.wire.revisions import HANDSHAKE, R2025_03_26, R2026_07_28
from tests.http.tools import make_server
from tests.scenarios.manifest import scenario
from tests.scenarios.peers import CAPABILITIES, CLIENT, VERSION, peer_of
from tests.scenarios.servers import MODEL, full_server, uses


@scenario("B1")
async def test_messages_are_json_rpc_in_utf_8(transport, revision):
    server, _ = make_server()
    async with peer_of(server, transport, revision) as peer:
        text = "\u00fc\u2028\U0001f600\x00"
        assert json.loads((await peer.call("echo", {"value": {"x": text}}))["content"][0]["text"])
        assert {message["jsonrpc"] for message in peer.heard} == {"2.0"}
        for noise in (b"{", b"\xff", b'{"a": NaN}'):
            assert (await peer.refused(noise))["code"] == -32700
        for wrong in (7, "x", None, {}, {"id": 1.5, "jsonrpc": "2.0", "method": "ping"}):
            assert (await peer.refused(wrong))["code"] == -32600
        for version in (None, "1.0", 2.0):
            message = {**peer.request("tools/list", id_="v"), "jsonrpc": version}
            assert (await peer.refused(message, "v"))["code"] == -32600
        await peer.result("tools/list")


@scenario("B2")
async def test_ids_are_strings_and_integers_and_tell_requests_apart(transport, revision):
    server, record = make_server()
    async with peer_of(server, transport, revision) as peer:
        for id_ in ("", "\u00fc", 0x7FFF_FFFF_FFFF, -3):
            await peer.result("tools/list", id_=id_)
        for wrong in (None, 1.5, True, [], {}):
            message = {**peer.request("tools/list"), "id": wrong}
            assert (await peer.refused(message))["code"] == -32600
        for id_ in (5, "5"):
            await peer.start_call("wait", {"label": type(id_).__name__}, id_=id_)
        await trio.testing.wait_all_tasks_blocked()
        if not (revision.stateless and transport == "http"):
            # There each POST is a world of its own.
            double = peer.request("tools/list", id_=5)
            assert (await peer.refused(double, 5))["code"] == -32600
            peer.heard.clear()
        record.release.set()
        for id_ in (5, "5"):
            result = (await peer.answer(id_))["result"]
            assert result["content"][0]["text"] == type(id_).__name__


@scenario("B3")
async def test_an_answer_is_a_result_or_an_error_under_the_id_asked_with(transport, revision):
    server, _ = full_server()
    async with peer_of(server, transport, revision) as peer:
        questions = [
            *uses(revision).items(),
            ("tools/call", {"name": "fail"}),
            ("tools/call", {"name": "nope"}),
            ("tools/call", {"name": 7}),
            ("no/such", {}),
        ]
        for number, (method, params) in enumerate(questions):
            id_ = f"q{number}" if number % 2 else 1000 + number
            answer = await peer.ask(method, params, id_=id_)
            assert ("result" in answer) is not ("error" in answer)
            assert answer.keys() <= {"jsonrpc", "id", "result", "error"}
            if "error" in answer:
                assert type(answer["error"]["code"]) is int
                assert answer["error"]["message"]
            else:
                assert isinstance(answer["result"], dict)
            assert len(peer.answers(id_)) == 1


@scenario("B4")
async def test_a_notification_gets_no_answer(transport, revision):
    server, record = make_server()
    async with peer_of(server, transport, revision) as peer:
        before = len(peer.heard)
        for method in ("notifications/none", "tools/call", "ping", "initialize", "server/discover"):
            await peer.tell(method, {"name": "wait", "_meta": peer.meta})
            await peer.tell(method)
        for params in ({"requestId": None}, {"requestId": 77}, {"requestId": {}}, {}):
            await peer.tell("notifications/cancelled", params)
            await peer.tell("notifications/progress", params)
        await trio.testing.wait_all_tasks_blocked()
        assert peer.heard[before:] == []
        assert record.events == []
        if transport not in {"http", "sse"}:
            # Over HTTP each POST has a response, and that may be a refusal.
            await peer.say({"jsonrpc": "2.0", "method": "notifications/none", "params": [1]})
            await peer.say({"jsonrpc": "2.0", "method": "notifications/none", "params": None})
            await trio.testing.wait_all_tasks_blocked()
            assert peer.heard[before:] == []
        await peer.result("tools/list")


@scenario("B5", revisions=(R2025_03_26,))
async def test_a_batch_is_answered_with_a_batch(transport, revision):
    server, _ = make_server()
    async with peer_of(server, transport, revision) as peer:
        tools = peer.request("tools/list", id_="a")
        unknown = peer.request("no/such", id_="b")
        note = {"jsonrpc": "2.0", "method": "notifications/none"}
        hello = peer.request("initialize", {"protocolVersion": revision.date}, id_="c")
        await peer.say([tools, note, unknown, hello, 7])
        assert (await peer.answer("a"))["result"]["tools"]
        assert (await peer.answer("b"))["error"]["code"] == -32601
        assert (await peer.answer("c"))["error"]["code"] == -32600
        assert (await peer.answer(None))["error"]["code"] == -32600
        assert [len(batch) for batch in peer.batches] == [4]
        heard = len(peer.heard)
        await peer.say([note, note])
        await trio.testing.wait_all_tasks_blocked()
        assert len(peer.heard) == heard
        assert (await peer.refused([]))["code"] == -32600


@scenario("B5", revisions=tuple(r for r in (R2026_07_28, *HANDSHAKE) if r > R2025_03_26))
async def test_a_batch_is_refused_where_there_are_none(transport, revision):
    server, record = make_server()
    async with peer_of(server, transport, revision) as peer:
        call = peer.request("tools/call", {"name": "wait"}, id_="a")
        assert (await peer.refused([call]))["code"] == -32600
        assert record.events == []
        await peer.result("tools/list")


@scenario("B6")
async def test_a_result_says_what_kind_it_is(transport, revision):
    server, _ = full_server()
    async with peer_of(server, transport, revision, MODEL) as peer:
        for method, params in uses(revision).items():
            assert (await peer.result(method, params))["resultType"] == "complete", method
        assert (await peer.call("fail"))["resultType"] == "complete"
        assert (await peer.call("think"))["resultType"] == "input_required"


@scenario("B7")
async def test_a_result_says_nothing_that_only_newer_clients_know(transport, revision):
    server, _ = full_server()
    async with peer_of(server, transport, revision) as peer:
        results = [await peer.result(method, params) for method, params in uses(revision).items()]
        for result in (peer.welcome, *results):
            assert not {"resultType", "ttlMs", "cacheScope", "requestState"} & result.keys()


@scenario("B8")
async def test_only_answers_and_notifications_are_sent_and_no_answer_is_taken(transport, revision):
    server, _ = full_server()
    everything = {**MODEL, "elicitation": {}, "roots": {}}
    async with peer_of(server, transport, revision, everything) as peer:
        level = {"io.modelcontextprotocol/logLevel": "debug"}
        await peer.call("think")
        await peer.call("chat", meta=level)
        await peer.call("report", meta={"progressToken": "t"})
        assert len(peer.notes()) == 5
        assert peer.questions() == []
        for body in ({"result": {}}, {"error": {"code": 1, "message": "no"}}):
            heard = len(peer.heard)
            await peer.say({"jsonrpc": "2.0", "id": 1, **body})
            await trio.testing.wait_all_tasks_blocked()
            if transport == "http":
                assert peer.posts[None].status == 400
            else:
                assert len(peer.heard) == heard
        await peer.result("tools/list")


@scenario("B9")
async def test_nothing_of_an_earlier_request_is_remembered(transport, revision):
    server, _ = full_server()
    async with peer_of(server, transport, revision) as peer:
        able = {CAPABILITIES: MODEL, "io.modelcontextprotocol/logLevel": "debug"}
        assert (await peer.call("think", meta=able))["resultType"] == "input_required"
        await peer.call("chat", meta=able)
        told = len(peer.notes())
        assert (await peer.error("tools/call", {"name": "think"}))["code"] == -32021
        await peer.call("chat")
        assert len(peer.notes()) == told
        # Neither may a request depend on one that was never sent.
        assert await peer.result("tools/list") == await peer.result("tools/list")


@scenario("B10")
async def test_a_request_says_its_version_and_capabilities(transport, revision):
    server, _ = make_server()
    async with peer_of(server, transport, revision) as peer:
        whole = dict(peer.meta)
        for key in (VERSION, CAPABILITIES):
            for wrong in ({}, {key: None}, {key: 7}):
                peer.meta = {k: v for k, v in whole.items() if k != key} | wrong
                answer = await peer.ask("tools/list")
                assert answer["error"]["code"] == -32602, (key, wrong)
                assert peer.status(answer["id"]) == (400 if transport == "http" else None)
        peer.meta = {}
        assert (await peer.error("tools/list"))["code"] in {-32602, -32600}
        peer.meta = {k: v for k, v in whole.items() if k != CLIENT}
        await peer.result("tools/list")


@scenario("B11")
async def test_an_error_carries_the_id_of_its_request(transport, revision):
    server, _ = full_server()
    async with peer_of(server, transport, revision) as peer:
        bad = [
            ("no/such", {}, {}),
            ("tools/call", {"name": "nope"}, {}),
            ("tools/call", {}, {}),
            ("tools/list", {"cursor": 7}, {}),
            ("prompts/get", {"name": "nope"}, {}),
            ("resources/read", {"uri": "test://nope"}, {}),
            ("completion/complete", {"ref": {"type": "x"}, "argument": {}}, {}),
        ]
        if revision.stateless:
            bad += [
                ("tools/list", {}, {VERSION: "3000-01-01"}),
                ("tools/list", {}, {CAPABILITIES: 7}),
                ("tools/call", {"name": "think"}, {}),
            ]
        else:
            bad += [("initialize", {}, {}), ("logging/setLevel", {"level": "loud"}, {})]
        for number, (method, params, meta) in enumerate(bad):
            for id_ in (f"bad-{number}", 10_000 + number):
                answer = await peer.ask(method, params, meta=meta, id_=id_)
                assert "error" in answer, method
        assert (await peer.refused({"id": "m", "method": "tools/list"}, "m"))["code"] == -32600
        if transport == "http":
            peer.headers = {"mcp-protocol-version": "1999-01-01"}
            assert await peer.error("tools/list", id_="version")
            peer.headers = {"mcp-session-id": "made-up", "mcp-method": "other"}
            assert await peer.error("tools/list", id_="session")


@scenario("B12")
async def test_what_nobody_knows_passes(transport, revision):
    server, _ = full_server()
    async with peer_of(server, transport, revision) as peer:
        for method, params in uses(revision).items():
            message = peer.request(method, {**params, "future": {"x": 1}}, meta={"a.b/c": [1]})
            await peer.say({**message, "future": 1})
            assert "result" in await peer.answer(message["id"]), method


LATER = ("server/discover", "subscriptions/listen")
EARLIER = (
    "initialize",
    "ping",
    "logging/setLevel",
    "resources/subscribe",
    "resources/unsubscribe",
)
ALWAYS = (
    "tools/list",
    "tools/call",
    "prompts/list",
    "prompts/get",
    "resources/list",
    "resources/read",
    "resources/templates/list",
    "completion/complete",
)
NEVER = (
    "sampling/createMessage",
    "elicitation/create",
    "roots/list",
    "tasks/get",
    "tasks/list",
    "tasks/result",
    "tasks/cancel",
    "notifications/initialized",
    "",
    "rpc.discover",
)


@scenario("0b")
async def test_a_method_exists_in_its_revisions(transport, revision):
    server, _ = full_server()
    here, elsewhere = (LATER, EARLIER) if revision.stateless else (EARLIER, LATER)
    async with peer_of(server, transport, revision) as peer:
        good = uses(revision)
        for method in (*ALWAYS, *here):
            answer = await peer.ask(method, good.get(method, {}))
            assert answer.get("error", {}).get("code") in {None, -32600}, method
        for method in (*NEVER, *elsewhere):
            assert (await peer.error(method, {}))["code"] == -32601, method
