"""Messages that are nearly right, by the thousand, on every transport and in every revision.

Whatever is said, the server answers what can be answered, once and in valid JSON-RPC, logs no
error, keeps no books open, and serves the client, and every other one, as before.
"""

import copy
import json
import logging
from typing import Any

import hypothesis
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio.jsonrpc import codec
from mcp_trio.jsonrpc.messages import Batch, Error, Malformed, Notification, Request, Result
from mcp_trio.session.dispatch import UNTIMED
from mcp_trio.wire import REVISIONS, Revision
from tests.scenarios.peers import CAPABILITIES, VERSION, house
from tests.scenarios.servers import full_server, uses
from tests.scenarios.worlds import WORLDS

NUMBERS = st.one_of(
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0, -1, 2**53, 2**63, 2**64, -(2**63) - 1, 10**300, 1e308, 1.5, -0.0]),
)
TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        ["", "1", "\x00", "\ud800", "\u2028", "test://note", "\U0001f600" * 9, "a" * 600]
    ),
)
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
JUNK = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=6,
)


def places(value: Any, path: tuple = ()) -> list[tuple]:
    """Every place in a JSON value, as a path."""
    found = [path]
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            found += places(inner, (*path, key))
    return found


def put(value: Any, path: tuple, new: Any) -> Any:
    """The value with something else at a place; `...` takes the place away."""
    if not path:
        return new
    value = copy.deepcopy(value)
    *way, last = path
    inner = value
    for key in way:
        inner = inner[key]
    if new is ...:
        del inner[last]
    else:
        inner[last] = new
    return value


@st.composite
def messages(draw, revision, meta):
    """A message with up to three faults in it, as a value."""
    method = draw(
        st.sampled_from(
            [
                *uses(revision),
                "initialize",
                "notifications/cancelled",
                "notifications/progress",
                "notifications/initialized",
                "tools/call",
            ]
        )
    )
    params = copy.deepcopy(uses(revision).get(method, {}))
    if method == "tools/call":
        params["name"] = draw(st.sampled_from(["add", "report", "echo", "chat", "think"]))
    if meta or draw(st.booleans()):
        params["_meta"] = {**meta, "progressToken": draw(st.sampled_from([1, "a"]))}
    message = {"jsonrpc": "2.0", "method": method, "params": params}
    if not method.startswith("notifications/"):
        message["id"] = draw(st.sampled_from([1, 2, "1", "x"]))
    for _ in range(draw(st.integers(0, 3))):
        new = draw(st.one_of(JUNK, st.just(...)))
        place = draw(st.sampled_from(places(message)))
        message = put(message, place, {} if new is ... and not place else new)
        if not isinstance(message, dict):
            break
    return message


@st.composite
def blobs(draw, revision, meta):
    """Bytes of a message, or of several in an array, sometimes damaged."""
    one = messages(revision, meta)
    value = draw(st.one_of(one, one, st.lists(st.one_of(one, JUNK), max_size=4)))
    data = json.dumps(value, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    match draw(st.integers(0, 9)):
        case 0:
            data = data[: draw(st.integers(0, len(data)))]
        case 1:
            at = draw(st.integers(0, len(data)))
            data = data[:at] + draw(st.binary(max_size=4)) + data[at:]
        case 2:
            at = draw(st.integers(0, max(0, len(data) - 1)))
            data = data[:at] + data[at + 1 :]
        case 3:
            data = data.replace(b'"method"', b'"id":5,"method"', 1)
    return data.replace(b"\n", b" ")


def ids_of(data: bytes) -> list[Any]:
    """The ids that answers to these bytes may have, one for each answer."""
    message = codec.decode(data)
    items = message.items if isinstance(message, Batch) else (message,)
    found = [None]
    for item in items:
        match item:
            case Request():
                found.append(item.id)
            case Malformed(answer=Error() as answer):
                found.append(answer.id)
    return found


def check(sent: list[bytes], heard: list[Any]) -> None:
    """Look at everything a server has said to one client."""
    owed = [repr(id_) for data in sent for id_ in ids_of(data)]
    for message in heard:
        read = codec.decode(json.dumps(message).encode())
        assert isinstance(read, Request | Result | Error | Notification), message
        if isinstance(read, Result | Error):
            assert repr(read.id) in owed, message
            owed.remove(repr(read.id))
    # Those in an array may be refused together, and one that listens may listen on.
    single = [message for data in sent if isinstance(message := codec.decode(data), Request)]
    for id_ in {repr(message.id) for message in single if message.method not in UNTIMED}:
        asked = [message for message in single if repr(message.id) == id_]
        answered = [message for message in heard if repr(message.get("id")) == id_]
        assert len(answered) >= len([m for m in asked if m.method not in UNTIMED]), asked


async def trial(transport: str, revision: Revision, hostile: list[bytes], opened: bool) -> None:
    """Let one client say it all, `opened` or not, and see that nobody else notices."""
    server, _ = full_server()
    async with house(server, transport) as place:
        other = await place.connect(revision)
        peer = await place.connect(revision, opened=opened)
        before = len(peer.heard)
        for data in hostile:
            try:
                value = json.loads(data)
            except ValueError:
                value = None
            if not data.isascii() or b"\\u" in data:
                value = None  # what no header can carry
            await peer.write(data, value)
        await trio.testing.wait_all_tasks_blocked()
        check(hostile, peer.heard[before:])
        canary = "server/discover" if revision.stateless else "ping"
        assert "result" in await peer.ask(canary, id_="canary") or not opened
        assert (await other.call("add", {"a": 1, "b": 2}))["content"][0]["text"] == "3"
        await peer.hang_up()
        await trio.testing.wait_all_tasks_blocked()
        assert len(other.heard) <= 3


def meta_of(revision: Revision) -> dict[str, Any]:
    return {VERSION: revision.date, CAPABILITIES: {}} if revision.stateless else {}


@st.composite
def quarrels(draw, transport):
    """A revision that the transport carries, and what is said in it."""
    revision = draw(st.sampled_from([r for r in REVISIONS if (transport, r) in WORLDS]))
    said = draw(st.lists(blobs(revision, meta_of(revision)), min_size=1, max_size=6))
    return revision, said, draw(st.booleans())


@pytest.mark.parametrize("transport", ["memory", "stdio", "websocket", "sse", "http"])
def test_what_is_nearly_right_does_no_harm(transport, caplog):
    @hypothesis.settings(max_examples=25, derandomize=True, database=None)
    @given(quarrels(transport))
    def run(quarrel):
        trio.run(trial, transport, *quarrel)
        assert [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR] == []

    run()
