"""The official Python client at a server that wants tokens; what it saw is printed as JSON.

Runs with the interpreter of the peers' environment, as `peer_client.py` does, and takes one JSON
argument: `{"mode", "url"}`. `node/authorized.mjs` does the same with the TypeScript client.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import anyio.to_thread
import httpx2
from mcp.client import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

DEADLINE = 40.0
"""Seconds for the whole session."""
BACK = "http://127.0.0.1:1/callback"


class Memory:
    """What the client keeps."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Person:
    """Reads the page of the authorization server, and allows what it asks for."""

    def __init__(self) -> None:
        self.scopes: list[str] = []
        self._back: dict[str, list[str]] = {}

    async def visit(self, url: str) -> None:
        self.scopes += parse_qs(urlsplit(url).query).get("scope", [""])
        async with httpx2.AsyncClient(trust_env=False) as browser:
            page = await browser.get(url)
            (number,) = re.findall(r'name="number" value="([^"]+)"', page.text)
            place = urlsplit(url)._replace(path="/consent", query="").geturl()
            sent = await browser.post(place, data={"number": number, "answer": "yes"})
        self._back = parse_qs(urlsplit(sent.headers["location"]).query)

    async def back(self) -> AuthorizationCodeResult:
        said = {name: values[0] for name, values in self._back.items()}
        return AuthorizationCodeResult(
            code=said["code"], state=said.get("state"), iss=said.get("iss")
        )


def text_of(result: Any) -> str:
    return str(result.content[0].text)


async def main(task: dict[str, Any]) -> None:
    """Read, write, which needs more scopes, and read again."""
    person = Person()
    auth = OAuthClientProvider(
        server_url=task["url"],
        client_metadata=OAuthClientMetadata(client_name="Interop", redirect_uris=[BACK]),
        storage=Memory(),
        redirect_handler=person.visit,
        callback_handler=person.back,
    )
    with anyio.fail_after(DEADLINE):
        async with httpx2.AsyncClient(auth=auth, trust_env=False, timeout=30) as http:
            transport = streamable_http_client(task["url"], http_client=http)
            async with Client(transport, mode=task["mode"]) as client:
                listed = [tool.name for tool in (await client.list_tools()).tools]
                first = text_of(await client.call_tool("read_note", {}))
                written = text_of(await client.call_tool("write_note", {"text": "by Python"}))
                second = text_of(await client.call_tool("read_note", {}))
        report = {
            "listed": listed,
            "said": [first, written, second],
            "scopes": person.scopes,
        }
        sys.stdout.write(json.dumps(report) + "\n")
        sys.stdout.flush()
        await anyio.to_thread.run_sync(sys.stdin.read)


if __name__ == "__main__":
    anyio.run(main, json.loads(sys.argv[1]))
