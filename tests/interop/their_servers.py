"""Other people's servers as our client finds them: how each is reached, and who answers them."""

import contextlib
import os
from pathlib import Path

import attrs
import httpx2
import trio

from benchmarks.processes import serving
from mcp_trio import Command, MCPClient
from mcp_trio.client.answers import ClientCallbacks
from mcp_trio.client.options import ClientOptions
from mcp_trio.wire import TextContent
from mcp_trio.wire.elicitation import ElicitResult
from mcp_trio.wire.revisions import REVISIONS
from mcp_trio.wire.roots import Root
from mcp_trio.wire.sampling import CreateMessageResult

HANDSHAKE = tuple(revision for revision in REVISIONS if not revision.stateless)
STATELESS = tuple(revision for revision in REVISIONS if revision.stateless)
DEADLINE = 60.0
"""Seconds for one connection and all that is done with it."""
FORM = {"name": "Ada", "check": True, "firstLine": "Call me Ishmael.", "integer": 7}
PATHS = {"http": "/mcp", "sse": "/sse", "stdio": None}
"""Where an HTTP server of Node has a transport."""


class User:
    """Whoever sits at our client: the user, the model, the roots, and what they are told.

    What a question is answered with may be changed between questions.
    """

    def __init__(self):
        self.asked = []
        """What the server asked for, in order: the kind, and what came with it."""
        self.told = []
        """What it told without being asked: the kind, and what of."""
        self.form = FORM
        self.page = "accept"
        self.roots = [Root(uri="file:///srv/data", name="data")]
        self._news = trio.Event()

    def callbacks(self, *offered):
        """The callbacks that the client declares, all by default, beside those that only hear."""
        answers = {
            "sampling": self._sample,
            "elicitation": self._fill_in,
            "elicitation_url": self._open,
            "roots": self._list_roots,
        }
        chosen = {name: answers[name] for name in offered or answers}
        return ClientCallbacks(
            logging=lambda line: self._hear("log", line),
            list_changed=lambda kind: self._hear("list", kind),
            resource_updated=lambda uri: self._hear("resource", uri),
            **chosen,
        )

    async def _sample(self, params):
        self.asked.append(("model", params))
        (question,) = [block.text for block in params.messages[0].content]
        return CreateMessageResult(
            role="assistant", content=[TextContent(text=f"Re: {question}")], model="oracle-1"
        )

    async def _fill_in(self, params):
        self.asked.append(("form", params))
        return self.form

    def _open(self, params):
        self.asked.append(("page", params))
        return ElicitResult(action=self.page)

    def _list_roots(self):
        self.asked.append(("roots", None))
        self._news.set()
        return self.roots

    def _hear(self, kind, what):
        self.told.append((kind, what))
        self._news.set()

    def heard(self, kind):
        """What was told of a kind, so far."""
        return [what for told, what in self.told if told == kind]

    async def wait_for(self, found):
        """Wait until a function finds something in what was told or asked, and return it."""
        while not (seen := found()):
            self._news = trio.Event()
            await self._news.wait()
        return seen


@attrs.frozen
class Reached:
    """A server that can be connected to."""

    target: object
    program: object = None
    """The running program, where it is not the client that runs it."""
    world: object = None
    """What a test says of it."""

    @contextlib.asynccontextmanager
    async def connected(self, user=None, offered=(), revisions=REVISIONS, **options):
        """A client of ours on it."""
        callbacks = None if user is None else user.callbacks(*offered)
        options = ClientOptions(revisions=revisions, **options)
        with trio.fail_after(DEADLINE):
            async with MCPClient(self.target, callbacks=callbacks, options=options) as client:
                yield client


@contextlib.asynccontextmanager
async def reached(command, transport, *, preload=None, **settings):
    """Reach the server that a command line starts; over HTTP it runs while the block does.

    Args:
        command: program and arguments; which transport it serves has to be among them.
        transport: `stdio`, `http` or `sse`.
        preload: a script for Node that makes the server listen where it can be found.
        settings: of `Command`.
    """
    if transport == "stdio":
        yield Reached(Command(command, **{"stderr": "drop", **settings}))
        return
    if preload is not None:
        node, *rest = command
        command = [node, "--import", Path(preload).as_uri(), *rest]
    async with serving(command) as program:
        path = PATHS[transport] if preload is not None else ""
        yield Reached(f"{program.url}{path}", program)


def children():
    """The processes this one has started and not reaped, by number."""
    return {pid for pid, _, parent, _ in _processes() if parent == os.getpid()}


def members(group):
    """The processes of a group that have not ended; one may wait to be reaped by its new parent."""
    return {pid for pid, state, _, its in _processes() if its == group and state not in {"Z", "X"}}


def _processes():
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                stat = (entry / "stat").read_text(errors="replace")
                state, parent, group = stat.rpartition(")")[2].split()[:3]
                yield int(entry.name), state, int(parent), int(group)


async def is_gone(url, session):
    """Whether an HTTP server does not know a session any more, or never did."""
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    accept = {"accept": "application/json, text/event-stream", "mcp-session-id": session}
    async with httpx2.AsyncClient(trust_env=False) as http:
        answer = await http.post(url, json=ping, headers=accept)
    return answer.status_code in {400, 404}


def texts(result):
    """The texts of a result that is no error."""
    assert not result.is_error, result
    return [block.text for block in result.content if isinstance(block, TextContent)]


def text(result):
    """The text of a result that is one block of text."""
    (said,) = texts(result)
    return said


def failure(result):
    """The text of a result that is an error."""
    assert result.is_error is True
    (block,) = result.content
    return block.text
