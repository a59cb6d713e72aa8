"""`mcp-trio probe`, `list`, `call`, `read`, `prompt`, `listen`: a client for the command line.

What is asked for goes to standard output, as text for people or, with `--json`, as one JSON
value; everything else goes to standard error. The exit status is 0, 1 if the server or the tool
says no, 2 for a wrong command line, and 130 after Ctrl-C.
"""

from __future__ import annotations

import json
import shlex
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Self, TypeAlias, cast

import attrs
import click
import trio
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table

from mcp_trio.cli.login import HINT, Login, login_options
from mcp_trio.client.client import MCPClient
from mcp_trio.client.listings import walk
from mcp_trio.client.options import ClientOptions
from mcp_trio.errors import ConfigurationError, ErrorCode, MCPError, sole_cause
from mcp_trio.wire import REVISIONS, JSONObject, Tool
from mcp_trio.wire.converter import to_wire

Work: TypeAlias = Callable[[MCPClient], Awaitable[int]]
"""What a command does once it is connected; the exit status."""

INTERRUPTED = 130
"""The exit status after Ctrl-C, as shells have it."""
STOP_TIMEOUT = 5.0
"""Seconds to tell the server and to close, after Ctrl-C."""

_notes = Console(stderr=True, highlight=False)


@attrs.frozen(kw_only=True)
class Settings:
    """What every command takes."""

    target: str
    revision: str | None
    timeout: float
    as_json: bool
    login: Login

    def client(self) -> MCPClient:
        """A client of the target, not connected yet."""
        options = ClientOptions(timeout=self.timeout, auth=self.login.authorization())
        if self.revision is not None:
            options = attrs.evolve(options, revisions=(self.revision,))
        where: Any = self.target if "://" in self.target else shlex.split(self.target)
        return MCPClient(where, options=options)

    def tell(self, value: object, text: str) -> None:
        """Print the result in the form that was asked for."""
        click.echo(json.dumps(value, ensure_ascii=False) if self.as_json else text)


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
            "--timeout", type=float, default=60.0, show_default=True, help="Seconds for a call."
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
    """Connect, do the work, and exit with its status. Ctrl-C ends the call and says so."""
    try:
        client = settings.client()
    except (ConfigurationError, ValueError) as error:
        raise click.UsageError(str(error)) from error
    try:
        status = trio.run(_interruptible, client, work)
    except BaseException as error:
        cause = sole_cause(error)
        if not isinstance(cause, MCPError | OSError):
            raise
        _notes.print(f"[red]{_said(cause)}[/red]", soft_wrap=True)
        if getattr(cause, "code", None) is ErrorCode.UNAUTHORIZED and not settings.login.chosen:
            _notes.print(HINT, markup=False)
        status = 1
    sys.exit(status)


def _said(error: MCPError | OSError) -> str:
    if isinstance(error, MCPError):
        return f"{error.message} ({error.code}, {error.rpc_code})".replace("[", "\\[")
    return str(error).replace("[", "\\[")


async def _interruptible(client: MCPClient, work: Work) -> int:
    status = INTERRUPTED
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:

            async def obey() -> None:
                async for _ in signals:
                    _notes.print("cancelled: the server has been told")
                    nursery.cancel_scope.cancel()

            nursery.start_soon(obey)
            async with client:
                status = await work(client)
            nursery.cancel_scope.cancel()
    return status


# -- probe ---------------------------------------------------------------------------


@click.command()
@_with_target
def probe(settings: Settings) -> None:
    """Say how a server speaks: its revision, what it offers, and how fast it answers.

    TARGET is a URL or a command line, such as "python server.py".
    """
    began = time.perf_counter()

    async def work(client: MCPClient) -> int:
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
        table = Table.grid(padding=(0, 2))
        table.add_row("server", "?" if info is None else f"{info.name} {info.version}")
        table.add_row("revision", f"{found['revision']} ({found['era']})")
        table.add_row("offers", ", ".join(sorted(offered)) or "nothing")
        table.add_row("instructions", client.instructions or "none")
        table.add_row("connected in", f"{found['connect_ms']} ms")
        table.add_row("answers in", f"{found['ping_ms']} ms")
        settings.tell(found, _text(table))
        return 0

    _run(settings, work)


def _text(thing: object) -> str:
    console = Console(width=100, highlight=False)
    with console.capture() as captured:
        console.print(thing)
    return captured.get().rstrip("\n")


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

    async def work(client: MCPClient) -> int:
        method, key, name = _LISTS[what]

        async def fetch(cursor: str | None) -> tuple[list[JSONObject], str | None]:
            # As they came: JSON for scripts keeps what this client does not know.
            page = await client.call(method, None if cursor is None else {"cursor": cursor})
            return (
                cast("list[JSONObject]", page.get(key) or []),
                cast("str | None", page.get("nextCursor")),
            )

        entries = [entry async for entry in walk(fetch)]
        table = Table.grid(padding=(0, 2))
        for entry in entries:
            about = str(entry.get("description") or entry.get("title") or "")
            table.add_row(str(entry.get(name)), about.partition("\n")[0])
        settings.tell(entries, _text(table))
        return 0

    _run(settings, work)


