"""From an MCP server to its authorization server: where the documents are, in which order.

One order serves every revision, since a client asks before it knows which one the server speaks:
the metadata of the resource where the challenge says, else at the well-known places; where a
server has none at all, as in the first revision with authorization, the server's own origin is
the authorization server, with default endpoints if it publishes nothing either.
"""

from __future__ import annotations

from urllib.parse import urljoin

import attrs

from mcp_trio.auth.metadata import ResourceMetadata, ServerMetadata, read_resource, read_server
from mcp_trio.auth.steps import Answer, Ask, Flow, ask, read_object
from mcp_trio.auth.urls import canonical, check_named, covers, origin_of, split, well_known
from mcp_trio.errors import UnauthorizedError
from mcp_trio.framing.challenge import Challenge
from mcp_trio.secrets import shown_url

MAX_REDIRECTS = 3
_RESOURCE = "oauth-protected-resource"
_SERVER = "oauth-authorization-server"
_OPENID = "openid-configuration"
_GET = {"accept": "application/json"}


@attrs.frozen(kw_only=True)
class Place:
    """An MCP server and the authorization server it trusts."""

    resource: str
    """What to call the MCP server in requests for tokens, to the letter."""
    server: ServerMetadata
    scopes_supported: tuple[str, ...] | None = None
    """Of the resource."""
    dpop_required: bool = False


def find(url: str, challenge: Challenge | None, preferred: str | None = None) -> Flow[Place]:
    """Find out who gives tokens for a server.

    Args:
        url: of the MCP server.
        challenge: what it answered, if it was asked already.
        preferred: the issuer to take if the server trusts several.

    Raises:
        UnauthorizedError: documents are missing, contradict each other, or lead where they must
            not.
    """
    near = origin_of(url)
    metadata = yield from _resource(url, challenge)
    if metadata is None:
        server = yield from _without_resource_metadata(url)
        return Place(resource=canonical(url), server=server)
    if not covers(metadata.resource, url):
        raise UnauthorizedError(
            f"the protected-resource metadata are about {metadata.resource[:200]}, "
            f"but the server is {url[:200]}"
        )
    trusted = metadata.authorization_servers
    issuer = preferred if preferred in trusted else trusted[0]
    check_named(issuer, near)
    for candidate in server_candidates(issuer):
        answer = yield from _get(candidate, url)
        if answer is not None:
            document = read_object(answer, f"the metadata of {shown_url(issuer)}")
            return Place(
                resource=metadata.resource,
                server=read_server(document, issuer, near),
                scopes_supported=metadata.scopes_supported,
                dpop_required=metadata.dpop_required,
            )
    raise UnauthorizedError(f"the authorization server {shown_url(issuer)} publishes no metadata")


def server_candidates(issuer: str) -> list[str]:
    """Where the metadata of an issuer may be, in the order to look."""
    parts = split(issuer)
    bare = issuer.rstrip("/")
    found = [well_known(bare, _SERVER), well_known(bare, _OPENID)]
    if parts.path.strip("/"):
        found.append(f"{bare}/.well-known/{_OPENID}")
    return found


def resource_candidates(url: str) -> list[str]:
    """Where the metadata of a resource may be if no challenge says, in the order to look."""
    root = well_known(str(origin_of(url)), _RESOURCE)
    return list(dict.fromkeys([well_known(url.partition("#")[0], _RESOURCE), root]))


def _resource(url: str, challenge: Challenge | None) -> Flow[ResourceMetadata | None]:
    told = challenge.parameters.get("resource_metadata") if challenge is not None else None
    for candidate in [told] if told else resource_candidates(url):
        if told:
            check_named(told, origin_of(url))
        answer = yield from _get(candidate, url)
        if answer is not None:
            return read_resource(read_object(answer, "the protected-resource metadata"))
    if told:
        raise UnauthorizedError(f"there are no protected-resource metadata at {shown_url(told)}")
    return None


def _without_resource_metadata(url: str) -> Flow[ServerMetadata]:
    near = origin_of(url)
    check_named(url, near)
    root = str(near)
    for candidate in server_candidates(root):
        answer = yield from _get(candidate, url)
        if answer is not None:
            document = read_object(answer, f"the metadata of {root}")
            # Nobody has told us the issuer's spelling here; it is one with a slash, or without.
            issuer = f"{root}/" if document.get("issuer") == f"{root}/" else root
            return read_server(document, issuer, near)
    return ServerMetadata(
        issuer=root,
        authorization_endpoint=f"{root}/authorize",
        token_endpoint=f"{root}/token",
        registration_endpoint=f"{root}/register",
        challenge_methods=("S256",),
        auth_methods=("none", "client_secret_basic", "client_secret_post"),
    )


def _get(url: str, server: str) -> Flow[Answer | None]:
    """Fetch a document. None if it is not there.

    Raises:
        UnauthorizedError: whether it is there cannot be said.
    """
    near = origin_of(server)
    for _ in range(MAX_REDIRECTS + 1):
        answer = yield from ask(Ask(method="GET", url=url, headers=_GET))
        if answer.status == 200:
            return answer
        if 400 <= answer.status < 500:
            return None
        target = answer.headers.get("location")
        if not 300 <= answer.status < 400 or target is None:
            told = answer.reason or f"answered {answer.status}"
            raise UnauthorizedError(f"{shown_url(url)} {told}")
        url = check_named(urljoin(url, target), near)
    raise UnauthorizedError(f"{shown_url(url)} is redirected too often")
