"""What a client says to a server that says what it must not: nothing more than it may (B5, B8)."""

import pytest
import trio.testing

from mcp_trio import ClientCallbacks
from mcp_trio.errors import ProtocolError
from mcp_trio.jsonrpc.messages import Batch, Error, Notification, Request, Result
from mcp_trio.testing import MemoryTransport
from tests.client.scripts import INITIALIZED, scripted

SESSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
STATELESS = "2026-07-28"
RUBBISH = (
    b"{not json",
    b"\xff",
    b"null",
    b"{}",
    b'{"jsonrpc":"2.0","id":null,"method":"ping"}',
    b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}',
    b'{"jsonrpc":"2.0","result":{}}',
    b'{"jsonrpc":"2.0","id":77,"result":{}}',
    b'{"jsonrpc":"2.0","id":77,"result":7}',
    b'{"jsonrpc":"2.0","error":{"code":1,"message":"what?"}}',
    b"[]",
)


async def said_since_opening(script):
    """Wait until the conversation is open; the client's messages from then on."""
    await trio.testing.wait_all_tasks_blocked()
    script.heard.clear()
    return script.heard


async def say_bytes(script, data):
    assert isinstance(script.peer.transport, MemoryTransport)
    await script.peer.transport._outgoing.send(data)


def talk(revision):
    return {"initialize": {**INITIALIZED, "protocolVersion": revision}, "ping": {}}


@pytest.mark.parametrize("revision", [*SESSIONS, STATELESS])
async def test_rubbish_is_answered_by_nothing_and_the_session_goes_on(revision, caplog):
    async with scripted(talk(revision), revisions=(revision,)) as (client, script):
        heard = await said_since_opening(script)
        for data in RUBBISH:
            await say_bytes(script, data)
        await trio.testing.wait_all_tasks_blocked()
        await client.ping()
        assert [message for message in heard if not isinstance(message, Request)] == []
    assert "unreadable message" in caplog.text


async def test_without_a_session_no_request_of_a_server_is_answered(caplog):
    callbacks = ClientCallbacks(roots=list, sampling=lambda params: None)
    answers = talk(STATELESS)
    async with scripted(answers, callbacks=callbacks, revisions=(STATELESS,)) as (client, script):
        heard = await said_since_opening(script)
        for number, method in enumerate(("ping", "roots/list", "sampling/createMessage", "x")):
            await script.peer.say(Request(number, method, {}))
        await say_bytes(script, b'{"jsonrpc":"2.0","id":9,"method":"ping","params":7}')
        await trio.testing.wait_all_tasks_blocked()
        await client.ping()
    assert {type(message) for message in heard} == {Request}
    assert "not answered" in caplog.text


@pytest.mark.parametrize("revision", SESSIONS)
async def test_a_broken_request_that_has_an_id_is_refused_under_it(revision):
    async with scripted(talk(revision), revisions=(revision,)) as (_, script):
        heard = await said_since_opening(script)
        await say_bytes(script, b'{"jsonrpc":"2.0","id":9,"method":"ping","params":7}')
        await script.peer.say(Request(10, "ping"))
        await trio.testing.wait_all_tasks_blocked()
    refusal, pong = heard
    assert (type(refusal), refusal.id, refusal.code) == (Error, 9, -32600)
    assert pong == Result(10, {})


async def test_an_array_is_taken_in_the_revision_that_has_arrays():
    def in_an_array(request):
        return Batch((Notification("n"), Request(5, "ping"), Result(request.id, {"tools": []})))

    answers = {**talk("2025-03-26"), "tools/list": in_an_array}
    async with scripted(answers, revisions=("2025-03-26",)) as (client, script):
        heard = await said_since_opening(script)
        assert (await client.list_tools()).tools == []
        await trio.testing.wait_all_tasks_blocked()
    assert heard[-1] == Batch((Result(5, {}),))


@pytest.mark.parametrize("revision", [each for each in SESSIONS if each != "2025-03-26"])
async def test_an_answer_in_an_array_ends_its_call_where_there_are_no_arrays(revision):
    def in_an_array(request):
        return Batch((Result(request.id, {"tools": []}), Result(99, {})))

    answers = {**talk(revision), "tools/list": in_an_array}
    async with scripted(answers, revisions=(revision,)) as (client, _):
        with pytest.raises(ProtocolError, match="it came in a batch"):
            await client.list_tools()
        await client.ping()
