"""What a client adds to its own messages: the per-request fields and the HTTP headers.

The counterpart of `stateless.admit`. A stamp is chosen once, when the era is known, so
nothing above asks for the revision again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast

from mcp_trio.framing import headers as names
from mcp_trio.framing.headers import encode_value
from mcp_trio.framing.param_headers import ParamHeader, build
from mcp_trio.jsonrpc.messages import Notification, Request, Single
from mcp_trio.wire import METHODS, JSONObject, Revision
from mcp_trio.wire.meta import CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION


class Stamp(Protocol):
    """Completes the messages of one client."""

    may_answer: bool
    """Whether a client may answer what the server asks (B8)."""

    def params(self, params: JSONObject | None) -> JSONObject | None:
        """The parameters as they are sent."""
        ...

    def headers(self, message: Single) -> dict[str, str]:
        """The header fields that go with a message, for transports that have them."""
        ...

    def ask_for_logs(self, level: str) -> bool:
        """Ask for log lines in every later request; False where a request of its own does."""
        ...


class HandshakeStamp:
    """Adds the version header once a revision that has it was negotiated (H11)."""

    may_answer = True

    def __init__(self, revision: Revision | None) -> None:
        self._headers = (
            {names.VERSION: revision.date} if revision and revision.version_header else {}
        )

    def params(self, params: JSONObject | None) -> JSONObject | None:
        """Leave them alone."""
        return params

    def headers(self, message: Single) -> dict[str, str]:  # noqa: ARG002 - the contract
        """The version, if the revision has the header."""
        return self._headers

    def ask_for_logs(self, level: str) -> bool:  # noqa: ARG002 - the contract
        """Leave it to `logging/setLevel`."""
        return False


class StatelessStamp:
    """Adds who asks, in which revision and with which capabilities; mirrors it in headers."""

    may_answer = False

    def __init__(
        self,
        revision: Revision,
        info: JSONObject,
        capabilities: JSONObject,
        annotations: Callable[[str], tuple[ParamHeader, ...]],
    ) -> None:
        self._revision = revision
        self._annotations = annotations
        self._logs: JSONObject = {}
        """The level of the log lines that are wanted, unless a call says another."""
        self._meta: JSONObject = {
            PROTOCOL_VERSION: revision.date,
            CLIENT_INFO: info,
            CLIENT_CAPABILITIES: capabilities,
        }

    def params(self, params: JSONObject | None) -> JSONObject:
        """Add the per-request fields; what the caller put into `_meta` stays."""
        params = params or {}
        meta = cast("JSONObject", params.get("_meta") or {})
        added = {**self._logs, **meta, **self._meta} if meta or self._logs else self._meta
        return {**params, "_meta": added}

    def ask_for_logs(self, level: str) -> bool:
        """Say the level in every request from now on (G1)."""
        self._logs = {LOG_LEVEL: level}
        return True

    def headers(self, message: Single) -> dict[str, str]:
        """Version, method, name, and the mirrored arguments of a tool (N8, N9, N14)."""
        made = {names.VERSION: self._revision.date}
        if not isinstance(message, Request | Notification):
            return made
        made[names.METHOD] = message.method
        params = message.params or {}
        method = METHODS.get(message.method)
        name = params.get(method.named_by) if method and method.named_by else None
        if isinstance(name, str):
            made[names.NAME] = encode_value(name)
            arguments = params.get("arguments")
            if isinstance(arguments, dict) and (annotations := self._annotations(name)):
                made.update(build(annotations, cast("JSONObject", arguments)))
        return made
