"""The other side of authorization: a server that says who calls (OAuth 2.1, RFC 9728).

`ResourceServer` goes into `HTTPOptions.auth`. It asks `Authenticator`s in order: JWTs verified with
the keys of their issuer, tokens that are introspected, API keys, client certificates, or your own.
"""

from mcp_trio.auth.resource_server.api_keys import APIKeys as APIKeys
from mcp_trio.auth.resource_server.asking import Reach as Reach
from mcp_trio.auth.resource_server.client_certificates import (
    CertificateIdentity as CertificateIdentity,
)
from mcp_trio.auth.resource_server.client_certificates import (
    ClientCertificates as ClientCertificates,
)
from mcp_trio.auth.resource_server.dpop import DPoP as DPoP
from mcp_trio.auth.resource_server.dpop import Nonces as Nonces
from mcp_trio.auth.resource_server.introspection import IntrospectedTokens as IntrospectedTokens
from mcp_trio.auth.resource_server.jwt import JWTTokens as JWTTokens
from mcp_trio.auth.resource_server.scopes import ScopeHierarchy as ScopeHierarchy
from mcp_trio.auth.resource_server.server import ResourceServer as ResourceServer
