"""What a server owes its clients, as a table: every rule we keep, and where it can be seen.

A row has the id of a requirement, one sentence in our own words, and the transports and
revisions in which it applies. `scenario` makes a test of this folder show a rule: the test
is run in each of these worlds, and `test_manifest.py` fails for a rule that is not shown in
all of them. Left out are rules for clients, hosts and authors of tools, and what nobody can
observe from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import attrs
import pytest

from mcp_trio.wire import REVISIONS, Revision
from mcp_trio.wire.revisions import (
    HANDSHAKE,
    R2024_11_05,
    R2025_03_26,
    R2025_06_18,
    R2025_11_25,
    R2026_07_28,
)

World = tuple[str, Revision]

EVERY = ("memory", "stdio", "http", "sse", "websocket")
LINES = ("memory", "stdio", "websocket")
"""One connection carries everything, in both eras."""
HTTP = ("http",)
NETWORK = ("http", "sse", "websocket")

ALL = REVISIONS
OLD = HANDSHAKE
NEW = (R2026_07_28,)
SINCE_2 = tuple(r for r in ALL if r >= R2025_03_26)
SINCE_3 = tuple(r for r in ALL if r >= R2025_06_18)
SINCE_4 = tuple(r for r in ALL if r >= R2025_11_25)
STREAMABLE = tuple(r for r in OLD if r >= R2025_03_26)
"""Handshake revisions that know Streamable HTTP."""


@attrs.frozen
class Rule:
    """One row."""

    id: str
    owes: str
    transports: tuple[str, ...] = EVERY
    revisions: tuple[Revision, ...] = ALL
    must: bool = True
    """False for advice that this server follows all the same."""

    @property
    def worlds(self) -> list[World]:
        """Where it applies. HTTP+SSE is a transport of handshake clients."""
        return [
            (transport, revision)
            for transport in self.transports
            for revision in self.revisions
            if not (transport == "sse" and revision.stateless)
        ]


def advice(*args: Any) -> Rule:
    """A row that is not a must."""
    return Rule(*args, must=False)


_ROWS = (
    # -- messages ------------------------------------------------------------------
    Rule("B1", "Speak JSON-RPC 2.0 in UTF-8 and say so in every message; refuse anything else."),
    Rule(
        "B2",
        "Take a string or an integer as the id of a request, nothing else, and tell two "
        "running requests apart by it.",
    ),
    Rule(
        "B3",
        "Answer under the id that was asked with, with a result or with an error that has a "
        "code and a text, never both.",
    ),
    Rule("B4", "Answer no notification, whatever is in it, not even with an error."),
    Rule(
        "B5",
        "Take arrays of messages in the one revision that has them, without an initialize "
        "inside, and refuse them afterwards.",
        EVERY,
        SINCE_2,
    ),
    Rule("B6", "Say in each result which kind of result it is.", EVERY, NEW),
    Rule("B7", "Keep the kind of a result away from clients that do not know it.", EVERY, OLD),
    Rule("B8", "Send nothing but answers and notifications, and take no answers.", EVERY, NEW),
    Rule("B9", "Remember nothing of an earlier request on the same connection.", EVERY, NEW),
    Rule(
        "B10",
        "Refuse a request that does not say its version and its capabilities; serve one that "
        "does not say who asks.",
        EVERY,
        NEW,
    ),
    Rule("B11", "Put the id of the request into the error, for whatever reason it is refused."),
    advice("B12", "Let fields and `_meta` keys pass that nobody knows."),
    Rule("0b", "Know each method in the revisions that have it and in no other."),
    # -- versions ------------------------------------------------------------------
    Rule(
        "V1",
        "Speak the version that was asked for, and offer another one instead of an unknown one.",
        EVERY,
        OLD,
    ),
    Rule(
        "V2",
        "Refuse a version nobody speaks with the list of those that are spoken and the one "
        "that was asked for.",
        EVERY,
        NEW,
    ),
    Rule(
        "V3",
        "Tell on request which versions are spoken and what is offered, the same list as in a "
        "refusal.",
        EVERY,
        NEW,
    ),
    Rule("V4", "Declare what there is, and know no method of what was not declared."),
    Rule(
        "V5",
        "Judge each message by itself: one with its version inside is served alone, the rest "
        "in its session, beside each other.",
    ),
    Rule(
        "V6", "Know no method of the handshake era in a request of the stateless one.", EVERY, NEW
    ),
    Rule(
        "V11",
        "Offer no extension unasked, and serve clients that know some as any other.",
        EVERY,
        SINCE_4,
    ),
    Rule("V12", "Refuse what needs a capability this very request lacks, and name it.", EVERY, NEW),
    advice("V13", "Treat every client alike, whatever it calls itself."),
    # -- handshake -----------------------------------------------------------------
    advice(
        "LC2",
        "Before the handshake answer a ping and nothing else, and send nothing unasked.",
        EVERY,
        OLD,
    ),
    Rule(
        "LC3",
        "Send nothing that the agreed version or the declared capabilities do not have.",
        EVERY,
        SINCE_3,
    ),
    advice("LC5", "Let a request have its time and no more, and say so when it is over."),
    Rule(
        "LC6", "Answer a ping at once with an empty result, also before the handshake.", EVERY, OLD
    ),
    # -- stdio and other lines -----------------------------------------------------
    Rule("D1", "Write one message per line and nothing else.", ("stdio",)),
    advice(
        "D2",
        "Leave soon after the input has ended, with the answers that were nearly there.",
        ("stdio",),
    ),
    Rule(
        "D3", "Stop a request on notifications/cancelled and send nothing more for it.", ("stdio",)
    ),
    advice("D5", "Serve other streams of bytes and of messages as stdio.", ("unix", "websocket")),
    Rule("D6", "Write no request, and read no answer.", ("stdio",), NEW),
    # -- Streamable HTTP with sessions ---------------------------------------------
    Rule(
        "H1",
        "Serve POST and GET on one path and turn away requests of foreign web pages.",
        HTTP,
        STREAMABLE,
    ),
    Rule(
        "H3",
        "Accept notifications and answers without a body; answer requests with JSON or a stream.",
        HTTP,
        STREAMABLE,
    ),
    advice(
        "H4",
        "Send what belongs to a request before its answer, then close the stream.",
        HTTP,
        STREAMABLE,
    ),
    advice(
        "H5",
        "Open a stream with an event that has only an id, and say when to come back before "
        "closing one early.",
        HTTP,
        (R2025_11_25,),
    ),
    Rule("H6", "Serve GET as a stream that carries no answers.", HTTP, STREAMABLE),
    Rule("H7", "Send each message on one stream.", HTTP, STREAMABLE),
    Rule(
        "H8",
        "Give events ids that are unique in the session, and replay only the stream they name.",
        HTTP,
        STREAMABLE,
    ),
    Rule(
        "H9",
        "Name the session in visible ASCII, insist on the name, and know it no more after its end.",
        HTTP,
        STREAMABLE,
    ),
    advice("H10", "Let a client end its session.", HTTP, STREAMABLE),
    Rule(
        "H11",
        "Refuse a version in the header that is not the session's; assume the usual one "
        "without a header.",
        HTTP,
        tuple(r for r in OLD if r >= R2025_06_18),
    ),
    Rule("H12", "Make names of sessions that nobody can guess.", HTTP, STREAMABLE),
    advice("H13", "Go on with a request whose connection is lost.", HTTP, STREAMABLE),
    advice("H14", "Serve clients of HTTP+SSE beside the endpoint.", ("sse",), (R2024_11_05,)),
    # -- Streamable HTTP without sessions ------------------------------------------
    Rule("N1", "Serve POST only, and care neither for session names nor for event ids.", HTTP, NEW),
    Rule("N2", "Turn away requests of foreign web pages.", HTTP, NEW),
    Rule("N4", "Accept a notification without a body.", HTTP, NEW),
    Rule(
        "N5",
        "Answer with JSON, or with a stream of what belongs to the request and then its answer.",
        HTTP,
        NEW,
    ),
    advice("N6", "Keep proxies from holding streams back, and keep quiet ones alive.", HTTP, NEW),
    Rule("N7", "End a request when its client closes the stream.", HTTP, NEW),
    Rule("N8", "Refuse a version header that is not the one inside the message.", HTTP, NEW),
    Rule(
        "N10",
        "Refuse a request whose method or name is missing in the headers or differs from the body.",
        HTTP,
        NEW,
    ),
    Rule(
        "N11",
        "Say of an unknown method that it is not found, with an error that tells it from a "
        "wrong path.",
        HTTP,
        NEW,
    ),
    Rule("N12", "List no tool whose mirrored arguments are declared wrongly.", HTTP, NEW),
    Rule(
        "N15",
        "Decode an encoded header before comparing it, and refuse one that cannot be decoded.",
        HTTP,
        NEW,
    ),
    Rule(
        "N16",
        "Refuse a mirrored argument that is missing, differs or cannot be read; want none for "
        "an argument that is absent.",
        HTTP,
        NEW,
    ),
    # -- HTTP+SSE ------------------------------------------------------------------
    Rule(
        "E1",
        "Name the address for messages in the first event, send every message as an event, "
        "and turn away foreign web pages.",
        ("sse",),
        OLD,
    ),
    # -- cancellation and progress -------------------------------------------------
    Rule(
        "C1",
        "Stop a request its client takes back and do not answer it; ignore a cancellation of "
        "anything else.",
    ),
    Rule("C3", "Send no cancellation for a request of the client.", LINES, NEW),
    Rule(
        "P1",
        "Report progress under the token of a running request, in growing steps, and never "
        "after its answer.",
    ),
    # -- rounds --------------------------------------------------------------------
    Rule("R1", "Answer with a question only where the protocol allows one.", EVERY, NEW),
    Rule(
        "R2",
        "Put questions under keys of our own, without ids, with something to come back with.",
        EVERY,
        NEW,
    ),
    Rule("R3", "Ask nothing that this request does not offer.", EVERY, NEW),
    Rule(
        "R6",
        "Trust a state that comes back only if it is ours, unchanged, young and of the same call.",
        EVERY,
        NEW,
    ),
    advice(
        "R7",
        "Check the answers, ask again for what is missing, ignore what was not asked, and "
        "count the rounds.",
        EVERY,
        NEW,
    ),
    Rule("R9", "Let no question be cached.", EVERY, NEW),
    # -- subscriptions -------------------------------------------------------------
    Rule(
        "U2",
        "Acknowledge a subscription first, with the part that is served, and send nothing "
        "else than that part.",
        EVERY,
        NEW,
    ),
    Rule("U3", "Name the subscription in everything that is sent for it.", EVERY, NEW),
    advice("U4", "Serve several subscriptions of one client.", EVERY, NEW),
    advice("U5", "End a subscription with an empty result.", EVERY, NEW),
    Rule("U6", "Send no log line and no progress for a subscription.", EVERY, NEW),
    advice("U7", "Tell subscribers of changed lists.", EVERY, NEW),
    Rule(
        "U8",
        "Tell a session when a resource changes for as long as it is subscribed to it.",
        EVERY,
        OLD,
    ),
    # -- tools ---------------------------------------------------------------------
    Rule("T1", "List the tools, the same for everybody and in one order."),
    advice("T2", "Take only names that clients can rely on."),
    Rule("T3", "Give each tool a schema of an object, also one without arguments."),
    Rule(
        "T4", "Hold a structured result to its schema, and say it in text as well.", EVERY, SINCE_3
    ),
    Rule("T5", "Return content of every kind, in words where the revision does not know the kind."),
    Rule(
        "T7",
        "Answer a call of an unknown tool with an error and a failure of a known one with a "
        "result.",
    ),
    Rule("T8", "Check arguments before a tool sees them."),
    advice("T9", "Tell when the list of tools changes."),
    # -- JSON Schema ---------------------------------------------------------------
    Rule(
        "J1",
        "Read schemas as 2020-12 unless they name another dialect, and pass unknown keywords on.",
        EVERY,
        SINCE_4,
    ),
    Rule("J2", "Fetch no schema from the network.", EVERY, NEW),
    advice("J3", "Bound what checking against a schema may cost."),
    # -- prompts, resources, completion --------------------------------------------
    Rule("O1", "List and read resources and templates: text or base64, under the URI asked for."),
    Rule(
        "O2",
        "Say that a resource does not exist, in the code of the revision, and never with "
        "empty contents.",
    ),
    Rule("O3", "Keep a URI from reaching outside of what its template means."),
    Rule(
        "O4", "List prompts, fill them with strings, and refuse unknown ones and missing arguments."
    ),
    Rule(
        "O5",
        "Complete arguments of known prompts and templates, a hundred values at most, and "
        "nothing else.",
    ),
    advice("O6", "Tell when the lists of prompts and resources change."),
    # -- paging and caching --------------------------------------------------------
    Rule("K1", "Page long lists with opaque cursors and refuse a cursor that is not ours."),
    Rule(
        "K2",
        "Say of each list, of a read resource and of oneself how long it is fresh, and for whom.",
        EVERY,
        NEW,
    ),
    Rule("K4", "Give every page of a list the same audience.", EVERY, NEW),
    # -- logging -------------------------------------------------------------------
    Rule(
        "G1",
        "Send log lines at the level the client wants and above, and refuse a level that does "
        "not exist.",
    ),
    Rule("G2", "Keep the inside of a failure out of everything that is sent."),
    # -- asking the client ---------------------------------------------------------
    Rule(
        "F1", "Ask for what was declared: at the handshake in one era, in the request in the other."
    ),
    Rule(
        "F3",
        "Offer a model tools only if it takes them, and only talks whose tool uses are answered.",
        EVERY,
        SINCE_4,
    ),
    Rule("F4", "Ask with flat forms, and take content only with a yes.", EVERY, SINCE_3),
    Rule("F5", "Hold an answer to its form, and live with a no.", EVERY, SINCE_3),
    Rule(
        "F7",
        "Name a visit to a page where the revision names them, and nowhere else.",
        EVERY,
        SINCE_4,
    ),
    Rule("F9", "Ask only while a request of the client is running."),
    # -- errors, meta --------------------------------------------------------------
    Rule("19", "Say what went wrong in the code and the HTTP status of the era."),
    Rule("ME1", "Use well-formed `_meta` keys."),
    Rule("ME2", "Read reserved `_meta` keys as what they mean and ignore the rest."),
    Rule("ME3", "Say who answers in each result; take trace keys of any form.", EVERY, NEW),
    # -- decided once --------------------------------------------------------------
    Rule("A1", "End a subscription with its result, on every transport.", EVERY, NEW),
    Rule("A3", "Want no headers for a notification.", HTTP, NEW),
    Rule(
        "A4",
        "Tell the model, not the client, that arguments do not fit their schema.",
        EVERY,
        SINCE_4,
    ),
    Rule("A5", "Say how long results are fresh on six methods and on no other.", EVERY, NEW),
    Rule("A6", "Hold a stream back until there is something to send on it.", HTTP, NEW),
    Rule("A7", "Say who answers in `_meta`, and let a client say nothing of itself.", EVERY, NEW),
    Rule("A8", "Send no error code that the protocol gives another meaning."),
    Rule("A9", "Serve a client that knows but the handshake, ping and tools.", HTTP, STREAMABLE),
    Rule("A10", "Close the stream of a request that was taken back.", HTTP, OLD),
    # -- rules of this engine ------------------------------------------------------
    Rule("X1", "Serve both eras with one handler, also one that asks."),
    Rule("X2", "Ask on the stream of the request that asks.", HTTP, STREAMABLE),
    Rule("X3", "Show both eras the same list in the same order, each with the fields it knows."),
    Rule("X4", "Tell one change to everybody who listens, and a burst of them once."),
    Rule("X5", "Filter log lines in the same way in both eras."),
    Rule("X6", "End all of a request, whatever ends it."),
    Rule("X7", "Keep equal ids of two clients apart."),
    Rule("X9", "Look versions up and never order them."),
    Rule("X12", "Go down gently: no new work, an end for what has none, time for the rest."),
    # -- security ------------------------------------------------------------------
    Rule("SEC2", "Have a bound for everything a client can make large."),
    Rule("SEC3", "Serve only names and web origins that are ours.", NETWORK),
)

RULES: dict[str, Rule] = {row.id: row for row in _ROWS}
if len(RULES) != len(_ROWS):
    raise ValueError("an id stands twice in the manifest")


def worlds_of(*ids: str) -> list[World]:
    """The worlds in which any of the rules applies, in the order of the table."""
    return list(dict.fromkeys(world for id_ in ids for world in RULES[id_].worlds))


def in_worlds(worlds: Iterable[World]) -> pytest.MarkDecorator:
    """Run a test in each of these worlds."""
    listed = list(worlds)
    names = [f"{transport}-{revision}" for transport, revision in listed]
    return pytest.mark.parametrize(("transport", "revision"), listed, ids=names)


def shows(*ids: str) -> Callable[[Any], Any]:
    """Say which rules a test shows in the worlds that its own parameters name."""
    return pytest.mark.scenario(*ids)


def scenario(
    *ids: str,
    transports: tuple[str, ...] | None = None,
    revisions: tuple[Revision, ...] | None = None,
) -> Callable[[Any], Any]:
    """Say which rules a test shows, and run it in every world in which one of them applies.

    Args:
        *ids: of the rules.
        transports: only these; then other tests have to show the rest.
        revisions: likewise.
    """
    worlds = [
        (transport, revision)
        for transport, revision in worlds_of(*ids)
        if (transports is None or transport in transports)
        and (revisions is None or revision in revisions)
    ]

    def mark(function: Any) -> Any:
        return shows(*ids)(in_worlds(worlds)(function))

    return mark
