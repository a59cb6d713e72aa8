"""A peer without a mind of its own: the test reads and writes single messages."""

from __future__ import annotations

import trio
import trio.testing

from mcp_trio.abc import Transport
from mcp_trio.engine.envelope import Envelope
from mcp_trio.jsonrpc.messages import (
    Batch,
    Error,
    Malformed,
    Message,
    Notification,
    Request,
    Result,
)
from mcp_trio.wire import JSONObject, RequestId


class ScriptedPeer:
    """One end of a line in the hands of a test.

    For a transport that needs its `pump`, run that in the test's own nursery.
    """

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    async def say(self, message: Message) -> None:
        """Send any message, also one that breaks the protocol."""
        await self.transport.send(Envelope(message))

    async def ask(self, id_: RequestId, method: str, params: JSONObject | None = None) -> None:
        """Send a request."""
        await self.say(Request(id_, method, params))

    async def tell(self, method: str, params: JSONObject | None = None) -> None:
        """Send a notification."""
        await self.say(Notification(method, params))

    async def hear(self, within: float = 5.0) -> Message:
        """Wait for the next message.

        Raises:
            trio.TooSlowError: none came within the given seconds.
            trio.EndOfChannel: the line is closed.
        """
        with trio.fail_after(within):
            return (await self.transport.receive()).message

    async def hear_result(self, within: float = 5.0) -> Result:
        """Wait for the next message and insist that it is a result.

        Raises:
            AssertionError: it is something else.
        """
        message = await self.hear(within)
        if not isinstance(message, Result):
            raise AssertionError(f"expected a result, got {message!r}")
        return message

    async def hear_error(self, within: float = 5.0) -> Error:
        """Wait for the next message and insist that it is an error.

        Raises:
            AssertionError: it is something else.
        """
        message = await self.hear(within)
        if not isinstance(message, Error):
            raise AssertionError(f"expected an error, got {message!r}")
        return message

    async def hear_nothing(self) -> None:
        """Insist that nothing is on its way: everybody else is blocked and no message came.

        Raises:
            AssertionError: there was a message.
        """
        heard: list[Batch | Error | Malformed | Notification | Request | Result] = []
        async with trio.open_nursery() as nursery:

            async def listen() -> None:
                heard.append((await self.transport.receive()).message)

            nursery.start_soon(listen)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        if heard:
            raise AssertionError(f"expected silence, got {heard[0]!r}")
