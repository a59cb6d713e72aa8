"""`mcp-trio probe`, `list`, `call`, `read`, `prompt`, `listen`: a client for the command line.

What is asked for goes to standard output, as text for people or, with `--json`, as one JSON
value; everything else goes to standard error. The exit status is 0, 1 if the server or the tool
says no, 2 for a wrong command line, 130 after Ctrl-C, and 141 when nobody reads the output.
"""

from __future__ import annotations

import json
import logging
import math
import re
import shlex
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeAlias, cast

import attrs
import click
import trio

from mcp_trio.cli.extras import missing_extra
from mcp_trio.cli.interrupts import INTERRUPTED
from mcp_trio.cli.login import HINT, Login, login_options
from mcp_trio.cli.showing import (
    BROKEN_PIPE,
    Bar,
    NoteHandler,
    UnreadError,
    as_json,
    note,
    put,
    rows,
)
from mcp_trio.client.client import MCPClient
from mcp_trio.client.listings import walk
from mcp_trio.client.options import ClientOptions
from mcp_trio.errors import ConfigurationError, ErrorCode, MCPError, ProtocolError, sole_cause
from mcp_trio.session.middleware import needed_scopes
from mcp_trio.wire import REVISIONS, JSONObject, Tool
from mcp_trio.wire.converter import to_wire

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


@attrs.frozen(kw_only=True)
class Found:
    """What a command prints in the end."""

    value: object
    """For scripts."""
    text: str
    """For people."""
    status: int = 0


Work: TypeAlias = Callable[[MCPClient], Awaitable[Found | None]]
"""What a command does once it is connected. None: it has printed all already."""


@attrs.frozen(kw_only=True)
class Settings:
    """What every command takes."""

    target: str
    revision: str | None
    timeout: float
    as_json: bool
    login: Login

    def client(self) -> MCPClient:
        """A client of the target, not connected yet.

        Raises:
            click.UsageError: it cannot be a target.
        """
        options = ClientOptions(timeout=self.timeout, auth=self.login.authorization())
        if self.revision is not None:
            options = attrs.evolve(options, revisions=(self.revision,))
        # A URL further on is an argument of a command.
        try:
            where: Any = self.target if _URL.match(self.target) else shlex.split(self.target)
            return MCPClient(where, options=options)
        except (ConfigurationError, ValueError) as error:
            raise click.UsageError(str(error)) from error

    def tell(self, value: object, text: str) -> None:
        """Print a result in the form that was asked for."""
        put(as_json(value) if self.as_json else text)


def _number(_context: click.Context, _option: click.Parameter, value: float) -> float:
    if math.isnan(value):
        raise click.BadParameter("nan is no number of seconds")
    return value


def _with_target(function: Callable[..., None]) -> Callable[..., None]:
    """The argument and the options of every command, handed over as `Settings`."""

    def command(
        *, target: str, revision: str | None, timeout: float, as_json: bool, **rest: Any
    ) -> None:
        settings = Settings(
            target=target,
            revision=revision,
            timeout=timeout,
            as_json=as_json,
            login=Login.taken_from(rest),
        )
        function(settings, **rest)

    command.__name__, command.__doc__ = function.__name__, function.__doc__
    command.__click_params__ = list(getattr(function, "__click_params__", ()))  # type: ignore[attr-defined]  # click's own
    for decorate in (
        login_options,
        click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts."),
        click.option(
            "--timeout",
            type=click.FloatRange(min=0, min_open=True),
            callback=_number,
            default=60.0,
            show_default=True,
            help="Seconds for a call.",
        ),
        click.option(
            "--revision",
            type=click.Choice([revision.date for revision in REVISIONS]),
            help="Speak this revision only, without asking first.",
        ),
        click.argument("target"),
    ):
        command = decorate(command)
    return command


def _run(settings: Settings, work: Work) -> None:
    """Connect, do the work, print, and exit with the status. Ctrl-C ends the call and says so."""
    logging.basicConfig(handlers=[NoteHandler()], level=logging.WARNING)
    try:
        found = trio.run(_interruptible, settings.client(), work)
        if isinstance(found, Found):
            # Not before: a reader that is slow must not keep a connection.
            settings.tell(found.value, found.text)
            found = found.status
    except BaseException as error:  # noqa: BLE001 - what is not ours is raised again
        found = _failed(settings, error)
    sys.exit(found)


