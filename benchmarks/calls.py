"""A `tools/call` as it stands on the wire in each era, and one blocking connection to send it on.

Plain enough to cost every server under load the same. No package under measurement is used.
"""

from __future__ import annotations

import http.client
import itertools
import json
import urllib.parse
from collections.abc import Callable
from typing import Any

import attrs

HANDSHAKE, STATELESS = "2025-11-25", "2026-07-28"
TIMEOUT = 10.0
"""Seconds a connection waits for an answer."""

_META = {
    "io.modelcontextprotocol/protocolVersion": STATELESS,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
}

INITIALIZED = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"})
"""Ends the handshake."""


def cancelled(request_id: int | str) -> str:
    """The body that cancels a request of a session."""
    params = {"requestId": request_id}
    return json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})


class WrongAnswerError(Exception):
    """A server answered something else than the truth."""


FAILURES = (WrongAnswerError, OSError, http.client.HTTPException, ValueError, KeyError)
"""What a conversation with a server that does not do the work can end with."""


@attrs.frozen(kw_only=True)
class Dialect:
    """How requests look in one era, within one session if the era has sessions."""

    revision: str
    session: str | None = None

    def headers(self, name: str | None = None) -> dict[str, str]:
        """The fields of a POST; `name` is the tool called."""
        fields = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": self.revision,
        }
        if self.session is not None:
            fields["Mcp-Session-Id"] = self.session
        elif name is not None:
            fields |= {"Mcp-Method": "tools/call", "Mcp-Name": name}
        return fields

    def hello(self) -> str:
        """The body that opens a session."""
        params = {
            "protocolVersion": self.revision,
            "capabilities": {},
            "clientInfo": {"name": "bench", "version": "1"},
        }
        return json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})

    def call(
        self, id_: int | str, name: str, arguments: dict[str, Any], *, token: str | None = None
    ) -> str:
        """The body of a call, asking for progress under a token if there is one."""
        params: dict[str, Any] = {"name": name, "arguments": arguments}
        meta = dict(_META) if self.revision == STATELESS else {}
        if token is not None:
            meta["progressToken"] = token
        if meta:
            params["_meta"] = meta
        return json.dumps({"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": params})


class Line:
    """One connection to a server, used by one thread. Not reused after an error."""

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        self.path = parts.path
        self.connection = http.client.HTTPConnection(str(parts.hostname), parts.port, TIMEOUT)
        self._ids = itertools.count(1)

    def post(self, headers: dict[str, str], body: str) -> http.client.HTTPResponse:
        """Send a request and wait for the head of its answer."""
        return self.prepared(headers, body)()

    def prepared(
        self, headers: dict[str, str], body: str
    ) -> Callable[[], http.client.HTTPResponse]:
        """Write a request down, for what is returned to send it and wait for the answer's head."""
        content = body.encode()
        self.connection.putrequest("POST", self.path)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.connection.putheader(name, value)

        def send() -> http.client.HTTPResponse:
            self.connection.endheaders(content)
            return self.connection.getresponse()

        return send

    def open(self, revision: str) -> Dialect:
        """Begin to speak a revision: with a handshake and a session, or at once."""
        if revision == STATELESS:
            return Dialect(revision=revision)
        plain = Dialect(revision=revision)
        with self.post(plain.headers(), plain.hello()) as response:
            result = read_message(response)["result"]
            session = response.getheader("Mcp-Session-Id")
        if result["protocolVersion"] != revision or session is None:
            raise WrongAnswerError(f"the handshake gave {result['protocolVersion']}, {session}")
        dialect = Dialect(revision=revision, session=session)
        with self.post(dialect.headers(), INITIALIZED) as response:
            response.read()
        return dialect

    def call(
        self, dialect: Dialect, name: str, arguments: dict[str, Any], *, token: str | None = None
    ) -> Any:
        """Call a tool and return its structured result.

        Raises:
            WrongAnswerError: an error, or no structured result.
        """
        body = dialect.call(f"line-{id(self)}-{next(self._ids)}", name, arguments, token=token)
        with self.post(dialect.headers(name), body) as response:
            message = read_message(response)
        try:
            return message["result"]["structuredContent"]["result"]
        except (KeyError, TypeError):
            raise WrongAnswerError(f"{name} gave {message}") from None

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


def read_message(response: http.client.HTTPResponse) -> Any:
    """Read the answer out of a response in either form."""
    body = response.read().decode()
    if "event-stream" in str(response.getheader("Content-Type")):
        lines = [line for line in body.splitlines() if line.startswith("data:")]
        body = lines[-1].removeprefix("data:")
    return json.loads(body)
