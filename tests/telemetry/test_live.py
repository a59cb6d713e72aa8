"""The live tree: what runs is in it, what has ended is not, and nobody's values are shown."""

import json

import httpx2
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

import mcp_trio
from mcp_trio.telemetry import live
from mcp_trio.telemetry.plain_text import MAX_TEXT
from mcp_trio.wire.revisions import R2025_11_25, R2026_07_28
from tests.scenarios.worlds import world

both_eras = pytest.mark.parametrize("revision", [R2025_11_25, R2026_07_28], ids=str)
CANARY = "canary-argument"


def make_server():
    server = mcp_trio.MCPServer("watched")
    began = trio.Event()

    @server.tool
    async def hold(word: str) -> str:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(helper_of_the_handler)
            began.set()
            await trio.sleep_forever()
        return word

    @server.tool
    async def stubborn() -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(1)

    return server, began


async def helper_of_the_handler():
    await trio.sleep_forever()


def nodes(tree):
    """Every node with its parent, the root first."""
    queue = [(tree["root"], None)]
    while queue:
        node, parent = queue.pop()
        yield node, parent
        queue += [(child, node) for inside in node["nurseries"] for child in inside]


def requests(tree):
    return [node for node, _ in nodes(tree) if "request" in node]


@both_eras
@pytest.mark.parametrize("kind", ["memory", "http"])
async def test_a_running_call_is_in_the_tree_with_the_tasks_it_started(revision, kind):
    server, began = make_server()
    async with world(server, kind, revision) as client, trio.open_nursery() as nursery:
        nursery.start_soon(client.call_tool, "hold", {"word": CANARY})
        await began.wait()
        await trio.lowlevel.checkpoint()
        (node,) = requests(live.tree())
        assert node["request"]["method"] == "tools/call"
        assert node["request"]["target"] == "hold"
        assert node["request"]["revision"] == revision.date
        assert node["request"]["cancelled"] is False
        assert node["waits_in"].rpartition(":")[0].endswith("hold")
        ((child,),) = [inside for inside in node["nurseries"] if inside]
        assert child["name"].endswith("helper_of_the_handler")
        assert "request" not in child  # it belongs to that of its parent
        assert CANARY not in json.dumps(live.tree())
        nursery.cancel_scope.cancel()


@both_eras
async def test_what_has_ended_is_gone_and_what_outlives_its_cancellation_says_so(
    revision, autojump_clock
):
    server, _ = make_server()
    async with world(server, "memory", revision) as client:
        with trio.move_on_after(0.5):
            await client.call_tool("stubborn")
        await trio.sleep(0.1)
        (node,) = requests(live.tree())
        assert node["request"]["cancelled"] is True
        assert (node["cancelled"], node["shielded"]) == (False, True)
        await trio.sleep(1)
        assert requests(live.tree()) == []


async def test_a_session_is_listed_for_as_long_as_it_lives(autojump_clock):
    server, _ = make_server()
    async with world(server, "memory", R2025_11_25) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "hold", {"word": CANARY})
            await wait_all_tasks_blocked()
            await trio.sleep(2)
            told = live.sessions()
            (session,) = told["sessions"]
            assert (told["count"], told["left_out"]) == (1, 0)
            assert session["kind"] == "memory"
            assert session["server"] == "watched"
            assert session["revision"] == R2025_11_25.date
            assert session["in_flight"] == 1
            assert session["age_seconds"] >= 2
            (node,) = [node for node, _ in nodes(live.tree()) if "session" in node]
            assert node["session"]["id"] == session["id"]
            assert requests(live.tree())[0]["request"]["session"] == session["id"]
            nursery.cancel_scope.cancel()
    assert live.sessions()["count"] == 0


async def test_a_request_over_http_is_in_its_session():
    server, began = make_server()
    async with world(server, "http", R2025_11_25) as client, trio.open_nursery() as nursery:
        nursery.start_soon(client.call_tool, "hold", {"word": CANARY})
        await began.wait()
        await trio.lowlevel.checkpoint()
        told = live.tree()
        (session,) = [node["session"] for node, _ in nodes(told) if "session" in node]
        (node,) = requests(told)
        assert node["request"]["session"] == session["id"]
        nursery.cancel_scope.cancel()


async def test_a_task_keeps_its_number_and_has_it_alone(nursery, autojump_clock):
    nursery.start_soon(trio.sleep_forever)
    await wait_all_tasks_blocked()
    numbers = [[node["id"] for node, _ in nodes(live.tree())] for _ in range(2)]
    assert numbers[0] == numbers[1]
    assert len(set(numbers[0])) == len(numbers[0])


async def test_the_id_of_a_session_over_http_is_not_shown():
    async with world(make_server()[0], "http", R2025_11_25) as client:
        await client.ping()
        (session,) = live.sessions()["sessions"]
        assert session["kind"] == "http"
        assert len(session["id"]) < 20  # a real one has 32 characters, and is a secret


async def test_a_tree_that_is_too_large_is_cut_and_counted(nursery, autojump_clock):
    before = live.tree()["tasks"]
    for _ in range(50):
        nursery.start_soon(trio.sleep_forever)
    await wait_all_tasks_blocked()
    told = live.tree(limit=10)
    assert told["tasks"] == before + 50
    assert told["left_out"] == told["tasks"] - 10
    assert len(list(nodes(told))) == 10


async def test_what_a_client_says_of_itself_is_cut(autojump_clock):
    server, _ = make_server()
    info = mcp_trio.wire.Implementation(name="n" * 5000, version="1")
    async with world(server, "memory", R2025_11_25, info=info):
        (session,) = live.sessions()["sessions"]
        assert len(session["client"]) == MAX_TEXT


async def test_what_waits_for_an_upstream_waits_in_its_own_function_not_in_a_library():
    (silent,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    url = f"http://127.0.0.1:{silent.socket.getsockname()[1]}"

    async def wait_for_an_answer():
        async with httpx2.AsyncClient(timeout=None, trust_env=False) as http:
            await http.get(url)

    async with silent, trio.open_nursery() as nursery:
        nursery.start_soon(wait_for_an_answer)
        async with await silent.accept():
            await wait_all_tasks_blocked()
            told = [node["waits_in"] for node, _ in nodes(live.tree())]
            nursery.cancel_scope.cancel()
    (place,) = [place for place in told if place and "wait_for_an_answer" in place]
    assert place.startswith(f"{__name__}.")


async def test_deadlines_are_told(nursery, autojump_clock):
    async def timed():
        with trio.move_on_after(7):
            await trio.sleep_forever()

    nursery.start_soon(timed)
    await wait_all_tasks_blocked()
    (node,) = [node for node, _ in nodes(live.tree()) if node["name"].endswith("timed")]
    assert 0 < node["deadline_seconds"] <= 7