def _failed(settings: Settings, error: BaseException) -> int:
    """Say what went wrong; the exit status."""
    match sole_cause(error):
        case UnreadError():
            return BROKEN_PIPE
        case MCPError() as cause:
            note(f"{cause.message} ({cause.code}, {cause.rpc_code})", style="red")
            if scopes := needed_scopes(cause.data):
                note(f"it takes the scopes {' '.join(sorted(scopes))}")
            if cause.code is ErrorCode.UNAUTHORIZED and not settings.login.chosen:
                note(HINT)
        case (OSError() | ConfigurationError()) as cause:
            note(str(cause), style="red")
        case _:
            raise error
    return 1


async def _interruptible(client: MCPClient, work: Work) -> Found | int:
    """Do the work until a signal comes; everything is closed by then, and the server told."""
    found = None
    connected = False
    scope = trio.CancelScope()
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:

            async def obey() -> None:
                # Also those that come while all is being closed, which takes a bounded time.
                async for _ in signals:
                    scope.cancel()

            nursery.start_soon(obey)
            with scope:
                async with client:
                    connected = True
                    found = await work(client)
            nursery.cancel_scope.cancel()
    if scope.cancelled_caught:
        note("cancelled: the server has been told" if connected else "cancelled while connecting")
        return INTERRUPTED
    return 0 if found is None else found


def _objects(answer: JSONObject, key: str) -> list[JSONObject]:
    """What an answer lists under a key.

    Raises:
        ProtocolError: it is no list of objects.
    """
    entries = answer.get(key)
    items = cast("list[object]", entries) if isinstance(entries, list) else [None]
    if not all(isinstance(item, dict) for item in items):
        raise ProtocolError(f"the server answers with {key} that are no list of objects")
    return cast("list[JSONObject]", items)


# -- probe ---------------------------------------------------------------------------


@click.command()
@_with_target
def probe(settings: Settings) -> None:
    """Say how a server speaks: its revision, what it offers, and how fast it answers.

    TARGET is a URL or a command line, such as "python server.py".
    """
    began = time.perf_counter()

    async def work(client: MCPClient) -> Found:
        connected = time.perf_counter()
        await client.ping()
        answered = time.perf_counter()
        offered = to_wire(client.capabilities, client.revision)
        info = client.server_info
        found: JSONObject = {
            "revision": client.revision.date,
            "era": "stateless" if client.revision.stateless else "handshake",
            "server": None if info is None else to_wire(info, client.revision),
            "capabilities": offered,
            "instructions": client.instructions,
            "connect_ms": round(1000 * (connected - began), 1),
            "ping_ms": round(1000 * (answered - connected), 1),
        }
        table = (
            ("server", "?" if info is None else f"{info.name} {info.version}"),
            ("revision", f"{found['revision']} ({found['era']})"),
            ("offers", ", ".join(sorted(offered)) or "nothing"),
            ("instructions", client.instructions or "none"),
            ("connected in", f"{found['connect_ms']} ms"),
            ("answers in", f"{found['ping_ms']} ms"),
        )
        return Found(value=found, text=rows(table))

    _run(settings, work)


# -- list ----------------------------------------------------------------------------

_LISTS = {
    "tools": ("tools/list", "tools", "name"),
    "prompts": ("prompts/list", "prompts", "name"),
    "resources": ("resources/list", "resources", "uri"),
    "templates": ("resources/templates/list", "resourceTemplates", "uriTemplate"),
}
"""What can be listed: the method, the key of the entries, and how an entry is called."""


@click.command("list")
@_with_target
@click.argument("what", type=click.Choice(list(_LISTS)), default="tools")
def list_(settings: Settings, what: str) -> None:
    """List what a server offers, all pages of it: tools, prompts, resources or templates."""

    async def work(client: MCPClient) -> Found:
        method, key, name = _LISTS[what]

        async def fetch(cursor: str | None) -> tuple[list[JSONObject], str | None]:
            # As they came: JSON for scripts keeps what this client does not know.
            page = await client.call(method, None if cursor is None else {"cursor": cursor})
            return _objects(page, key), cast("str | None", page.get("nextCursor"))

        entries = [entry async for entry in walk(fetch)]
        return Found(value=entries, text=rows(_row(entry, name) for entry in entries))

    _run(settings, work)


