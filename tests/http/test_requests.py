"""Reading a request: a body with odd lengths announced, and whom a lost peer concerns."""

import pytest
import trio

from mcp_trio.http.budget import Budget
from mcp_trio.http.requests import BodyTooLargeError, HTTPRequest


class Connection:
    """The ASGI extension of our own connection loop."""

    body_arrived = False

    def __init__(self):
        self.callback = None

    def on_disconnect(self, callback):
        self.callback = callback


def request(body=b"{}", *, length="2", connection=None):
    async def receive():
        await trio.lowlevel.checkpoint()
        return {"type": "http.request", "body": body, "more_body": False}

    scope = {
        "headers": [(b"content-length", length.encode("latin-1"))],
        "extensions": {} if connection is None else {"mcp_trio.connection": connection},
    }
    return HTTPRequest.read(scope, receive)


@pytest.mark.parametrize("length", ["²", "x", "", "2, 2", "9" * 5000])
async def test_a_length_that_is_no_number_is_left_to_the_counting_of_bytes(length):
    assert await request(length=length).body(10, 1, Budget(11).claim()) == b"{}"
    with pytest.raises(BodyTooLargeError):
        await request(bytes(11), length=length).body(10, 1, Budget(11).claim())


async def test_a_body_that_announces_too_much_is_refused_unread():
    with pytest.raises(BodyTooLargeError):
        await request(length="11").body(10, 1, Budget(11).claim())


async def test_a_peer_lost_after_the_block_concerns_nobody():
    connection, lost = Connection(), []

    async def work():
        await trio.lowlevel.checkpoint()
        connection.callback()
        return "done"

    watched = request(connection=connection).watched(lambda: lost.append("within"), work)
    assert await watched == "done"
    connection.callback()
    assert lost == ["within"]
