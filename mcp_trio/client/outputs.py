"""Whether a tool's structured content is what its listing promised (T4).

Compiled when a tool is first called; nothing is ever fetched for it (J2).
"""

from __future__ import annotations

import attrs

from mcp_trio.errors import ProtocolError
from mcp_trio.json_schema import SchemaError, Validator
from mcp_trio.wire import CallToolResult, JSONObject, Tool
from mcp_trio.wire.marks import ABSENT


@attrs.define
class _Promise:
    schema: JSONObject
    validator: Validator | None = None


class Outputs:
    """The output schemas of one server's tools, as they were listed last."""

    def __init__(self) -> None:
        self._promises: dict[str, _Promise] = {}

    def note(self, tool: Tool) -> None:
        """Take note of a tool as it was listed."""
        if tool.output_schema is None:
            self.forget(tool.name)
            return
        known = self._promises.get(tool.name)
        if known is None or known.schema != tool.output_schema:
            self._promises[tool.name] = _Promise(tool.output_schema)

    def forget(self, name: str | None = None) -> None:
        """Drop what a tool promised, or what all of them did: they may be others by now.

        Args:
            name: None for every tool.
        """
        if name is None:
            self._promises.clear()
        else:
            self._promises.pop(name, None)

    def validator(self, name: str) -> Validator | None:
        """What the results of a tool are held to; None for one that promised nothing.

        Raises:
            ProtocolError: its schema cannot be used.
        """
        promise = self._promises.get(name)
        if promise is None:
            return None
        if promise.validator is None:
            try:
                promise.validator = Validator(promise.schema)
            except SchemaError as error:
                raise ProtocolError(
                    f"the outputSchema of {name[:64]} cannot be used: {error}"
                ) from error
        return promise.validator


def hold_to(validator: Validator, name: str, result: CallToolResult) -> None:
    """Check the result of a tool. One that says it failed has promised nothing.

    Raises:
        ProtocolError: naming the places that do not fit, in `data` as well, never their values.
    """
    if result.is_error:
        return
    if result.structured_content is ABSENT:
        raise ProtocolError(f"{name[:64]} has an outputSchema and gave no structured content")
    faults = validator.violations(result.structured_content)
    if faults:
        places = "; ".join(f"{fault.pointer or 'the whole'} {fault.message}" for fault in faults)
        raise ProtocolError(
            f"the structured content of {name[:64]} does not fit its outputSchema: {places}",
            data={"tool": name, "violations": [fault.as_json() for fault in faults]},
        )
