"""The client comes back to a stream that ended before its answer (H5, H8)."""

import contextlib
import itertools

import httpx2
import pytest
import trio
import trio.testing

from mcp_trio import ClientCallbacks, ClientOptions, MCPClient
from mcp_trio.engine.envelope import Envelope
from mcp_trio.jsonrpc.messages import Malformed, Notification, Request, Result
from mcp_trio.transports.streamable_http import StreamableHTTPTransport
from tests.transports.web import Web, connected, each, event, note, result, streaming

ANSWER = b'data: {"jsonrpc":"2.0","id":1,"result":{}}\n\n'
NOTE = b'data: {"jsonrpc":"2.0","method":"n"}\n\n'
PRIMED = b"id: 1-0\ndata: \n\n"


class Server:
    """Answers the requests of a client with what the test prepared, one after the other."""

    def __init__(self, *answers, session="s"):
        self.answers = list(answers)
        self.session = {} if session is None else {"mcp-session-id": session}
        self.asked = []

    async def __call__(self, request):
        if request.method == "DELETE":
            return httpx2.Response(204)
        self.asked.append(
            (request.method, request.headers.get("last-event-id"), trio.current_time())
        )
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, int):
            return httpx2.Response(answer)
        assert request.headers["accept"].endswith("text/event-stream")
        return httpx2.Response(
            200,
            content=answer,
            headers={"content-type": "text/event-stream", **self.session},
        )


@contextlib.asynccontextmanager
async def asking(server):
    """A client that has sent request 1."""
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(server)) as http:
        transport = StreamableHTTPTransport("http://x/mcp", http)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(transport.pump)
            await transport.send(Envelope(Request(1, "m")))
            yield transport
            await transport.aclose()


async def test_it_comes_back_with_the_last_id_when_the_server_says(autojump_clock):
    server = Server(
        PRIMED + b"retry: 500\n\n",
        b"id: 1-1\n" + NOTE + b"retry: 2000\n\n",
        b"id: 1-2\n" + ANSWER,
    )
    async with asking(server) as client:
        assert (await client.receive()).message == Notification("n")
        assert (await client.receive()).message == Result(1, {})
    assert [(method, last) for method, last, _ in server.asked] == [
        ("POST", None),
        ("GET", "1-0"),
        ("GET", "1-1"),
    ]
    times = [time for _, _, time in server.asked]
    assert times[1] - times[0] == pytest.approx(0.5)
    assert times[2] - times[1] == pytest.approx(2)


async def test_it_comes_back_however_often_it_is_let_go(autojump_clock):
    server = Server(PRIMED, *[b"retry: 100\n\n"] * 50, ANSWER)
    async with asking(server) as client:
        assert (await client.receive()).message == Result(1, {})
    assert {last for _, last, _ in server.asked[1:]} == {"1-0"}


async def test_a_broken_connection_is_tried_again_and_given_up_in_the_end(autojump_clock):
    server = Server(PRIMED, httpx2.ConnectError("no"), ANSWER)
    async with asking(server) as client:
        assert (await client.receive()).message == Result(1, {})
    for silent in (httpx2.ConnectError("no"), b"", b":\n\n"):
        server = Server(PRIMED, silent)
        async with asking(server) as client:
            lost = await client.receive()
            assert isinstance(lost.message, Malformed)
            assert lost.related == 1
        assert len(server.asked) == 6


@pytest.mark.parametrize("status", [400, 404, 405, 500])
async def test_a_refusal_to_go_on_ends_the_request(autojump_clock, status):
    server = Server(PRIMED, status)
    async with asking(server) as client:
        lost = await client.receive()
        assert isinstance(lost.message, Malformed)
        assert str(status) in lost.message.reason
    assert len(server.asked) == 2


@pytest.mark.parametrize("broken", [b"", NOTE, b"retry: 5\n\n", b"id: 1-0\n"])
async def test_without_an_id_there_is_no_way_back(broken):
    server = Server(broken)
    async with asking(server) as client:
        while not isinstance(message := (await client.receive()).message, Malformed):
            assert message == Notification("n")
    assert len(server.asked) == 1


async def test_a_server_that_wants_us_at_once_does_not_get_a_storm(autojump_clock):
    server = Server(PRIMED + b"retry: 0\n\n")
    async with asking(server) as client:
        with trio.move_on_after(1):
            await client.receive()
    assert len(server.asked) <= 101


async def test_a_call_that_is_given_up_is_not_come_back_for(autojump_clock):
    server = Server(PRIMED + b"retry: 500\n\n")
    async with asking(server) as client:
        await trio.sleep(0.1)
        client.abandon(1)
        await trio.sleep(10)
    assert len(server.asked) == 1


