"""Sound operations to break."""

from __future__ import annotations

import copy
import json

FORMAT = "mcp-operations/1"


def make_view(operation_id="crm.leads.get", **changes):
    view = {
        "operation_id": operation_id,
        "name": operation_id.replace(".", "_"),
        "protocol": "rest",
        "target": {"connection": "crm", "method": "GET", "path": "/leads/{id}"},
        "input_schema": {
            "type": "object",
            "properties": {"id": {"type": "string"}},
            "required": ["id"],
        },
        "output_schema": None,
        "input_mapping": {"path": {"id": "=args.id"}},
        "output_mapping": {},
        "execution_config": {},
        "tool_description": "Get a lead.",
    }
    return copy.deepcopy({**view, **changes})


def static_view(operation_id="a", result="x", **changes):
    return make_view(
        operation_id,
        **{
            "protocol": "static",
            "target": {},
            "input_schema": {"type": "object"},
            "input_mapping": {},
            "output_mapping": {"result": result},
            **changes,
        },
    )


def write(path, *views, **top):
    path.write_text(json.dumps({"format": FORMAT, "operations": list(views), **top}, indent=1))
    return path
