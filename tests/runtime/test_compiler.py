"""What is refused when an operation is compiled, beside what the mappings say."""

import pytest

from mcp_trio.catalog.operation import OperationError, parse
from mcp_trio.runtime.compiler import Compiler
from mcp_trio.runtime.connections import Connections


@pytest.mark.parametrize(
    "properties",
    [
        {"a": {"type": "number", "x-mcp-header": "A"}},
        {"a": {"type": "string", "x-mcp-header": "bad name"}},
        {"a": {"type": "string", "x-mcp-header": ""}},
        {
            "a": {"type": "string", "x-mcp-header": "A"},
            "b": {"type": "string", "x-mcp-header": "a"},
        },
        {"a": {"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}},
    ],
)
def test_an_annotation_that_clients_would_drop_the_tool_for_is_refused(properties):
    view = {
        "operation_id": "x",
        "name": "x",
        "protocol": "static",
        "target": {},
        "input_schema": {"type": "object", "properties": properties},
        "output_schema": None,
        "input_mapping": {},
        "output_mapping": {"result": {}},
        "execution_config": {},
        "tool_description": "",
    }
    with pytest.raises(OperationError, match="x-mcp-header"):
        Compiler(Connections()).compile(parse(view))
