"""Short ways to compile and call sql operations."""

from __future__ import annotations

import attrs

from mcp_trio.catalog.operation import parse
from mcp_trio.runtime.compiler import Compiler
from mcp_trio.runtime.connections import Connections
from mcp_trio.runtime.sql_connection import SqlConnection
from tests.runtime.conftest import make_context

NAMES = ("a", "b", "below", "email", "id", "ids", "more", "most", "n", "x")
"""What the arguments may be called."""


@attrs.define
class SqlBench:
    """Compiles and calls operations against one database named `db`."""

    connection: SqlConnection
    connections: Connections
    compiler: Compiler

    @classmethod
    def of(cls, address: str, **options: object) -> SqlBench:
        connection = SqlConnection(name="db", address=address, **options)
        connections = Connections([connection])
        return cls(connection, connections, Compiler(connections, chance=lambda: 1.0))

    @property
    def pool(self):
        return self.connections._resources["db"]

    def compile(self, statement: str, *, write: bool = False, **changes: object):
        view = {
            "operation_id": "crm.leads.get",
            "name": "leads",
            "protocol": "sql",
            "target": {
                "connection": "db",
                "statement": statement,
                "access": "write" if write else "read",
            },
            "input_schema": {"type": "object", "properties": {name: {} for name in NAMES}},
            "output_schema": None,
            "input_mapping": {},
            "output_mapping": {"result": {"rows": "=body"}},
            "execution_config": {},
            "tool_description": "",
        }
        return self.compiler.compile(parse({**view, **changes}))

    async def call(self, statement: str, *, write: bool = False, context=None, given=None, **more):
        operation = self.compile(statement, write=write, **more)
        return await operation.call(context or make_context(), given or {})

    async def rows(self, statement: str, *, write: bool = False, given=None, **more):
        result = await self.call(statement, write=write, given=given, **more)
        assert result.is_error is None, result
        return result.structured_content["rows"]
