"""Where and how a call of a tool failed, read from the event that tells its end."""

from __future__ import annotations

from typing import cast

import attrs

from mcp_trio.events import ToolCompleted
from mcp_trio.runtime.stages import ERROR_KEY
from mcp_trio.telemetry.plain_text import cut
from mcp_trio.wire import JSONObject

HANDLER = "handler"
"""The stage of a failure of a tool that is a function, and of what has no stages."""


@attrs.frozen(kw_only=True)
class Failure:
    """What programs are told of a failed call. Texts are bounded, whoever wrote them."""

    stage: str
    """Of a published operation, else `HANDLER`."""
    sub: str | None
    """What kind of failure within the stage."""
    code: str | int | None
    """Of the upstream, or the `ErrorCode` of an error of the protocol."""
    upstream_status: int | None
    operation_id: str | None
    revision: str | None
    """Of the operation."""

    @classmethod
    def of(cls, event: ToolCompleted) -> Failure:
        """Read it."""
        return cls.read(event.meta.get(ERROR_KEY), event.code)

    @classmethod
    def read(cls, told: object, code: str | None = None) -> Failure:
        """Read what stands in `_meta`: a tool may have put anything there.

        Args:
            told: under `ERROR_KEY`; what does not fit is left out.
            code: if it says none.
        """
        known = cast("JSONObject", told) if isinstance(told, dict) else dict[str, object]()
        found, status = known.get("code", code), known.get("upstream_status")
        return cls(
            stage=_text(known.get("stage")) or HANDLER,
            sub=_text(known.get("sub")),
            code=found if isinstance(found, int) else _text(found),
            upstream_status=status if isinstance(status, int) else None,
            operation_id=_text(known.get("operation_id")),
            revision=_text(known.get("revision")),
        )


def _text(value: object) -> str | None:
    return cut(value) if isinstance(value, str) else None
