"""JSON that anybody may have written, looked at without trusting its shape."""

from __future__ import annotations

from typing import cast

from mcp_trio.wire import JSONObject


def as_object(value: object) -> JSONObject:
    """The object that a value is; an empty one if it is none."""
    return cast("JSONObject", value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[object]:
    """The array that a value is; an empty one if it is none."""
    return cast("list[object]", value) if isinstance(value, list) else []