async def test_failures_are_met_with_growing_patience_that_is_not_the_same_for_all(autojump_clock):
    firsts = set()
    for _ in range(5):
        server = Server(PRIMED, httpx2.ConnectError("no"))
        async with asking(server) as client:
            await client.receive()
        times = [time for _, _, time in server.asked]
        pauses = [b - a for a, b in itertools.pairwise(times)]
        for number, pause in enumerate(pauses):
            longest = max(1, 2.0 ** (number - 1))
            assert longest / 2 <= pause <= longest
        firsts.add(pauses[0])
    assert len(firsts) > 1


async def test_a_server_that_wants_us_in_years_gets_us_in_an_hour(autojump_clock):
    server = Server(PRIMED + b"retry: 999999999999999999\n\n", ANSWER)
    async with asking(server) as client:
        assert (await client.receive()).message == Result(1, {})
    times = [time for _, _, time in server.asked]
    assert times[1] - times[0] == pytest.approx(3600)


@pytest.mark.parametrize("retry", [b"-5", b"1.5", b"soon", b"", b"\xd9\xa3", b"1e9", b" 7"])
async def test_a_retry_that_is_no_number_is_none(autojump_clock, retry):
    server = Server(PRIMED + b"retry:" + b" " + retry + b"\n\n", ANSWER)
    async with asking(server) as client:
        assert (await client.receive()).message == Result(1, {})
    times = [time for _, _, time in server.asked]
    assert 0.5 <= times[1] - times[0] <= 1


@pytest.mark.parametrize(
    ("id_", "sent"),
    [
        ("é\N{GRINNING FACE}", "é\N{GRINNING FACE}".encode()),
        ("a b;c=d", b"a b;c=d"),
        ("x" * 4000, b"x" * 4000),
    ],
)
async def test_an_id_is_given_back_as_the_bytes_that_it_came_as(autojump_clock, id_, sent):
    seen = []

    async def serve(request):
        if request.method == "GET":
            fields = dict(request.headers.raw)
            seen.append({name.lower(): value for name, value in fields.items()}[b"last-event-id"])
        return await server(request)

    server = Server(b"id: %s\ndata:\n\n" % id_.encode(), ANSWER)
    async with asking(serve) as client:
        assert (await client.receive()).message == Result(1, {})
    assert seen == [sent]


@pytest.mark.parametrize("taken_back", [b"id\n\n", b"id:\ndata:\n\n", b"id: \ndata:\n\n"])
async def test_an_id_that_the_server_takes_back_is_no_way_back(autojump_clock, taken_back):
    server = Server(PRIMED + taken_back)
    async with asking(server) as client:
        assert isinstance((await client.receive()).message, Malformed)
    assert len(server.asked) == 1


@pytest.mark.parametrize("bad", [b"id: 9\x00\ndata:\n\n", b"id: 9\n", b"ID: 9\ndata:\n\n"])
async def test_an_id_that_is_none_changes_nothing(autojump_clock, bad):
    server = Server(PRIMED + bad, ANSWER)
    async with asking(server) as client:
        assert (await client.receive()).message == Result(1, {})
    assert [last for _, last, _ in server.asked] == [None, "1-0"]


async def test_the_same_event_again_and_again_is_no_progress(autojump_clock):
    server = Server(PRIMED + NOTE)
    async with asking(server) as client:
        while not isinstance(message := (await client.receive()).message, Malformed):
            assert message == Notification("n")
    assert len(server.asked) == 6


async def test_without_a_session_the_id_is_a_way_back_all_the_same(autojump_clock):
    """Ids of events and sessions are two things that a server may have or not (H8, H9)."""
    server = Server(PRIMED, ANSWER, session=None)
    async with asking(server) as client:
        assert (await client.receive()).message == Result(1, {})
    assert [method for method, _, _ in server.asked] == ["POST", "GET"]


async def test_a_resumed_stream_may_repeat_what_was_there(autojump_clock):
    server = Server(PRIMED + b"id: 1-1\n" + NOTE, b"id: 1-1\n" + NOTE + b"id: 1-2\n" + ANSWER * 2)
    async with asking(server) as client:
        heard = [(await client.receive()).message for _ in range(4)]
    assert heard == [Notification("n"), Notification("n"), Result(1, {}), Result(1, {})]


# -- the stream of what belongs to no request ----------------------------------------------


@contextlib.asynccontextmanager
async def hearing(server):
    """A client that listens on the stream of its session."""
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(server)) as http:
        transport = StreamableHTTPTransport("http://x/mcp", http)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(transport.pump)
            await transport.listen({})
            yield transport
            await transport.aclose()


