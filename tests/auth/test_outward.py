"""The requests of a flow: to where they may go, for how long, and how much is read."""

import httpcore2
import httpx2
import pytest
import trio

from mcp_trio.auth.outward import ASK_TIMEOUT, MAX_BODY, SETTLE_TIMEOUT, Outward
from mcp_trio.auth.steps import Ask
from mcp_trio.network_guard import Guard, NetworkPolicy


def question(url="https://as.example/x", **changes):
    return Ask(method="GET", url=url, **changes)


class Answering(httpx2.AsyncBaseTransport):
    def __init__(self, answer):
        self.answer = answer

    async def handle_async_request(self, request):
        return await self.answer(request)


async def ask(answer, **changes):
    async with Outward(NetworkPolicy(), Answering(answer)) as outward:
        return await outward.ask(question(**changes))


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:10.0.0.1"]
)
async def test_a_name_that_leads_to_a_private_address_is_not_followed(address):
    async def resolver(host, port):
        await trio.lowlevel.checkpoint()
        return [address]

    async with Outward(NetworkPolicy(), resolver=resolver) as outward:
        answer = await outward.ask(question())
    assert (answer.status, answer.reason) == (0, "is at an address that must not be reached")


def test_a_host_that_a_peer_names_is_not_trusted_because_of_its_name():
    guard = Guard(host=None)
    assert guard.refusal("127.0.0.1", "127.0.0.1") is not None
    assert guard.refusal("localhost", "127.0.0.1") is not None
    assert guard.refusal("10.0.0.1", "10.0.0.1") is not None
    assert guard.refusal("as.example", "93.184.216.34") is None
    allowing = Guard(host=None, policy=NetworkPolicy(allow_private=True))
    assert allowing.refusal("localhost", "127.0.0.1") is None
    assert allowing.refusal("169.254.169.254", "169.254.169.254") is not None


@pytest.mark.parametrize(
    "failure",
    [httpx2.ConnectError("x"), httpcore2.ConnectError("x"), httpcore2.RemoteProtocolError("x")],
)
async def test_a_failure_is_an_answer_that_does_not_repeat_it(failure):
    async def fail(request):
        await trio.lowlevel.checkpoint()
        raise failure

    answer = await ask(fail)
    assert (answer.status, answer.reason) == (0, f"cannot be reached ({type(failure).__name__})")


@pytest.mark.parametrize(("settles", "limit"), [(False, ASK_TIMEOUT), (True, SETTLE_TIMEOUT)])
async def test_silence_ends(autojump_clock, settles, limit):
    async def wait(request):
        await trio.sleep_forever()

    began = trio.current_time()
    answer = await ask(wait, settles=settles)
    assert (answer.status, answer.reason) == (0, "did not answer in time")
    assert trio.current_time() - began == limit


async def test_an_answer_that_never_ends_is_cut_off():
    given = 0

    class Endless(httpx2.AsyncByteStream):
        async def __aiter__(self):
            nonlocal given
            while True:
                given += 65536
                await trio.lowlevel.checkpoint()
                yield bytes(65536)

    async def answer(request):
        await trio.lowlevel.checkpoint()
        return httpx2.Response(200, stream=Endless())

    assert (await ask(answer)).reason == "answered too much"
    assert given <= MAX_BODY + 2 * 65536


async def test_an_answer_is_read_whole_and_a_redirect_is_not_followed():
    async def answer(request):
        await trio.lowlevel.checkpoint()
        return httpx2.Response(302, headers={"Location": "https://x"}, content=b"body")

    found = await ask(answer)
    assert (found.status, found.body, found.headers["location"]) == (302, b"body", "https://x")


async def test_a_code_is_not_sent_over_a_connection_that_may_be_closing():
    """The server closes what it has heard nothing of, just when the person is back."""
    connections = 0

    async def serve(stream):
        nonlocal connections
        connections += 1
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        await stream.receive_some()
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, serve, 0)
        url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/"
        async with Outward(NetworkPolicy(allow_private=True)) as outward:
            assert (await outward.ask(question(url))).status == 200
            with trio.fail_after(10):
                answer = await outward.ask(question(url, body=b"code=c", settles=True))
        nursery.cancel_scope.cancel()
    assert (answer.status, connections) == (200, 2)