def _row(entry: JSONObject, name: str) -> tuple[str, str]:
    about = str(entry.get("description") or entry.get("title") or "")
    return str(entry.get(name)), about.strip().partition("\n")[0]


# -- call ----------------------------------------------------------------------------


@click.command()
@_with_target
@click.argument("tool", required=False)
@click.option("--operation", metavar="NAME", help="Run this operation of TARGET, without a server.")
@click.option("--config", type=click.Path(dir_okay=False), help="Settings with its connections.")
@click.option("--principal", metavar="JSON", help="Claims of who asks, for its mappings.")
@click.option("--arg", "-a", "pairs", multiple=True, metavar="NAME=VALUE", help="One argument.")
@click.option("--args", "given", metavar="JSON", help="All arguments as a JSON object.")
def call(
    settings: Settings,
    tool: str | None,
    pairs: tuple[str, ...],
    given: str | None,
    operation: str | None,
    **trial: str | None,
) -> None:
    """Call a tool, or an operation that no server has yet.

    A VALUE is read as JSON where the tool wants no text: --arg n=3 --arg on=true. With
    --operation TARGET is a registry, or a file of operations.
    """
    arguments = _object(given)
    texts = _pairs(pairs)
    if (tool is None) == (operation is None):
        raise click.UsageError("give either a TOOL or --operation NAME")
    if operation is not None:
        _try(settings, operation, arguments, texts, **trial)
    if any(trial.values()):
        raise click.UsageError("--config and --principal go with --operation")
    name = tool or ""

    async def work(client: MCPClient) -> Found:
        listed = [each async for each in client.tools() if each.name == name]
        arguments.update(_typed(texts, listed))
        with Bar(name) as bar:
            result = await client.call_tool(name, arguments, on_progress=bar.report)
        told = to_wire(result, client.revision)
        blocks = cast("list[JSONObject]", told.get("content") or [])
        text = "\n".join(map(_block, blocks))
        return Found(value=told, text=text, status=1 if result.is_error else 0)

    _run(settings, work)


def _try(
    settings: Settings,
    name: str,
    arguments: JSONObject,
    texts: dict[str, str],
    *,
    config: str | None,
    principal: str | None,
) -> NoReturn:
    """Run an operation here, and exit with its status."""
    # On demand: a client needs no adapters, no registries and nothing of the authors' tools.
    try:
        from mcp_trio.cli import author, trial  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise missing_extra("call --operation", error) from error

    chosen = trial.Trial(
        place=settings.target,
        name=name,
        config=None if config is None else Path(config),
        principal=None if principal is None else _object(principal, "--principal"),
        timeout=settings.timeout,
    )
    try:
        operation = author.tried(lambda: trial.find(chosen))
        given = {**arguments, **_typed(texts, [operation.to_tool()])}
        with Bar(name) as bar:
            told = author.tried(lambda: trio.run(trial.run, chosen, operation, given, bar.report))
        if told is None:
            note("cancelled")
            sys.exit(INTERRUPTED)
        text = "\n".join(map(_block, cast("list[JSONObject]", told.get("content") or [])))
        settings.tell(told, text)
    except BaseException as error:  # noqa: BLE001 - what is not ours is raised again
        sys.exit(_failed(settings, error))
    sys.exit(1 if told.get("isError") else 0)


def _object(text: str | None, option: str = "--args") -> JSONObject:
    if text is None:
        return {}
    try:
        value = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"{option} is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise click.UsageError(f"{option} must be a JSON object")
    return cast("JSONObject", value)


