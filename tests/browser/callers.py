"""Callers that keep their requests open, give them up, and say who they are in markup."""

from __future__ import annotations

import http.client
import json
from urllib.parse import urlsplit

from mcp_trio.wire.meta import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from mcp_trio.wire.revisions import R2025_11_25, R2026_07_28

PATIENCE = 20
META = {PROTOCOL_VERSION: R2026_07_28.date, CLIENT_CAPABILITIES: {}}


class Caller:
    """Speaks to one endpoint, each request on a connection of its own."""

    def __init__(self, url):
        self.place = urlsplit(url)
        self.open = []

    def session(self, name):
        """Open a session; returns the fields that its requests have."""
        info = {"name": name, "version": "1"}
        params = {
            "protocolVersion": R2025_11_25.date,
            "capabilities": {},
            "clientInfo": info,
        }
        answer = self._post("initialize", params, {}, 1).getresponse()
        assert answer.status == 200
        session = answer.getheader("mcp-session-id")
        return {"Mcp-Session-Id": session, "MCP-Protocol-Version": R2025_11_25.date}

    def end(self, session):
        self._request("DELETE", None, session).getresponse()

    def call(self, tool, arguments, session=None, named=1):
        """Call a tool, and read the result, which may be one of a failed tool."""
        answer = self.begin(tool, arguments, session, named).getresponse()
        told = json.loads(answer.read())
        assert "result" in told, told
        return told["result"]

    def begin(self, tool, arguments, session=None, named=1):
        """Call a tool and wait for nothing. `close` of what this returns gives the call up."""
        params = {"name": tool, "arguments": arguments}
        if session is None:
            params["_meta"] = META
            session = {
                "MCP-Protocol-Version": R2026_07_28.date,
                "Mcp-Method": "tools/call",
                "Mcp-Name": tool,
            }
        return self._post("tools/call", params, session, named)

    def hold(self, session=None, named=1):
        """Begin a call that takes longer than any test."""
        return self.begin("inventory_list_items", {"wait_seconds": 60}, session, named)

    def _post(self, method, params, fields, named):
        message = {"jsonrpc": "2.0", "id": named, "method": method, "params": params}
        return self._request("POST", json.dumps(message), fields)

    def _request(self, method, body, fields):
        connection = http.client.HTTPConnection(
            self.place.hostname, self.place.port, timeout=PATIENCE
        )
        self.open.append(connection)
        more = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        connection.request(method, self.place.path, body, {**more, **fields})
        return connection

    def close(self):
        for connection in self.open:
            connection.close()
