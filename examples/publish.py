"""Make a registry, if there is none, and publish an operation: `python examples/publish.py [FILE]`.

Then `mcp-trio serve examples/service.toml` serves it. Publishing needs no server: plain
SQL by any program works as well, and a running server notices.
"""

import sys
from pathlib import Path

from mcp_trio.catalog.registries.schema import create_registry, publish

BESIDE = Path(__file__).parent / "operations.sqlite"
"""Where `service.toml` looks for it."""

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
    registry = Path(sys.argv[1]) if sys.argv[1:] else BESIDE
    if not registry.exists():
        create_registry(registry)
    publish(registry, GREETING)
    print(f"published {GREETING['name']} in {registry}")