def _pairs(given: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{pair!r} is not of the form NAME=VALUE")
        found[name] = value
    return found


def _typed(texts: dict[str, str], listed: list[Tool]) -> JSONObject:
    """The arguments in the types that the tool's schema asks for."""
    schema = listed[0].input_schema if listed else {}
    properties = schema.get("properties")
    known = cast("JSONObject", properties) if isinstance(properties, dict) else {}
    return {name: _value(text, _kinds(known.get(name))) for name, text in texts.items()}


def _kinds(schema: object) -> set[str]:
    """The types that a schema says it takes; empty if it says none that we understand."""
    if not isinstance(schema, dict):
        return set()
    found = cast("JSONObject", schema)
    named = found.get("type")
    parts = cast("list[object]", named) if isinstance(named, list) else [named]
    kinds = {part for part in parts if isinstance(part, str)}
    for key in ("anyOf", "oneOf"):
        choices = found.get(key)
        for choice in cast("list[object]", choices) if isinstance(choices, list) else []:
            kinds |= _kinds(choice)
    return kinds


def _value(text: str, kinds: set[str]) -> object:
    """What is meant by a text: where one is wanted, JSON is only what else is wanted, too."""
    try:
        value = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return text
    if "string" in kinds and not kinds & _KINDS[type(value)]:
        return text
    return value


_KINDS: dict[type, set[str]] = {
    bool: {"boolean"},
    int: {"integer", "number"},
    float: {"number"},
    list: {"array"},
    dict: {"object"},
    type(None): {"null"},
    str: set(),
}
"""The types of JSON schemas by what JSON is read as. A quoted text is a text with quotes."""


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _size(base64_text: str) -> int:
    """Bytes in a base64 text."""
    return len(base64_text.rstrip("=")) * 3 // 4


def _block(block: object) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "resource", "resource": {"text": str(text)}}:
            return text
        case {"type": "resource_link", "uri": str(uri), "name": str(name)}:
            return f"{name}: {uri}"
        case {"type": str(kind), "mimeType": str(mime_type), "data": str(data)}:
            return f"[{kind}, {mime_type}, {_size(data)} bytes]"
        case {"type": str(kind)}:
            return f"[{kind}]"
        case _:
            return "[?]"


# -- read and prompt -----------------------------------------------------------------


@click.command()
@_with_target
@click.argument("uri")
def read(settings: Settings, uri: str) -> None:
    """Read a resource. Text is printed, bytes are described; --json has both."""

    async def work(client: MCPClient) -> Found:
        answer = await client.call("resources/read", {"uri": uri})
        contents = _objects(answer, "contents")
        lines = [
            str(each["text"])
            if "text" in each
            else f"[{each.get('mimeType')}, {_size(str(each.get('blob', '')))} bytes]"
            for each in contents
        ]
        return Found(value=contents, text="\n".join(lines))

    _run(settings, work)


@click.command()
@_with_target
@click.argument("name")
@click.option("--arg", "-a", "pairs", multiple=True, metavar="NAME=VALUE", help="One argument.")
def prompt(settings: Settings, name: str, pairs: tuple[str, ...]) -> None:
    """Fill in a prompt."""
    arguments = _pairs(pairs)

    async def work(client: MCPClient) -> Found:
        answer = await client.call("prompts/get", {"name": name, "arguments": arguments})
        messages = _objects(answer, "messages")
        lines = [f"{each.get('role')}: {_block(each.get('content'))}" for each in messages]
        return Found(value=messages, text="\n".join(lines))

    _run(settings, work)


# -- listen --------------------------------------------------------------------------


@click.command()
@_with_target
@click.option("--resource", help="Tell of this resource, by its URI.")
@click.option("--count", type=click.IntRange(min=1), help="End after so many changes.")
def listen(settings: Settings, resource: str | None, count: int | None) -> None:
    """Print changes as they come, a line each, until Ctrl-C: of all lists, or of one resource."""

    async def work(client: MCPClient) -> None:
        lists = resource is None
        chosen = partial(client.listen, tools=lists, prompts=lists, resources=lists)
        async with chosen(resource=resource) as changes:
            note("listening")
            told = 0
            async for change in changes:
                method, _, uri = change.partition(" ")
                value = {"method": method, **({"uri": uri} if uri else {})}
                settings.tell(value, change)
                told += 1
                if told == count:
                    break

    _run(settings, work)


COMMANDS = {str(each.name): each for each in (probe, list_, call, read, prompt, listen)}
"""By name."""
