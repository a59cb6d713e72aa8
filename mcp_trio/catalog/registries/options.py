"""What a registry may be told besides its address, and the credentials it presents."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from mcp_trio.abc import RegistryError, Trouble
from mcp_trio.catalog.registries.json_document import MAX_DOCUMENT_BYTES
from mcp_trio.errors import ConfigurationError
from mcp_trio.secrets import Secret


@attrs.frozen(kw_only=True)
class RegistryOptions:
    """How to reach a registry, how to prove who we are, and what it may cost."""

    secret: Callable[[], Secret] | None = None
    """Fetches the token or the password. Called in a worker thread each time one is needed,
    so that one that was rotated is used from then on."""
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

    def fetch_secret(self) -> Secret | None:
        """The secret now; blocks.

        Raises:
            RegistryError: there is none to be had.
        """
        if self.secret is None:
            return None
        try:
            return self.secret()
        except ConfigurationError as error:
            raise RegistryError(Trouble.DENIED, str(error)) from error