async def test_the_stream_of_the_session_is_opened_again_from_where_it_ended(autojump_clock):
    server = Server(
        b"id: 1\n" + NOTE + b"retry: 300\n\n",
        NOTE,
        httpx2.ReadError("cut"),
        503,
        b"id: 2\n" + NOTE,
        405,
    )
    async with hearing(server) as client:
        for _ in range(3):
            assert (await client.receive()).message == Notification("n")
        await trio.sleep(60)
    assert [last for _, last, _ in server.asked] == [None, "1", "1", "1", "1", "2"]
    assert server.asked[1][2] - server.asked[0][2] == pytest.approx(0.3)


@contextlib.asynccontextmanager
async def listening(*answers):
    """A client that listens, and a server that answers its GETs with these, the last for ever."""
    web = Web(GET=list(answers))
    async with connected(web, max_event=1000) as client:
        yield web, client


def gets(web):
    return web.of("GET")


@pytest.mark.parametrize("status", [405, 404, 400, 401, 403, 406, 204, 200])
async def test_a_server_that_has_no_such_stream_is_not_asked_again(autojump_clock, status):
    async with listening(status) as (web, client):
        await trio.sleep(3600)
        assert len(gets(web)) == 1
        await client.ping()


@pytest.mark.parametrize(
    "broken",
    [
        lambda a: streaming(),
        lambda a: streaming(b":\n\n"),
        lambda a: streaming(b"data: {", httpx2.ReadError("reset")),
        lambda a: httpx2.ConnectError("refused"),
        500,
        503,
        429,
        408,
        lambda a: streaming(b"data: " + b"x" * 2000),
    ],
    ids=["empty", "comment", "reset", "refused", "500", "503", "429", "408", "too large"],
)
async def test_a_stream_that_breaks_at_once_is_opened_again_ever_more_patiently(
    autojump_clock, broken
):
    async with listening(broken) as (web, client):
        await trio.sleep(3600)
        times = [asked.time for asked in gets(web)]
        pauses = [b - a for a, b in itertools.pairwise(times)]
        assert all(0.5 <= pause <= 30 for pause in pauses)
        assert all(pause >= 15 for pause in pauses[6:])
        assert len(set(pauses[8:])) > 5  # no two clients come at the same moment
        assert 120 <= len(times) <= 260
        assert all("last-event-id" not in asked.headers for asked in gets(web))
        await client.ping()


async def test_a_thousand_quick_breaks_of_a_stream_that_brings_something_are_no_storm(
    autojump_clock,
):
    def answer(asked):
        number = len(gets(web))
        return streaming(event(note(number=number), f"e{number}"))

    web = Web(GET=answer)
    async with connected(web) as client:
        await trio.sleep(1000)
        assert 1000 <= len(gets(web)) <= 2001
        await client.ping()
    first, *others = gets(web)
    assert "last-event-id" not in first.headers
    expected = [f"e{number}" for number in range(1, len(others) + 1)]
    assert [asked.headers["last-event-id"] for asked in others] == expected


async def test_a_server_that_lets_go_is_asked_again_when_it_says(autojump_clock):
    first = lambda a: streaming(b"id: 7\nretry: 7000\ndata:\n\n")  # noqa: E731 - one of many
    async with listening(first, lambda a: streaming(...)) as (web, _):
        await trio.sleep(60)
        one, two = gets(web)
    assert two.time - one.time == pytest.approx(7)
    assert two.headers["last-event-id"] == "7"
    assert two.headers["mcp-session-id"] == "s-1"
    assert two.headers["accept"] == "text/event-stream"
    assert "content-type" not in two.headers


async def test_what_comes_on_a_stream_that_was_opened_again_is_heard(autojump_clock):
    heard = []
    changed = note("notifications/tools/list_changed")
    web = Web(GET=[lambda a: streaming(changed), lambda a: streaming(changed, ...)])
    async with httpx2.AsyncClient(transport=web, timeout=None) as http:
        transport = StreamableHTTPTransport("http://x/mcp", http)
        options = ClientOptions(revisions=("2025-11-25",))
        callbacks = ClientCallbacks(list_changed=heard.append)
        async with MCPClient(transport, callbacks=callbacks, options=options):
            await trio.sleep(10)
    assert heard == ["tools", "tools"]


async def test_an_answer_on_that_stream_is_the_answer(autojump_clock):
    def late(asked):
        return streaming(1, each(result(2, content=["late"])), ...)

    web = Web(GET=late, tools_call=lambda a: streaming(...))
    async with connected(web) as client:
        assert (await client.call("tools/call", {"name": "x"}))["content"] == ["late"]
        await trio.testing.wait_all_tasks_blocked()
        assert web.open == 1


async def test_that_stream_ends_with_the_client(autojump_clock):
    async with listening(lambda a: streaming(...)) as (web, _):
        await trio.sleep(10)
        assert web.open == 1
    assert web.open == 0
