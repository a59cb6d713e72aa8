"""From an upstream's answer to the result of a call: success, mapping, validation, text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import attrs
import msgspec

from mcp_trio.catalog.operation import Operation, OperationError
from mcp_trio.json_schema import SchemaError, Validator, Violation
from mcp_trio.runtime.adapters.base import Answer
from mcp_trio.runtime.contents import Blocks, compile_content, compile_template
from mcp_trio.runtime.expressions import Scope
from mcp_trio.runtime.mapping import Mapper, MappingError, check_context, compile_mapping
from mcp_trio.runtime.policies import RETRYABLE_STATUSES, Settings
from mcp_trio.runtime.stages import WARNING_KEY, Stage, StageError, told
from mcp_trio.wire import ABSENT, CallToolResult, ContentBlock, JSONObject, TextContent

NO_CONTENT = "Done; there is no content."
"""The text of a good answer without a body."""
_MESSAGE_KEYS = ("message", "detail", "title", "error_description", "error", "reason")
"""Where upstreams put their message, when the operation does not say; RFC 9457 and habit."""


@attrs.frozen(kw_only=True, eq=False)
class Output:
    """The compiled output side of an operation. Immutable."""

    success_when: Mapper | None
    result: Mapper | None
    """None: the whole body."""
    text: Mapper | None
    """None: JSON, or nothing if `silent`."""
    silent: bool
    blocks: Blocks
    """Content beside the text."""
    errors: Mapping[str, Mapper]
    validator: Validator | None
    """Of what clients are promised; None if they are promised nothing."""
    keeps: bool
    """Whether a result that breaks the promise is given as text, with the failure."""
    says_cut: bool
    """Whether the schema has room to say that arrays were cut off."""
    items: int | None
    """Most items of an array in the result."""
    truncates: bool
    """Whether longer arrays are cut off, in place of an error."""

    @property
    def reads(self) -> frozenset[tuple[str, str | None]]:
        """What the mappings read of the context."""
        mappers = [self.success_when, self.result, self.text, *self.errors.values()]
        mappers += [mapper for block in self.blocks for mapper in block.mappers.values()]
        return frozenset[tuple[str, str | None]]().union(
            *(mapper.names for mapper in mappers if mapper is not None)
        )

    def deliver(
        self, answer: Answer, arguments: JSONObject, mask: Callable[[str], str]
    ) -> CallToolResult:
        """Make the result.

        With an output schema, whatever the mapping gives becomes structured content.
        Without one only an object does: nobody told the client to expect another shape.
        A result that breaks the schema is a failure in every case: clients refuse an answer
        that is none and does not keep the promise, and its caller would see nothing of it.

        Raises:
            StageError: the upstream failed, or the result breaks the output schema.
            MappingError: the output mapping cannot be applied to this answer.
        """
        context = Scope(
            {
                "status": answer.status,
                "headers": dict(answer.headers),
                "body": answer.body,
                **answer.more,
                "args": arguments,
            }
        )
        check_context(context, "output_mapping")
        if not self._succeeded(answer, context):
            raise self._external(answer, context, mask)
        result: object = answer.body if self.result is None else self.result(context)
        result, cut = self._limited(result, mask, stopped=answer.cut)
        violations = self._violations(result, mask)
        if violations and not self.keeps:
            raise _misfit(violations)
        promised = self.validator is not None and not violations
        structured = promised or _is_object(result)
        warning: JSONObject = {}
        content = self._content(answer, result, context, promised=promised)
        made = [block.make(context) for block in self.blocks]
        content += [block for block in made if block is not None]
        if cut:
            warning["truncated"] = [{"pointer": pointer, "of": of} for pointer, of in cut]
            content.append(TextContent(text=_said_of(cut, self.items)))
        if violations:
            own_text = self.silent or self.text is not None
            whole = [TextContent(text=_as_text(result))] if own_text else []
            raise _misfit(violations, kept=[*content, *whole])
        return CallToolResult(
            content=content,
            structured_content=result if structured else ABSENT,
            meta={WARNING_KEY: warning} if warning else None,
        )

    def _limited(
        self, result: object, mask: Callable[[str], str], *, stopped: bool
    ) -> tuple[object, list[tuple[str, int | None]]]:
        """Hold the arrays of a result to the limit; which were longer, and how long.

        The first of them is what was not even read to its end, if that is so.
        """
        cut: list[tuple[str, int]] = []
        held = result if self.items is None else _cut(result, self.items, "", cut)
        if cut and not self.truncates:
            pointer, of = cut[0]
            raise StageError(
                Stage.ADAPTER_EXECUTION,
                f"the result has {of} items at {told(pointer or '/', mask)}, "
                f"more than {self.items}",
                sub="response_items",
                step="response_bytes",
            )
        over: list[tuple[str, int | None]] = [*([("", None)] if stopped else []), *cut]
        if over and self.says_cut and _is_object(held):
            held = {**cast("JSONObject", held), "truncated": True}
        return held, over

    def _succeeded(self, answer: Answer, context: JSONObject) -> bool:
        if self.success_when is None:
            return answer.ok
        verdict = self.success_when(context)
        if not isinstance(verdict, bool):
            raise MappingError("must give true or false", path=self.success_when.path)
        return verdict

    def _violations(self, result: object, mask: Callable[[str], str]) -> list[Violation]:
        if self.validator is None:
            return []
        # They name keys, which are the upstream's own.
        return [
            attrs.evolve(
                found, pointer=told(found.pointer, mask), message=told(found.message, mask)
            )
            for found in self.validator.violations(result)
        ]

    def _content(
        self, answer: Answer, result: object, context: JSONObject, *, promised: bool
    ) -> list[ContentBlock]:
        if self.silent:
            return []
        if self.text is not None:
            said = self.text(context)
            if said is None:
                return []
            if not isinstance(said, str):
                raise MappingError("must give a string", path=self.text.path)
            return [TextContent(text=said)]
        if answer.content is not None and self.result is None:
            return list(answer.content)
        return [TextContent(text=_as_json(result) if promised else _as_text(result))]

    def _external(
        self, answer: Answer, context: JSONObject, mask: Callable[[str], str]
    ) -> StageError:
        status = answer.status
        mapped = self._told("message", context)
        said = answer.message if answer.message is not None else _message(answer.body)
        text = mapped if isinstance(mapped, str) else said
        if _PAGE.match(text):
            text = "an HTML page"
        text = told(text, mask)
        code = self._told("code", context)
        if type(code) is not int and not isinstance(code, str):
            code = status if answer.code is None else answer.code
        retryable = self._told("retryable", context)
        if not isinstance(retryable, bool):
            retryable = answer.retryable
        if retryable is None:
            retryable = status in RETRYABLE_STATUSES
        reported = answer.ok or status is None
        what = "the upstream reported a failure" if reported else f"the upstream answered {status}"
        return StageError(
            Stage.EXTERNAL_SERVICE,
            f"{what}: {text}" if text else what,
            sub="reported" if reported else "status",
            code=told(code, mask) if isinstance(code, str) else code,
            retryable=retryable,
            retry_after=answer.retry_after,
            upstream_status=status,
            step="operator" if _is_operators(status, retryable=retryable) else None,
        )

    def _told(self, part: str, context: JSONObject) -> object:
        mapper = self.errors.get(part)
        if mapper is None:
            return None
        try:
            return mapper(context)
        except MappingError:
            # The failure of the upstream must not hide behind one of its description.
            return None


def _as_json(result: object) -> str:
    return msgspec.json.encode(result).decode()


def _as_text(result: object) -> str:
    if result is None:
        return NO_CONTENT
    return result if isinstance(result, str) else _as_json(result)


def _misfit(violations: list[Violation], kept: Sequence[ContentBlock] = ()) -> StageError:
    first = violations[0]
    return StageError(
        Stage.SCHEMA_VALIDATION,
        f"the result does not fit the output schema: {first.pointer or '/'} {first.message}",
        sub="output",
        violations=violations,
        step="kept" if kept else None,
        kept=kept,
    )


def _cut(value: object, most: int, pointer: str, cut: list[tuple[str, int]]) -> object:
    match value:
        case dict():
            held = cast("JSONObject", value)
            return {
                key: _cut(child, most, f"{pointer}/{_token(key)}", cut)
                for key, child in held.items()
            }
        case list():
            items = cast("list[object]", value)
            if len(items) > most:
                cut.append((pointer, len(items)))
            return [
                _cut(child, most, f"{pointer}/{n}", cut) for n, child in enumerate(items[:most])
            ]
        case _:
            return value


def _token(key: str) -> str:
    """A key in a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def _said_of(cut: list[tuple[str, int | None]], most: int | None) -> str:
    places = ", ".join(
        f"{pointer or '/'} has {'more' if of is None else of}" for pointer, of in cut[:5]
    )
    first = "first items" if most is None else f"first {most} items"
    return f"Only the {first} are given: {places}. Ask for less to see the rest."


