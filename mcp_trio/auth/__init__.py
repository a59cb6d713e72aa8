"""Authorization of a client: OAuth 2.1 as MCP uses it, and its extensions.

A flow is a sans-I/O generator of steps (`flow`, made of `discovery`, `registration`, `grants` and
`token_requests`); `drive` performs it on Trio, below the HTTP client of a transport.
"""

from mcp_trio.auth.callback import LoopbackRedirect as LoopbackRedirect
from mcp_trio.auth.callback import Redirect as Redirect
from mcp_trio.auth.drive import Authorizer as Authorizer
from mcp_trio.auth.keys import PrivateKey as PrivateKey
from mcp_trio.auth.methods import BearerToken as BearerToken
from mcp_trio.auth.methods import ClientCredentials as ClientCredentials
from mcp_trio.auth.methods import EnterpriseManaged as EnterpriseManaged
from mcp_trio.auth.methods import OAuth as OAuth
from mcp_trio.auth.methods import WorkloadIdentity as WorkloadIdentity
from mcp_trio.auth.tokens import FileStore as FileStore
from mcp_trio.auth.tokens import Grant as Grant
from mcp_trio.auth.tokens import MemoryStore as MemoryStore
from mcp_trio.auth.tokens import RegisteredClient as RegisteredClient
from mcp_trio.auth.tokens import TokenStore as TokenStore
from mcp_trio.network_guard import NetworkPolicy as NetworkPolicy
from mcp_trio.secrets import Secret as Secret
