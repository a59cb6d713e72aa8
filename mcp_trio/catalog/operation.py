"""The published view of one operation, `mcp-operations/1`: what it may hold, and nothing else.

`parse` reads a view and refuses every key, at every level, that the format does not name:
drafts, samples, import metadata and fields of a user interface cannot slip in. `find_faults`
is the same judgement, told in full. The format
lives here; whether this installation can run an operation is the compiler's question.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import TypeAlias, cast

import attrs
import msgspec

from mcp_trio.wire import Icon, JSONObject, Tool, ToolAnnotations

FORMAT = "mcp-operations/1"
PROTOCOL = re.compile(r"[a-z][a-z0-9_-]{0,63}")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
CONTENT_TYPES = ("json", "form", "multipart", "text", "xml", "binary", "none")
MAX_VIEW_DEPTH = 64
"""Levels of nesting in a view."""
MAX_VIEW_NODES = 50_000
"""Values in a view, keys not counted."""

MAX_FAULTS = 100
"""Faults that are told of one view."""

MEDIA_TYPE = re.compile(r"[a-z0-9!#$&^_.+-]{1,60}/[a-z0-9!#$&^_.+-]{1,100}")
MAX_NAME = 128
"""Characters of a name."""
NAME = re.compile(rf"[A-Za-z0-9_.-]{{1,{MAX_NAME}}}")


class OperationError(Exception):
    """An operation that cannot be published; the text says where and why.

    The text never echoes values of the view, only its keys.
    """

    def __init__(self, reason: str, *, place: str = "", key: str | None = None) -> None:
        super().__init__(f"{place}: {reason}" if place else reason)
        self.reason = reason
        """What is wrong, without the place."""
        self.place = place
        """Where in the view, such as `execution_config.retry`; empty for the whole."""
        self.key = key
        """The key at that place that should not be there; None if it is not about one."""


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

    @property
    def audience(self) -> tuple[str, ...]:
        """The scopes without which it is neither listed nor called, sorted."""
        return tuple(
            sorted(set(cast("list[str]", self.execution_config.get("required_scopes", []))))
        )

    @property
    def promise(self) -> JSONObject | None:
        """The output schema as clients are told it: None too where no result is held to it.

        Clients refuse a result that breaks what was listed.
        """
        checked = self.execution_config.get("output_validation") != "off"
        return self.output_schema if checked else None

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
            output_schema=self.promise,
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


Faults: TypeAlias = list[OperationError]
"""What a check has found wrong, in the order of the view."""
Check: TypeAlias = Callable[[object, str, Faults], None]
"""Judges a value; is told the place, and adds what is wrong to the faults."""


def _refuse(found: Faults, place: str, reason: str, key: str | None = None) -> None:
    if len(found) < MAX_FAULTS:
        found.append(OperationError(reason, place=place, key=key))


def _rule(holds: Callable[[object], bool], reason: str) -> Check:
    """A check that holds or does not."""

    def check(value: object, place: str, found: Faults) -> None:
        if not holds(value):
            _refuse(found, place, reason)

    return check


def _anything(_value: object, _place: str, _found: Faults) -> None:
    """Accept: a tree or a schema that somebody else compiles."""


def _is_string(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _is_positive(value: object) -> bool:
    return type(value) in {int, float} and 0 < cast("float", value) <= 31_536_000


_string = _rule(_is_string, "must be a non-empty string")
_text = _rule(lambda value: isinstance(value, str), "must be a string")
_boolean = _rule(lambda value: isinstance(value, bool), "must be true or false")
_positive = _rule(_is_positive, "must be a number of seconds over 0, a year at most")
_share = _rule(
    lambda value: type(value) in {int, float} and 0 < cast("float", value) <= 1,
    "must be a number over 0, up to 1",
)
_mapping = _rule(lambda value: isinstance(value, dict), "must be an object")


def _whole(least: int, most: int) -> Check:
    return _rule(
        lambda value: type(value) is int and least <= value <= most,
        f"must be an integer from {least} to {most}",
    )


def _one_of(*choices: str) -> Check:
    return _rule(
        lambda value: isinstance(value, str) and value in choices,
        f"must be one of {', '.join(choices)}",
    )


def _list_of(item: Check) -> Check:
    def check(value: object, place: str, found: Faults) -> None:
        if not isinstance(value, list):
            _refuse(found, place, "must be an array")
            return
        for index, child in enumerate(cast("list[object]", value)):
            item(child, f"{place}[{index}]", found)

    return check


def _each(item: Check) -> Check:
    """A check of an object whose keys are names of the author's own."""

    def check(value: object, place: str, found: Faults) -> None:
        if not isinstance(value, dict):
            _refuse(found, place, "must be an object")
            return
        for key, child in cast("JSONObject", value).items():
            item(child, f"{place}.{key}", found)

    return check


