"""A result that is a question: what the server needs before it can go on (R1 to R3).

What is inside the state is the server's business and written in `eras.rounds`.
"""

from __future__ import annotations

import attrs

from mcp_trio.wire.basic import JSONObject
from mcp_trio.wire.marks import defaulted, optional

ROUND_METHODS = frozenset({"tools/call", "prompts/get", "resources/read"})
"""The requests that may be answered by a question (R1)."""

ASK_METHODS = frozenset({"elicitation/create", "sampling/createMessage", "roots/list"})
"""What may be asked (R2)."""


@attrs.frozen(kw_only=True)
class InputRequest:
    """One question: a request of the server without an id."""

    method: str
    params: JSONObject | None = optional()


@attrs.frozen(kw_only=True)
class InputRequiredResult:
    """The questions by key, and the state to send back with the answers."""

    input_requests: JSONObject | None = optional()
    """Each an `InputRequest` as it travels."""
    request_state: str | None = optional()
    result_type: str = defaulted("input_required")
    meta: JSONObject | None = optional(name="_meta")


@attrs.frozen(kw_only=True)
class InputResponseParams:
    """What a retry carries beside the parameters of the method."""

    input_responses: JSONObject | None = optional()
    request_state: str | None = optional()
