"""The auth scenarios of the official suite's client half, which `client.py` hands over to here.

The suite plays the MCP server and the authorization server. Nobody is there to consent: its
authorization endpoint redirects at once, and we read where to.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import httpx2

import mcp_trio
from mcp_trio.auth import (
    ClientCredentials,
    EnterpriseManaged,
    OAuth,
    PrivateKey,
    Redirect,
    RegisteredClient,
    Secret,
    WorkloadIdentity,
)
from mcp_trio.client.options import Authorization
from mcp_trio.wire import REVISIONS
from mcp_trio.wire.revisions import BY_DATE

DOCUMENT = "https://conformance-test.local/client-metadata.json"
REDIRECT_URI = "http://127.0.0.1:8976/callback"

REFUSED = frozenset(
    f"auth/{name}"
    for name in (
        "iss-normalized",
        "iss-supported-missing",
        "iss-unexpected",
        "iss-wrong-issuer",
        "metadata-issuer-mismatch",
        "resource-mismatch",
        "scope-retry-limit",
    )
)
"""Scenarios in which the client has to give up: who answers is a stranger, or never content."""

Context = Mapping[str, str]


async def consent(url: str) -> str:
    """Be the person: ask the authorization endpoint, and come back to where it says."""
    async with httpx2.AsyncClient(trust_env=False, follow_redirects=False) as http:
        answer = await http.get(url)
    return answer.headers["location"]


def authorization(scenario: str, context: Context) -> Authorization:
    """The way to a token that a scenario is about."""
    match scenario.removeprefix("auth/"):
        case "client-credentials-basic":
            return ClientCredentials(
                client_id=context["client_id"], client_secret=context["client_secret"]
            )
        case "client-credentials-jwt":
            key = PrivateKey(pem=context["private_key_pem"], algorithm=context["signing_algorithm"])
            return ClientCredentials(client_id=context["client_id"], private_key=key)
        case "enterprise-managed-authorization":
            return EnterpriseManaged(
                client_id=context["client_id"],
                client_secret=context["client_secret"],
                idp_token_endpoint=context["idp_token_endpoint"],
                idp_client_id=context["idp_client_id"],
                id_token=context["idp_id_token"],
            )
        case "wif-jwt-bearer":
            return WorkloadIdentity(client_id=context["client_id"], assertion=context["valid_jwt"])
    registered = None
    if "client_secret" in context:
        registered = RegisteredClient(
            client_id=context["client_id"], client_secret=Secret(context["client_secret"])
        )
    return OAuth(
        redirect=Redirect(REDIRECT_URI, consent),
        registered=registered,
        client_metadata_url=DOCUMENT,
        client_name="mcp_trio conformance client",
    )


async def run(scenario: str, url: str, context: Context) -> None:
    """Do what an auth scenario expects: get a token, list the tools, call the first one.

    Raises:
        MCPError: no token, in a scenario that has one to give.
        AssertionError: a token, in one that has none for a careful client.
    """
    try:
        await _use(scenario, url, context)
    except mcp_trio.RemoteError:
        if scenario not in REFUSED:
            raise
    else:
        if scenario in REFUSED:
            raise AssertionError("the client was content with what it must refuse")


async def _use(scenario: str, url: str, context: Context) -> None:
    dated = BY_DATE[os.environ["MCP_CONFORMANCE_PROTOCOL_VERSION"]]
    spoken = tuple(r for r in REVISIONS if r.stateless is dated.stateless and not dated < r)
    options = mcp_trio.ClientOptions(revisions=spoken, auth=authorization(scenario, context))
    async with mcp_trio.MCPClient(url, options=options) as client:
        tools = (await client.list_tools()).tools
        if tools:
            await client.call_tool(tools[0].name, {})
