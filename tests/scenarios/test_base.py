"""The base of it all: messages, ids, answers and what gets none."""

import json

import pytest
import trio
import trio.testing

from tests.http.tools import make_server
from tests.scenarios.manifest import scenario
from tests.scenarios.peers import house, peer_of


@scenario("B1")
async def test_messages_are_json_rpc_2_in_utf_8(transport, revision):
    server, _ = make_server()
    async with peer_of(server, transport, revision) as peer:
        text = "\u00fc\u2028\U0001f600"
        assert text in (await peer.call("echo", {"value": {"text": text}}))["content"][0]["text"]
        assert all(message["jsonrpc"] == "2.0" for message in peer.heard)
