"""Every message that we send is what the official schema of its revision says (X3, T5)."""

from __future__ import annotations

import pytest

from mcp_trio.wire import METHODS, REVISIONS, Revision
from mcp_trio.wire.elicitation import forms_exist
from mcp_trio.wire.methods import Sender
from tests.scenarios.everything import play
from tests.scenarios.quarrels import TRANSPORTS, quarrel
from tests.scenarios.worlds import TAPPED
from tests.wire.official import Conversation

revisions = pytest.mark.parametrize("revision", REVISIONS, ids=str)


def methods(revision: Revision, sender: Sender) -> set[str]:
    """What one side can say in a revision."""
    return {
        method.name
        for method in METHODS.values()
        if sender in method.sender and method.exists_in(revision)
    }


def methods_said(talk: Conversation, sender: str) -> set[str]:
    return {what for who, what in talk.said if who == sender and " " not in what}


@revisions
@pytest.mark.parametrize("transport", TAPPED)
async def test_everything_that_can_be_said_is_what_its_schema_says(
    transport, revision, autojump_clock
):
    talk = await play(revision, transport)
    assert talk.faults == []
    assert talk.judged > 140
    # Nothing was forgotten: both sides have said what they can, and every request was answered.
    said = methods_said(talk, "client")
    unsaid = {"notifications/progress"}  # a client of ours reports none
    if transport == "http" and revision.stateless:
        unsaid.add("notifications/cancelled")  # the stream is closed instead
    assert methods(revision, Sender.CLIENT) - said == unsaid
    requests = {f"result {name}" for name in said if METHODS[name].result is not None}
    assert requests <= {what for _, what in talk.said}
    unsaid = {"ping"} & methods(revision, Sender.SERVER)  # a server of ours sends none
    if revision.stateless or not forms_exist(revision):
        unsaid.add("notifications/cancelled")  # takes back a form that a user is slow with
    assert methods(revision, Sender.SERVER) - methods_said(talk, "server") == unsaid


@revisions
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_what_is_answered_to_everything_wrong_is_what_its_schema_says(transport, revision):
    talk = await quarrel(revision, transport)
    assert talk.faults == []
    assert talk.judged >= 33
    refused = {what for who, what in talk.said if who == "server" and what.startswith("error")}
    assert {"error", "error None", "error 5", "error no/such/method"} <= refused
    called = ["tools/call", "tools/list", "resources/read"]
    called += ["server/discover", "initialize"] if revision.stateless else ["logging/setLevel"]
    assert {f"error {name}" for name in called} <= refused
