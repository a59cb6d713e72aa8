"""The catalog: published operations, kept as one immutable snapshot that refreshes itself."""

from mcp_trio.catalog.actor import CatalogActor as CatalogActor
from mcp_trio.catalog.actor import CatalogStatus as CatalogStatus
from mcp_trio.catalog.operation import Operation as Operation
