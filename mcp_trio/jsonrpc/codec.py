"""Bytes to messages and back; the only importer of the JSON library.

Strict on the way in: NaN, trailing bytes, lone surrogates, invalid UTF-8 and a byte
order mark are refused, integers keep all their digits. As strict on the way out. What
cannot be read becomes a `Malformed` value with the answer JSON-RPC prescribes; nothing of
the input is echoed.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Iterator
from typing import Any, cast

import attrs
import msgspec

from mcp_trio.errors import INVALID_REQUEST, PARSE_ERROR, ErrorCode
from mcp_trio.jsonrpc.glimpse import REACH, Glimpse, glimpse
from mcp_trio.jsonrpc.messages import (
    Batch,
    Error,
    Malformed,
    Message,
    Notification,
    Request,
    Result,
    Single,
)
from mcp_trio.wire.basic import JSONObject, RequestId

_ALIKE = bytes.maketrans(b"{}", b"[]")
_NOT_STRUCTURE = bytes(set(range(256)) - set(b'[]{},"'))


@attrs.frozen(kw_only=True)
class CodecLimits:
    """What a message may cost."""

    max_depth: int = 64
    """Nesting of arrays and objects."""
    max_nodes: int = 1_000_000
    """Values: one for each comma and each opening bracket, and one. Each costs many times the
    bytes that it takes on the wire."""
    max_batch: int = 100
    """Messages in one array."""
    max_id: int = 512
    """Characters of a string id, or decimal digits of a number."""


DEFAULT_LIMITS = CodecLimits()

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode


class EncodeError(ValueError):
    """A value of ours cannot be written as JSON, such as NaN or a lone surrogate."""


def overgrown(data: bytes, limits: CodecLimits = DEFAULT_LIMITS) -> str | None:
    """Tell what makes JSON too big to be read, in linear time and without recursion.

    Usually a look at the length and two counts say that nothing does. What stands in strings
    counts for nothing, but looking closer than that is only for who could be over a limit.
    """
    openings = data.count(b"{") + data.count(b"[")
    deep = openings > limits.max_depth
    # Every value but the last one takes two bytes at least.
    many = len(data) >= 2 * limits.max_nodes and _nodes(data, openings) > limits.max_nodes
    if not deep and not many:
        return None
    outline = _outline(data)
    if deep and _deeper(outline, limits.max_depth):
        return f"JSON is nested more than {limits.max_depth} levels deep"
    if many and _nodes(outline, outline.count(b"{") + outline.count(b"[")) > limits.max_nodes:
        return f"JSON has more than {limits.max_nodes} values"
    return None


def _nodes(data: bytes, openings: int) -> int:
    return openings + data.count(b",") + 1


def _outline(data: bytes) -> bytes:
    """The brackets and commas outside of strings.

    Up to the first byte that no JSON has there, which is also where reading would end.
    """
    if b"\\" in data:
        # In this order: of a run of backslashes, every second one is a character.
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Most strings hold nothing of interest, and go at once.
    return b"".join(data.translate(None, _NOT_STRUCTURE).replace(b'""', b"").split(b'"')[::2])


def _deeper(outline: bytes, limit: int) -> bool:
    rest = outline.translate(_ALIKE, b",")
    for _ in range(limit):
        # Each round takes off the innermost level. What is in order and not too deep vanishes.
        inner = rest.replace(b"[]", b"")
        if not inner:
            return False
        if len(inner) == len(rest):
            break
        rest = inner
    depth = 0
    for char in outline:
        if char in b"[{":
            depth += 1
            if depth > limit:
                return True
        elif char in b"]}":
            depth -= 1
    return False


def _fault(code: int, reason: str, id_: RequestId | None = None) -> Malformed:
    data = {"code": ErrorCode.PROTOCOL_INVALID.value}
    return Malformed(reason, Error(id_, code, reason, data))


def decode(data: bytes, limits: CodecLimits = DEFAULT_LIMITS) -> Message:
    """Read one message or one batch. Never raises for what a peer can send."""
    reason = overgrown(data, limits)
    if reason is not None:
        return unread(reason, glimpse(data, data[-REACH:]))
    try:
        value = _decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        reason = "Parse error: not JSON in UTF-8, or a number or character in it cannot be read"
        seen = glimpse(data, data[-REACH:])
        if seen is not None and seen.answers:
            return unread(reason, seen)
        return _fault(PARSE_ERROR, reason)  # whose id is null, says JSON-RPC
    if isinstance(value, list):
        items = cast("list[object]", value)
        if not items:
            return _fault(INVALID_REQUEST, "Invalid request: an empty batch")
        if len(items) > limits.max_batch:
            return _fault(
                INVALID_REQUEST, f"Invalid request: more than {limits.max_batch} in a batch"
            )
        return Batch(tuple(_read(item, limits) for item in items))
    return _read(value, limits)


def unread(reason: str, seen: Glimpse | None) -> Malformed:
    """What becomes of a message that was not read whole, by what was seen of it.

    An answer is never answered; whoever waits for it is told.
    """
    if seen is not None and seen.answers:
        return Malformed(reason, None, seen.id)
    return _fault(INVALID_REQUEST, reason, None if seen is None else seen.id)


def _usable_id(value: object, limits: CodecLimits) -> RequestId | None:
    if type(value) is str and len(value) <= limits.max_id:
        return value
    # Three bits are less than a digit, so most numbers need no power of ten to be judged.
    if type(value) is int and (
        value.bit_length() <= 3 * limits.max_id or abs(value) < 10**limits.max_id
    ):
        return value
    return None


def _read(value: object, limits: CodecLimits) -> Single:
    if not isinstance(value, dict):
        return _fault(INVALID_REQUEST, "Invalid request: a message is a JSON object")
    message = cast("JSONObject", value)
    id_ = _usable_id(message.get("id"), limits)
    if "method" not in message and ("result" in message or "error" in message):
        return _read_response(message, id_)
    if message.get("jsonrpc") != "2.0":
        return _fault(INVALID_REQUEST, 'Invalid request: "jsonrpc" must be "2.0"', id_)
    if "method" not in message:
        return _fault(INVALID_REQUEST, 'Invalid request: no "method"', id_)
    return _read_call(message, id_)


def _read_call(message: JSONObject, id_: RequestId | None) -> Single:
    method, params = message["method"], message.get("params")
    if type(method) is not str:
        return _fault(INVALID_REQUEST, 'Invalid request: "method" must be a string', id_)
    if "result" in message or "error" in message:
        return _fault(INVALID_REQUEST, "Invalid request: both a call and an answer", id_)
    if not isinstance(message.get("params", {}), dict):
        reason = 'Invalid request: "params" must be an object'
        # A notification is never answered, whatever is wrong with it (B4).
        return _fault(INVALID_REQUEST, reason, id_) if "id" in message else Malformed(reason, None)
    arguments = cast("JSONObject | None", params)
    if id_ is not None:
        return Request(id_, method, arguments)
    if "id" in message:
        return _fault(INVALID_REQUEST, 'Invalid request: "id" must be a string or an integer')
    return Notification(method, arguments)


def _read_response(message: JSONObject, id_: RequestId | None) -> Single:
    """Read an answer. One that is malformed is not answered, only noted for its id."""
    result, error = message.get("result"), message.get("error")
    if message.get("jsonrpc") != "2.0":
        return Malformed('an answer whose "jsonrpc" is not "2.0"', None, id_)
    if "result" in message and "error" in message:
        return Malformed("an answer with both a result and an error", None, id_)
    if isinstance(result, dict):
        if id_ is None:
            return Malformed("a result without a usable id", None)
        return Result(id_, cast("JSONObject", result))
    if isinstance(error, dict):
        fields = cast("JSONObject", error)
        code, text = fields.get("code"), fields.get("message")
        if type(code) is int and type(text) is str:
            return Error(id_, code, text, fields.get("data"))
    reason = "an answer whose result or error is not an object of the right shape"
    return Malformed(reason, None, id_)


def encode(message: Message) -> bytes:
    """Write one message or batch, without any newline.

    Raises:
        EncodeError: the message holds something JSON cannot carry.
    """
    if isinstance(message, Batch):
        return b"[" + b",".join([encode(item) for item in message.items]) + b"]"
    return encode_value(_plain(message))


def _plain(message: Single) -> dict[str, Any]:
    match message:
        case Result():
            return {"jsonrpc": "2.0", "id": message.id, "result": message.result}
        case Request():
            plain: dict[str, Any] = {
                "jsonrpc": "2.0",
                "id": message.id,
                "method": message.method,
            }
        case Notification():
            plain = {"jsonrpc": "2.0", "method": message.method}
        case Error():
            body: dict[str, Any] = {"code": message.code, "message": message.message}
            if message.data is not None:
                body["data"] = message.data
            if message.id is None:
                return {"jsonrpc": "2.0", "error": body}
            return {"jsonrpc": "2.0", "id": message.id, "error": body}
        case Malformed():
            raise EncodeError("a malformed message is never sent")
    if message.params is not None:
        plain["params"] = message.params
    return plain


def encode_value(value: object) -> bytes:
    """Write any JSON value.

    Raises:
        EncodeError: as `encode`.
    """
    try:
        data = _encode(value)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise EncodeError(f"cannot be written as JSON: {error}") from error
    # The library writes NaN as null, so only where there is a null can there have been one.
    if b"null" in data and not is_finite(value):
        raise EncodeError("cannot be written as JSON: NaN or an infinity")
    return data


def encode_read(value: object) -> bytes:
    """Write a JSON value that was read here, without the search for what JSON cannot carry."""
    return _encode(value)


def may_mention(value: object, word: str) -> bool:
    """Tell whether a word may stand in a JSON value, in a key or a text.

    To write the value and to search that is many times faster than to walk through it.
    """
    try:
        return word.encode() in _encode(value)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return True  # it cannot be written, so nothing can be said


def encode_sorted(value: object) -> bytes:
    """Write a JSON value that was read here, equal values equally: for digests."""
    return _encode_sorted(value)


def raw(value: object) -> msgspec.Raw:
    """Encode a value once, to be placed into any number of later messages as it is."""
    return msgspec.Raw(encode_value(value))


def decode_value(data: bytes | str) -> object:
    """Read any JSON value, with the same strictness.

    Raises:
        ValueError: not JSON.
    """
    try:
        return _decode(data)
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def is_finite(value: object) -> bool:
    """Tell whether a value has no NaN and no infinity, which JSON cannot carry."""
    queue = [value]
    while queue:
        item = queue.pop()
        if item is None or isinstance(item, (str, int)):
            continue
        if isinstance(item, float):
            if not math.isfinite(item):
                return False
        elif isinstance(item, dict):
            queue.extend(cast("JSONObject", item).values())
        elif isinstance(item, (list, tuple, set, frozenset)):
            queue.extend(cast("list[object]", item))
        else:
            queue.extend(_parts(item))
    return True


def _parts(item: object) -> Iterator[object]:
    """What an object is written as, where the library writes objects by itself."""
    if isinstance(item, enum.Enum):
        yield item.value
        return
    kind: Any = type(item)
    if attrs.has(kind):
        names = [field.name for field in attrs.fields(kind)]
    elif dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind)]
    else:
        names = list(getattr(kind, "__struct_fields__", ()))
    for name in names:
        yield getattr(item, name, None)
