"""What a request is about: the tool or prompt it names, or the URI.

Whoever decides by a target must not be fooled by another spelling of it, so a URI stands here
in its normal form.
"""

from __future__ import annotations

from mcp_trio.framing.uri_template import normal
from mcp_trio.wire.completion import CompleteParams
from mcp_trio.wire.methods import METHODS
from mcp_trio.wire.prompts import GetPromptParams
from mcp_trio.wire.resources import ReadResourceParams
from mcp_trio.wire.tools import CallToolParams


def target_of(params: object) -> str | None:
    """What a request is about, by its typed parameters; None if it names nothing."""
    match params:
        case CallToolParams(name=name) | GetPromptParams(name=name):
            return name
        case ReadResourceParams(uri=uri):
            return normal(uri)
        case CompleteParams(ref=ref):
            return ref.name if ref.uri is None else normal(ref.uri)
        case _:
            return None


def params_about(method: str, target: str) -> object:
    """The least parameters with which a method is called for one target.

    Raises:
        KeyError: no such method, or it has no target.
    """
    row = METHODS[method]
    if row.named_by is None:
        raise KeyError(method)
    return row.params(**{row.named_by: target})
