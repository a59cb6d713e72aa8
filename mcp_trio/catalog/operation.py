"""The published view of one operation, `mcp-operations/1`: what it may hold, and nothing else.

`parse` reads a view and refuses every key, at every level, that the format does not name:
drafts, samples, import metadata and fields of a user interface cannot slip in. The format
lives here; whether this installation can run an operation is the compiler's question.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import NoReturn, TypeAlias, cast

import attrs
import msgspec

from mcp_trio.wire import Icon, JSONObject, Tool, ToolAnnotations

FORMAT = "mcp-operations/1"
PROTOCOL = re.compile(r"[a-z][a-z0-9_-]{0,63}")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
CONTENT_TYPES = ("json", "form", "multipart", "text", "xml", "none")
MAX_VIEW_DEPTH = 64
"""Levels of nesting in a view."""
MAX_VIEW_NODES = 50_000
"""Values in a view, keys not counted."""

NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")


class OperationError(Exception):
    """An operation that cannot be published; the text says where and why.

    The text never echoes values of the view, only its keys.
    """

    def __init__(self, reason: str, *, place: str = "") -> None:
        super().__init__(f"{place}: {reason}" if place else reason)
        self.reason = reason
        """What is wrong, without the place."""
        self.place = place
        """Where in the view, such as `execution_config.retry`; empty for the whole."""


def canonical(value: object) -> bytes:
    """Encode so that equal values give equal bytes: sorted keys, no white space, UTF-8."""
    return msgspec.json.encode(value, order="sorted")


def _hash_of(operation: Operation) -> str:
    return hashlib.sha256(canonical(operation.view())).hexdigest()


@attrs.frozen(kw_only=True)
class Operation:
    """One published version of one operation. Made by `parse`; never changed afterwards."""

    operation_id: str
    """Identity for logs, metrics and audit; 1 to 200 characters, never used again."""
    name: str
    """The name of the tool."""
    protocol: str
    """Chooses the adapter and the shape of `target`: rest, graphql, grpc, sql, mcp, static, or
    one that another package brings."""
    target: JSONObject
    """What is called, by protocol. That of a protocol which is not ours holds anything."""
    input_schema: JSONObject
    """JSON Schema of the arguments; its root is an object."""
    output_schema: JSONObject | None
    """JSON Schema of the structured result, or None."""
    input_mapping: JSONObject
    """How arguments become a request; empty means by name."""
    output_mapping: JSONObject
    """How an answer becomes a result; empty means the whole body."""
    execution_config: JSONObject
    """Deadlines, retries and limits."""
    tool_description: str | JSONObject
    """Text for the model, or an object with text, title, annotations, icons and tags."""
    revision: str = attrs.field(
        init=False, eq=False, default=attrs.Factory(_hash_of, takes_self=True)
    )
    """Hash of the canonical view: the same view has the same revision everywhere."""

    def view(self) -> JSONObject:
        """The view this was parsed from, key by key."""
        return {key: getattr(self, key) for key in VIEW_KEYS}

    def to_tool(self) -> Tool:
        """The listed side: what a client sees, and all that a `list_changed` is about."""
        said = self.tool_description
        if isinstance(said, str):
            said = {"text": said}
        hints = cast("Mapping[str, bool]", said.get("annotations") or {})
        icons = cast("list[Mapping[str, object]]", said.get("icons") or [])
        return Tool(
            name=self.name,
            input_schema=self.input_schema,
            title=cast("str | None", said.get("title")),
            description=cast("str | None", said.get("text")) or None,
            output_schema=self.output_schema,
            annotations=ToolAnnotations(
                read_only_hint=hints.get("readOnlyHint"),
                destructive_hint=hints.get("destructiveHint"),
                idempotent_hint=hints.get("idempotentHint"),
                open_world_hint=hints.get("openWorldHint"),
            )
            if hints
            else None,
            icons=[_icon(icon) for icon in icons] or None,
        )


VIEW_KEYS = tuple(field.name for field in attrs.fields(Operation) if field.init)
"""The keys of a view, exactly; all of them are required."""
_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


def _icon(icon: Mapping[str, object]) -> Icon:
    return Icon(
        src=cast("str", icon["src"]),
        mime_type=cast("str | None", icon.get("mimeType")),
        sizes=cast("list[str] | None", icon.get("sizes")),
        theme=cast("str | None", icon.get("theme")),
    )


Check: TypeAlias = Callable[[object, str], None]
"""Refuses a value by raising OperationError; is told the place."""


def _refuse(place: str, reason: str) -> NoReturn:
    raise OperationError(reason, place=place)


def _anything(_value: object, _place: str) -> None:
    """Accept: a tree or a schema that somebody else compiles."""


def _string(value: object, place: str) -> None:
    if not isinstance(value, str) or not value:
        _refuse(place, "must be a non-empty string")


def _text(value: object, place: str) -> None:
    if not isinstance(value, str):
        _refuse(place, "must be a string")


def _boolean(value: object, place: str) -> None:
    if not isinstance(value, bool):
        _refuse(place, "must be true or false")


def _whole(least: int, most: int) -> Check:
    def check(value: object, place: str) -> None:
        if type(value) is not int or not least <= value <= most:
            _refuse(place, f"must be an integer from {least} to {most}")

    return check


def _number(value: object, place: str) -> None:
    if type(value) not in {int, float} or cast("float", value) < 0:
        _refuse(place, "must be a number, 0 or more")


def _one_of(*choices: str) -> Check:
    def check(value: object, place: str) -> None:
        if value not in choices:
            _refuse(place, f"must be one of {', '.join(choices)}")

    return check


def _list_of(item: Check) -> Check:
    def check(value: object, place: str) -> None:
        if not isinstance(value, list):
            _refuse(place, "must be an array")
        for index, child in enumerate(cast("list[object]", value)):
            item(child, f"{place}[{index}]")

    return check


def _mapping(value: object, place: str) -> None:
    if not isinstance(value, dict):
        _refuse(place, "must be an object")


def _object(required: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    """A check of an object that knows all its keys."""
    known = {**required, **(optional or {})}

    def check(value: object, place: str) -> None:
        _mapping(value, place)
        held = cast("JSONObject", value)
        unknown = [key for key in held if key not in known]
        if unknown:
            _refuse(place, f"unknown key {min(unknown)[:80]!r}; known are {', '.join(known)}")
        for key in required:
            if key not in held:
                _refuse(place, f"misses {key!r}")
        for key, child in held.items():
            known[key](child, f"{place}.{key}" if place else key)

    return check


def _retry_reason(value: object, place: str) -> None:
    if type(value) is int and 400 <= value <= 599:
        return
    if value not in {"connect", "timeout"}:
        _refuse(place, "must be a status from 400 to 599, 'connect' or 'timeout'")


def _rest_path(value: object, place: str) -> None:
    if not isinstance(value, str) or not value.startswith("/"):
        _refuse(place, "must be a string that starts with '/'")
    if any(mark in value for mark in "?#\\") or any(ord(c) < 33 or ord(c) > 126 for c in value):
        _refuse(place, "must hold no query, fragment, backslash, space or non-ASCII character")


_milliseconds = _whole(1, 3_600_000)
_TARGETS: dict[str, Check] = {
    "rest": _object(
        {"connection": _string, "method": _one_of(*METHODS), "path": _rest_path},
        {"content_type": _one_of(*CONTENT_TYPES)},
    ),
    "graphql": _object(
        {"connection": _string, "document": _string},
        {"path": _rest_path, "operation_name": _string},
    ),
    "grpc": _object(
        {"connection": _string, "service": _string, "method": _string, "descriptor": _anything}
    ),
    "sql": _object(
        {"connection": _string, "statement": _string}, {"access": _one_of("read", "write")}
    ),
    "mcp": _object({"connection": _string, "tool": _string}),
    "static": _object({}),
}
_INPUT_MAPPING = _object(
    {},
    {
        "path": _mapping,
        "query": _mapping,
        "headers": _mapping,
        "cookies": _mapping,
        "body": _anything,
        "variables": _mapping,
        "message": _anything,
        "params": _mapping,
    },
)
_OUTPUT_MAPPING = _object(
    {},
    {
        "success_when": _anything,
        "result": _anything,
        "text": _anything,
        "content": _list_of(_mapping),
        "error": _object({}, {"message": _anything, "code": _anything, "retryable": _anything}),
    },
)
_EXECUTION = _object(
    {},
    {
        "timeout_ms": _object({}, dict.fromkeys(("connect", "first_byte", "total"), _milliseconds)),
        "retry": _object(
            {},
            {
                "max_attempts": _whole(1, 10),
                "on": _list_of(_retry_reason),
                "backoff_ms": _milliseconds,
                "max_backoff_ms": _milliseconds,
            },
        ),
        "idempotent": _boolean,
        "idempotency_key_header": _string,
        "circuit": _object(
            {}, dict.fromkeys(("failure_rate", "min_calls", "window_s", "cooldown_s"), _number)
        ),
        "concurrency": _whole(1, 10_000),
        "rate_per_minute": _object(
            {"limit": _whole(1, 1_000_000)}, {"per": _one_of("principal", "global")}
        ),
        "cache": _object({"ttl_s": _number}, {"vary": _list_of(_string)}),
        "limits": _object(
            {},
            {
                "request_bytes": _whole(1, 1 << 30),
                "response_bytes": _whole(1, 1 << 30),
                "items": _whole(1, 1_000_000),
                "on_exceed": _one_of("error", "truncate"),
            },
        ),
        "output_validation": _one_of("strict", "warn", "off"),
        "auth": _one_of("connection", "on_behalf_of", "none"),
        "required_scopes": _list_of(_string),
        "stream_progress": _boolean,
        "task": _anything,
    },
)
_DESCRIPTION = _object(
    {"text": _text},
    {
        "title": _string,
        "annotations": _object({}, dict.fromkeys(_HINTS, _boolean)),
        "icons": _list_of(
            _object(
                {"src": _string},
                {"mimeType": _string, "sizes": _list_of(_string), "theme": _string},
            )
        ),
        "tags": _list_of(_string),
    },
)


def _operation_id(value: object, place: str) -> None:
    if not isinstance(value, str) or not 1 <= len(value) <= 200:
        _refuse(place, "must be a string of 1 to 200 characters")


def _protocol(value: object, place: str) -> None:
    if not isinstance(value, str) or PROTOCOL.fullmatch(value) is None:
        _refuse(place, f"must match ^{PROTOCOL.pattern}$")


def _name(value: object, place: str) -> None:
    if not isinstance(value, str) or NAME.fullmatch(value) is None:
        _refuse(place, f"must match ^{NAME.pattern}$")


def _input_schema(value: object, place: str) -> None:
    if not isinstance(value, dict) or cast("JSONObject", value).get("type") != "object":
        _refuse(place, "must be a JSON Schema whose root has type object")


def _output_schema(value: object, place: str) -> None:
    if value is not None and not isinstance(value, dict):
        _refuse(place, "must be a JSON Schema object, or null")


def _tool_description(value: object, place: str) -> None:
    if not isinstance(value, str):
        _DESCRIPTION(value, place)


_VIEW = _object(
    {
        "operation_id": _operation_id,
        "name": _name,
        "protocol": _protocol,
        "target": _mapping,
        "input_schema": _input_schema,
        "output_schema": _output_schema,
        "input_mapping": _INPUT_MAPPING,
        "output_mapping": _OUTPUT_MAPPING,
        "execution_config": _EXECUTION,
        "tool_description": _tool_description,
    }
)


def _measure(view: object) -> None:
    """Refuse what later recursion could not bear; level by level, so without recursion."""
    level: list[object] = [view]
    nodes = depth = 0
    while level:
        depth += 1
        nodes += len(level)
        if depth > MAX_VIEW_DEPTH:
            raise OperationError(f"the view is nested more than {MAX_VIEW_DEPTH} levels deep")
        if nodes > MAX_VIEW_NODES:
            raise OperationError(f"the view has more than {MAX_VIEW_NODES} values")
        below: list[object] = []
        for node in level:
            if isinstance(node, dict):
                below.extend(cast("JSONObject", node).values())
            elif isinstance(node, list):
                below.extend(cast("list[object]", node))
        level = below


def parse(view: Mapping[str, object]) -> Operation:
    """Read a view of the format `mcp-operations/1`.

    Raises:
        OperationError: it misses a key, has one the format does not know, or holds a
            value of the wrong kind; the error names the place.
    """
    _measure(view)
    _VIEW(view, "")
    _TARGETS.get(cast("str", view["protocol"]), _anything)(view["target"], "target")
    return Operation(**view)  # type: ignore[arg-type]  # every key was checked just now
