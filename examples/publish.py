"""Make a registry and publish an operation in it: `python examples/publish.py operations.sqlite`.

Then `mcp-trio serve examples/service.toml` serves it. Publishing needs no server: plain
SQL by any program works as well, and a running server notices.
"""

import sys

from mcp_trio.catalog.registries.schema import create_registry, publish

GREETING = {
    "operation_id": "demo.greeting",
    "name": "greeting",
    "protocol": "static",
    "target": {},
    "input_schema": {
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
        "additionalProperties": False,
    },
    "output_schema": {
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
    },
    "input_mapping": {},
    "output_mapping": {"result": {"text": {"expr": "join(' ', ['Hello,', args.name])"}}},
    "execution_config": {},
    "tool_description": "Greet somebody.",
}

if __name__ == "__main__":
    create_registry(sys.argv[1])
    publish(sys.argv[1], GREETING)
