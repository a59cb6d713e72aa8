"""The shapes a JSON-RPC message can have, as frozen values.

No method names and no revisions: this is JSON-RPC alone (https://www.jsonrpc.org/specification).
"""

from __future__ import annotations

from typing import TypeAlias

import attrs

from mcp_trio.wire.basic import JSONObject, RequestId


@attrs.frozen
class Request:
    """A call that wants an answer."""

    id: RequestId
    method: str
    params: JSONObject | None = None


@attrs.frozen
class Notification:
    """A message that never gets an answer."""

    method: str
    params: JSONObject | None = None


@attrs.frozen
class Result:
    """The answer to a request that worked."""

    id: RequestId
    result: JSONObject


@attrs.frozen
class Error:
    """The answer to a request that did not work. `id` is None when it could not be read."""

    id: RequestId | None
    code: int
    message: str
    data: object = None


@attrs.frozen
class Malformed:
    """Bytes that are no message, or a message that is no JSON-RPC.

    `answer` is what JSON-RPC says in return; None where answering is not allowed,
    because the bytes were meant as an answer themselves.
    """

    reason: str
    answer: Error | None
    lost: RequestId | None = None
    """The id of the answer that could not be read: whoever waits for it waits in vain."""
    undone: bool = attrs.field(default=False, kw_only=True)
    """The peer has done nothing for the request whose answer is lost: it may be sent again."""


Response: TypeAlias = Result | Error
Single: TypeAlias = Request | Notification | Result | Error | Malformed


@attrs.frozen
class Batch:
    """A JSON array of messages. Only one revision has them (B5)."""

    items: tuple[Single, ...]


Message: TypeAlias = Single | Batch