def _object(required: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    """A check of an object that knows all its keys."""
    known = {**required, **(optional or {})}

    def check(value: object, place: str, found: Faults) -> None:
        if not isinstance(value, dict):
            _refuse(found, place, "must be an object")
            return
        held = cast("JSONObject", value)
        for key in sorted(held.keys() - known.keys()):
            named = f"known are {', '.join(known)}" if known else "there are none here"
            reason = f"unknown key {key[:80]!r}; {named}"
            _refuse(found, place, reason, key)
        for key in required:
            if key not in held:
                _refuse(found, place, f"misses {key!r}")
        for key, child in held.items():
            if key in known:
                known[key](child, f"{place}.{key}" if place else key, found)

    return check


def _is_retry_reason(value: object) -> bool:
    if type(value) is int:
        return 400 <= value <= 599
    return isinstance(value, str) and value in {"connect", "timeout"}


_retry_reason = _rule(_is_retry_reason, "must be a status from 400 to 599, 'connect' or 'timeout'")


def _rest_path(value: object, place: str, found: Faults) -> None:
    if not isinstance(value, str) or not value.startswith("/"):
        _refuse(found, place, "must be a string that starts with '/'")
    elif any(mark in value for mark in "?#\\") or any(ord(c) < 33 or ord(c) > 126 for c in value):
        _refuse(
            found,
            place,
            "must hold no query, fragment, backslash, space or non-ASCII character",
        )


def _styled(*styles: str) -> Check:
    """How the values of one section are written, by name."""
    return _each(_object({"style": _one_of(*styles)}, {"explode": _boolean}))


_STYLES = _object(
    {},
    {
        "path": _styled("simple", "label", "matrix"),
        "query": _styled("form", "spaceDelimited", "pipeDelimited", "deepObject"),
        "headers": _styled("simple"),
        "cookies": _styled("form"),
        "body": _styled("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    },
)
_media_type = _rule(
    lambda value: isinstance(value, str) and MEDIA_TYPE.fullmatch(value) is not None,
    "must be a media type, such as application/merge-patch+json",
)
_PAGINATION = _object(
    {"by": _one_of("link", "cursor", "page", "offset")},
    {
        "parameter": _string,
        "items": _anything,
        "next": _anything,
        "more": _anything,
        "first": _whole(0, 1_000_000),
        "max_pages": _whole(1, 1_000),
    },
)
_STREAM = _object(
    {},
    {
        "collect": _one_of("last", "all"),
        "until": _anything,
        "progress": _object({}, dict.fromkeys(("message", "value", "total"), _anything)),
    },
)
_milliseconds = _whole(1, 3_600_000)
_TARGETS: dict[str, Check] = {
    "rest": _object(
        {"connection": _string, "method": _one_of(*METHODS), "path": _rest_path},
        {
            "content_type": _one_of(*CONTENT_TYPES),
            "media_type": _media_type,
            "styles": _STYLES,
            "pagination": _PAGINATION,
            "stream": _STREAM,
        },
    ),
    "graphql": _object(
        {"connection": _string, "document": _string},
        {"path": _rest_path, "operation_name": _string, "schema": _string},
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
            {},
            {
                "failure_rate": _share,
                "min_calls": _whole(1, 1_000_000),
                "window_s": _positive,
                "cooldown_s": _positive,
            },
        ),
        "concurrency": _whole(1, 10_000),
        "rate_per_minute": _object(
            {"limit": _whole(1, 1_000_000)}, {"per": _one_of("principal", "global")}
        ),
        "cache": _object({"ttl_s": _positive}, {"vary": _list_of(_string)}),
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


def _is_operation_id(value: object) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= 200


def _is_name(value: object) -> bool:
    return isinstance(value, str) and NAME.fullmatch(value) is not None


def _is_protocol(value: object) -> bool:
    return isinstance(value, str) and PROTOCOL.fullmatch(value) is not None


def _is_input_schema(value: object) -> bool:
    return isinstance(value, dict) and cast("JSONObject", value).get("type") == "object"


def _tool_description(value: object, place: str, found: Faults) -> None:
    if not isinstance(value, str):
        _DESCRIPTION(value, place, found)


_VIEW = _object(
    {
        "operation_id": _rule(_is_operation_id, "must be a string of 1 to 200 characters"),
        "name": _rule(_is_name, f"must match ^{NAME.pattern}$"),
        "protocol": _rule(_is_protocol, f"must match ^{PROTOCOL.pattern}$"),
        "target": _mapping,
        "input_schema": _rule(_is_input_schema, "must be a JSON Schema whose root has type object"),
        "output_schema": _rule(
            lambda value: value is None or isinstance(value, dict),
            "must be a JSON Schema object, or null",
        ),
        "input_mapping": _INPUT_MAPPING,
        "output_mapping": _OUTPUT_MAPPING,
        "execution_config": _EXECUTION,
        "tool_description": _tool_description,
    }
)


def _oversize(view: object) -> str | None:
    """Say what later recursion could not bear; level by level, so without recursion."""
    level: list[object] = [view]
    nodes = depth = 0
    while level:
        depth += 1
        nodes += len(level)
        if depth > MAX_VIEW_DEPTH:
            return f"the view is nested more than {MAX_VIEW_DEPTH} levels deep"
        if nodes > MAX_VIEW_NODES:
            return f"the view has more than {MAX_VIEW_NODES} values"
        below: list[object] = []
        for node in level:
            if isinstance(node, dict):
                below.extend(cast("JSONObject", node).values())
            elif isinstance(node, list):
                below.extend(cast("list[object]", node))
        level = below
    return None


def find_faults(view: object) -> list[OperationError]:
    """Tell everything that is wrong with a view, `MAX_FAULTS` at most; nothing if it is sound.

    A view that is too large or too deep is not looked at any further.
    """
    reason = _oversize(view)
    if reason is not None:
        return [OperationError(reason)]
    found: Faults = []
    _VIEW(view, "", found)
    if isinstance(view, dict):
        held = cast("JSONObject", view)
        protocol, target = held.get("protocol"), held.get("target")
        if isinstance(protocol, str) and protocol in _TARGETS and isinstance(target, dict):
            _TARGETS[protocol](cast("object", target), "target", found)
    return found


def execution_faults(config: object, place: str) -> list[OperationError]:
    """Tell everything that is wrong with an `execution_config` which stands by itself."""
    found: Faults = []
    _EXECUTION(config, place, found)
    return found


def parse(view: Mapping[str, object]) -> Operation:
    """Read a view of the format `mcp-operations/1`.

    Raises:
        OperationError: it misses a key, has one the format does not know, or holds a
            value of the wrong kind; the error names the place of the first such fault, and
            `find_faults` tells all.
    """
    found = find_faults(view)
    if found:
        raise found[0]
    return Operation(**view)  # type: ignore[arg-type]  # every key was checked just now