_PAGE = re.compile(r"\s*(<!doctype html|<html)\b", re.IGNORECASE)
"""A page made for people, of which nothing is worth repeating to a model."""


def _is_operators(status: int | None, *, retryable: bool) -> bool:
    """Whether no argument can mend it: access, or a failure inside the upstream."""
    return status in {401, 403} or (status is not None and status >= 500 and not retryable)


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _message(body: object) -> str:
    for _ in range(2):
        if isinstance(body, str):
            return body
        if not isinstance(body, dict):
            return ""
        held = cast("JSONObject", body)
        body = next((held[key] for key in _MESSAGE_KEYS if held.get(key)), None)
    return body if isinstance(body, str) else ""


def compile_output(operation: Operation, settings: Settings, names: Sequence[str]) -> Output:
    """Compile the output side.

    Args:
        operation: with an output mapping and an output schema.
        settings: of the operation.
        names: what the mapping may read.

    Raises:
        OperationError, MappingError: it cannot work.
    """
    mapping = operation.output_mapping
    said = mapping.get("text", "json")
    blocks = cast("list[JSONObject]", mapping.get("content") or [])
    try:
        # Compiled even if nothing is held to it: a schema that is none is a fault of the view.
        validator = None if operation.output_schema is None else Validator(operation.output_schema)
    except SchemaError as error:
        raise OperationError(str(error), place="output_schema") from error

    def mapper(part: str) -> Mapper | None:
        tree = mapping.get(part)
        return None if tree is None else compile_mapping(tree, f"output_mapping.{part}", names)

    if settings.truncates:
        _check_room(operation)
    errors = cast("JSONObject", mapping.get("error") or {})
    return Output(
        success_when=mapper("success_when"),
        result=mapper("result"),
        text=_text_of(said, names),
        blocks=compile_content(blocks, "output_mapping.content", names),
        silent=said == "none",
        errors={
            part: compile_mapping(tree, f"output_mapping.error.{part}", names)
            for part, tree in errors.items()
        },
        validator=validator if operation.promise is not None else None,
        keeps=settings.output_validation == "warn",
        # Compiled only where the schema has room for it.
        says_cut=operation.output_schema is not None,
        items=settings.items,
        truncates=settings.truncates,
    )


def _text_of(said: object, names: Sequence[str]) -> Mapper | None:
    path = "output_mapping.text"
    if said in ("json", "none"):
        return None
    if isinstance(said, str) and not said.startswith("="):
        return compile_template(said, path, names)
    return compile_mapping(said, path, names)


def _check_room(operation: Operation) -> None:
    """Refuse to cut what a schema promises whole, unless it has room to say so."""
    schema = operation.output_schema
    if schema is None:
        return
    properties = schema.get("properties")
    held = cast("JSONObject", properties) if isinstance(properties, dict) else {}
    room = held.get("truncated")
    if not isinstance(room, dict) or cast("JSONObject", room).get("type") != "boolean":
        raise OperationError(
            "with on_exceed truncate the output schema needs a boolean property 'truncated', "
            "or clients could not tell",
            place="output_schema",
        )