# -- call ----------------------------------------------------------------------------


@click.command()
@_with_target
@click.argument("tool")
@click.option("--arg", "-a", "pairs", multiple=True, metavar="NAME=VALUE", help="One argument.")
@click.option("--args", "given", metavar="JSON", help="All arguments as a JSON object.")
def call(settings: Settings, tool: str, pairs: tuple[str, ...], given: str | None) -> None:
    """Call a tool.

    A VALUE is read as JSON where the tool wants no text: --arg n=3 --arg on=true.
    """
    arguments = _object(given)
    texts = _pairs(pairs)

    async def work(client: MCPClient) -> int:
        listed = [each async for each in client.tools() if each.name == tool]
        arguments.update(_typed(texts, listed))
        with _Bar(tool) as bar:
            result = await client.call_tool(tool, arguments, on_progress=bar.report)
        told = to_wire(result, client.revision)
        settings.tell(told, _content(cast("list[JSONObject]", told.get("content") or [])))
        return 1 if result.is_error else 0

    _run(settings, work)


def _object(text: str | None) -> JSONObject:
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"--args is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise click.UsageError("--args must be a JSON object")
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
    properties = cast("dict[str, JSONObject]", schema.get("properties") or {})
    return {name: _value(text, properties.get(name)) for name, text in texts.items()}


def _value(text: str, schema: JSONObject | None) -> object:
    if schema is not None and schema.get("type") == "string":
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


class _Bar:
    """A progress bar on a terminal, lines elsewhere; nothing for a call that reports nothing."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._bar: Progress | None = None
        self._task: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def report(self, value: float, total: float | None, message: str | None) -> None:
        """Show one report."""
        text = message or self._title
        if not _notes.is_terminal:
            share = f"{value:g}" if total is None else f"{value:g}/{total:g}"
            _notes.print(f"{share} {text}", markup=False, soft_wrap=True)
            return
        if self._bar is None:
            columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
            self._bar = Progress(*columns, console=_notes, transient=True)
            self._bar.start()
            self._task = self._bar.add_task(text, total=total)
        self._bar.update(self._task, completed=value, total=total, description=text)


def _size(base64_text: str) -> int:
    """Bytes in a base64 text."""
    return len(base64_text.rstrip("=")) * 3 // 4


def _content(blocks: list[JSONObject]) -> str:
    return "\n".join(_block(block) for block in blocks)


def _block(block: JSONObject) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "resource", "resource": {"text": str(text)}}:
            return text
        case {"type": "resource_link", "uri": str(uri), "name": str(name)}:
            return f"{name}: {uri}"
        case {"mimeType": str(mime_type), "data": str(data)}:
            return f"[{block.get('type')}, {mime_type}, {_size(data)} bytes]"
        case _:
            return f"[{block.get('type')}]"


# -- read and prompt -----------------------------------------------------------------


@click.command()
@_with_target
@click.argument("uri")
def read(settings: Settings, uri: str) -> None:
    """Read a resource. Text is printed, bytes are described; --json has both."""

    async def work(client: MCPClient) -> int:
        answer = await client.call("resources/read", {"uri": uri})
        contents = cast("list[JSONObject]", answer.get("contents") or [])
        lines = [
            str(each["text"])
            if "text" in each
            else f"[{each.get('mimeType')}, {_size(str(each.get('blob', '')))} bytes]"
            for each in contents
        ]
        settings.tell(contents, "\n".join(lines))
        return 0

    _run(settings, work)


@click.command()
@_with_target
@click.argument("name")
@click.option("--arg", "-a", "pairs", multiple=True, metavar="NAME=VALUE", help="One argument.")
def prompt(settings: Settings, name: str, pairs: tuple[str, ...]) -> None:
    """Fill in a prompt."""
    arguments = _pairs(pairs)

    async def work(client: MCPClient) -> int:
        answer = await client.call("prompts/get", {"name": name, "arguments": arguments})
        messages = cast("list[JSONObject]", answer.get("messages") or [])
        lines = [
            f"{each.get('role')}: {_block(cast('JSONObject', each.get('content') or {}))}"
            for each in messages
        ]
        settings.tell(messages, "\n".join(lines))
        return 0

    _run(settings, work)


# -- listen --------------------------------------------------------------------------


@click.command()
@_with_target
@click.option("--resource", help="Tell of this resource, by its URI.")
@click.option("--count", type=click.IntRange(min=1), help="End after so many changes.")
def listen(settings: Settings, resource: str | None, count: int | None) -> None:
    """Print changes as they come, a line each, until Ctrl-C: of all lists, or of one resource."""

    async def work(client: MCPClient) -> int:
        lists = resource is None
        chosen = partial(client.listen, tools=lists, prompts=lists, resources=lists)
        async with chosen(resource=resource) as changes:
            _notes.print("listening", markup=False)
            told = 0
            async for change in changes:
                method, _, uri = change.partition(" ")
                value = {"method": method, **({"uri": uri} if uri else {})}
                settings.tell(value, change)
                told += 1
                if told == count:
                    break
        return 0

    _run(settings, work)


COMMANDS = (probe, list_, call, read, prompt, listen)
