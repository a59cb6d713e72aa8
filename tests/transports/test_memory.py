import pytest
import trio

from mcp_trio.engine.envelope import Envelope
from mcp_trio.errors import TransportError
from mcp_trio.jsonrpc.messages import Notification
from mcp_trio.testing import MemoryTransport, check_transport


@pytest.mark.parametrize("encode", [True, False])
async def test_memory_passes_the_battery(encode, autojump_clock):
    async def make():
        return MemoryTransport.pair(encode=encode)

    async def half_close(end):
        await end._outgoing.aclose()

    await check_transport(make, half_close=half_close)


async def test_messages_go_through_the_codec_unless_told_otherwise():
    params = {"tuple": (1, 2)}
    for encode, wanted in ((True, {"tuple": [1, 2]}), (False, {"tuple": (1, 2)})):
        left, right = MemoryTransport.pair(encode=encode)
        await left.send(Envelope(Notification("n", params)))
        assert (await right.receive()).message.params == wanted
        await left.aclose()
        await right.aclose()


async def test_sending_to_a_closed_end_is_a_transport_error():
    left, right = MemoryTransport.pair()
    await right.aclose()
    with pytest.raises(TransportError):
        await left.send(Envelope(Notification("n")))
    await left.aclose()


async def test_receiving_on_an_end_closed_by_oneself_is_the_end():
    left, right = MemoryTransport.pair()
    await left.aclose()
    with pytest.raises(trio.EndOfChannel):
        await left.receive()
    await right.aclose()


async def test_a_close_that_is_cancelled_closes_both_directions():
    left, right = MemoryTransport.pair()
    with trio.CancelScope() as scope:
        scope.cancel()
        await left.aclose()
    for end in (left, right):
        with pytest.raises(trio.EndOfChannel):
            await end.receive()
    await right.aclose()
