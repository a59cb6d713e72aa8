"""The onion around every call of a client, as a server has one around every request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeAlias

from mcp_trio.wire import JSONObject

ClientNext: TypeAlias = Callable[[str, JSONObject | None], Awaitable[JSONObject]]
"""The rest of the way: takes method and parameters, gives the result as it came or raises."""
ClientMiddleware: TypeAlias = Callable[[str, JSONObject | None, ClientNext], Awaitable[JSONObject]]
"""One layer: `async def layer(method, params, call_next)`. It runs once for each call, around all
rounds of it, in the caller's task and scope."""


def around(layers: Sequence[ClientMiddleware], core: ClientNext) -> ClientNext:
    """Put the layers around the core, the first one outermost."""
    for layer in reversed(layers):
        core = partial(_enter, layer, core)
    return core


def _enter(
    layer: ClientMiddleware, inner: ClientNext, method: str, params: JSONObject | None
) -> Awaitable[JSONObject]:
    return layer(method, params, inner)
