"""What a registry may be told besides its address, and the secret it presents."""

from __future__ import annotations

import attrs

from mcp_trio.catalog.registries.json_document import MAX_DOCUMENT_BYTES
from mcp_trio.secrets import Secret


@attrs.frozen(kw_only=True)
class RegistryOptions:
    """How to reach a registry, how to prove who we are, and what it may cost."""

    secret: Secret | None = None
    """The token or the password. Revealed in a worker thread each time it is needed, so that one
    in a file (`FileSecret`) may rotate; of a file that is gone the last one stays."""
    header: str | None = None
    """Header of an HTTPS request that carries the secret as it is; None: `Authorization:
    Bearer`."""
    ca_file: str | None = None
    """File of authorities to trust instead of the system's."""
    allow_private: bool = False
    """Let an HTTPS host resolve to private or loopback addresses."""
    allow_http: bool = False
    """Fetch a document without TLS from elsewhere than loopback."""
    max_bytes: int = MAX_DOCUMENT_BYTES
    """Bytes of all documents together."""
    connect_timeout: float = 5.0
    """Seconds to connect to a server, TLS included."""
    total_timeout: float = 30.0
    """Seconds for one look at a registry that a server keeps."""
