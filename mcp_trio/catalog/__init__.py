"""The catalog: published operations, kept as one immutable snapshot that refreshes itself."""

from mcp_trio.catalog.actor import CatalogActor as CatalogActor
from mcp_trio.catalog.operation import Operation as Operation
from mcp_trio.catalog.status import CatalogState as CatalogState
from mcp_trio.catalog.status import CatalogStatus as CatalogStatus
