"""The demo: a small REST service for leads, users and inventory, and operations for it.

The upstream is a real HTTP server on a port of its own, so that what is shown is what
happens with any API: a cancelled call closes its socket, and the upstream says so.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import cast
from urllib.parse import parse_qs, unquote

import attrs
import trio

from mcp_trio.catalog.registries.schema import create_registry, publish
from mcp_trio.config import CatalogSection, Settings
from mcp_trio.http.asgi_call import Receive, Scope, Send
from mcp_trio.runtime.http_sections import HttpSection
from mcp_trio.wire import JSONObject

logger = logging.getLogger("mcp_trio.demo")

INTERVAL = 2.0
"""Seconds between looks at the registry of the demo."""

USERS: dict[str, JSONObject] = {
    "u-1": {"id": "u-1", "name": "Ada", "email": "ada@example.com", "plan": "team"},
    "u-2": {"id": "u-2", "name": "Grace", "email": "grace@example.com", "plan": "free"},
}
ITEMS: list[JSONObject] = [
    {"sku": f"item-{number}", "warehouse": "north" if number % 2 else "south", "stock": number * 3}
    for number in range(1, 9)
]
MAX_WAIT = 60.0
MAX_BODY = 100_000


class DemoUpstream:
    """The REST service, as an ASGI application. It forgets everything when it ends."""

    def __init__(self) -> None:
        self.leads: list[JSONObject] = []
        self.abandoned = 0
        """Requests whose client went away before the answer."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        body = await _read(receive)
        path = unquote(cast("str", scope["path"])).strip("/").split("/")
        query = parse_qs(cast("bytes", scope["query_string"]).decode("latin-1"))
        answer: tuple[int, JSONObject] | None
        match [cast("str", scope["method"]), *path]:
            case ["POST", "tenants", tenant, "leads"]:
                answer = self._create_lead(tenant, body)
            case ["GET", "users", user]:
                answer = self._user(user)
            case ["GET", "inventory"]:
                answer = await self._inventory(query, receive)
            case _:
                answer = 404, {"error": {"message": "no such resource"}}
        if answer is not None:
            await _respond(send, *answer)

    def _create_lead(self, tenant: str, body: bytes) -> tuple[int, JSONObject]:
        try:
            contact = json.loads(body)["contact"]
            lead: JSONObject = {"id": f"lead-{len(self.leads) + 1}", "tenant": tenant, **contact}
        except (ValueError, KeyError, TypeError):
            return 422, {"error": {"message": "a contact is needed"}}
        if "@" not in str(lead.get("email")):
            return 422, {"error": {"message": "the email address has no @"}}
        self.leads.append(lead)
        return 201, {"data": lead, "links": {"self": f"/tenants/{tenant}/leads/{lead['id']}"}}

    def _user(self, user: str) -> tuple[int, JSONObject]:
        found = USERS.get(user)
        if found is None:
            return 404, {"error": {"message": f"there is no user {user[:40]}"}}
        return 200, found

    async def _inventory(
        self, query: dict[str, list[str]], receive: Receive
    ) -> tuple[int, JSONObject] | None:
        wait = min(float(query.get("wait", ["0"])[0]), MAX_WAIT)
        if wait > 0:
            logger.info("the inventory takes its time")
            if await _client_left_within(wait, receive):
                self.abandoned += 1
                logger.warning("the client of the inventory left before the answer")
                return None
        warehouse = query.get("warehouse", [""])[0]
        limit = int(query.get("limit", ["100"])[0])
        found = [item for item in ITEMS if warehouse in {"", item["warehouse"]}]
        return 200, {"items": found[:limit], "total": len(found)}


async def _read(receive: Receive) -> bytes:
    body = b""
    while len(body) < MAX_BODY:
        message = await receive()
        body += cast("bytes", message.get("body", b""))
        if message["type"] != "http.request" or not message.get("more_body"):
            break
    return body


async def _client_left_within(seconds: float, receive: Receive) -> bool:
    with trio.move_on_after(seconds):
        while (await receive())["type"] != "http.disconnect":
            pass
        return True
    return False


async def _respond(send: Send, status: int, body: JSONObject) -> None:
    data = json.dumps(body).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(data))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": data})


CREATE_LEAD: JSONObject = {
    "operation_id": "crm.leads.create",
    "name": "crm_create_lead",
    "protocol": "rest",
    "target": {
        "connection": "demo",
        "method": "POST",
        "path": "/tenants/{tenant}/leads",
        "content_type": "json",
    },
    "input_schema": {
        "type": "object",
        "properties": {
            "email": {"type": "string", "description": "Address of the new contact"},
            "name": {"type": "string", "maxLength": 200},
            "note": {"type": "string", "maxLength": 2000},
        },
        "required": ["email"],
        "additionalProperties": False,
    },
    "output_schema": {
        "type": "object",
        "properties": {"id": {"type": "string"}, "url": {"type": "string"}},
        "required": ["id", "url"],
    },
    "input_mapping": {
        "path": {"tenant": "=vars.tenant"},
        "body": {
            "contact": {
                "email": "=args.email",
                "name": {"expr": "args.name", "default": None},
                "note": {"expr": "args.note", "default": None},
            }
        },
    },
    "output_mapping": {
        "result": {"id": "=body.data.id", "url": "=body.links.self"},
        "text": {"expr": "join(' ', ['Lead created:', body.data.id])"},
        "error": {"message": "=body.error.message"},
    },
    "execution_config": {"timeout_ms": {"total": 15000}, "idempotent": False},
    "tool_description": {
        "text": "Create a sales lead in the CRM.",
        "title": "Create lead",
        "annotations": {"destructiveHint": False, "openWorldHint": False},
    },
}

GET_PROFILE: JSONObject = {
    "operation_id": "users.profile.get",
    "name": "user_get_profile",
    "protocol": "rest",
    "target": {
        "connection": "demo",
        "method": "GET",
        "path": "/users/{user_id}",
        "content_type": "none",
    },
    "input_schema": {
        "type": "object",
        "properties": {"user_id": {"type": "string", "minLength": 1, "description": "Such as u-1"}},
        "required": ["user_id"],
        "additionalProperties": False,
    },
    "output_schema": {
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "name": {"type": "string"},
            "email": {"type": "string"},
            "plan": {"enum": ["free", "team"]},
        },
        "required": ["id", "name"],
    },
    "input_mapping": {"path": {"user_id": "=args.user_id"}},
    "output_mapping": {"error": {"message": "=body.error.message"}},
    "execution_config": {"timeout_ms": {"total": 5000}, "idempotent": True},
    "tool_description": {
        "text": "Get the profile of a user.",
        "title": "User profile",
        "annotations": {"readOnlyHint": True},
    },
}

LIST_ITEMS: JSONObject = {
    "operation_id": "inventory.items.list",
    "name": "inventory_list_items",
    "protocol": "rest",
    "target": {
        "connection": "demo",
        "method": "GET",
        "path": "/inventory",
        "content_type": "none",
    },
    "input_schema": {
        "type": "object",
        "properties": {
            "warehouse": {"enum": ["north", "south"]},
            "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 100},
            "wait_seconds": {
                "type": "number",
                "minimum": 0,
                "maximum": MAX_WAIT,
                "description": "Let the warehouse think that long; for trying cancellation",
            },
        },
        "additionalProperties": False,
    },
    "output_schema": {
        "type": "object",
        "properties": {
            "items": {"type": "array", "items": {"type": "object"}},
            "total": {"type": "integer"},
        },
        "required": ["items", "total"],
    },
    "input_mapping": {
        "query": {
            "warehouse": {"expr": "args.warehouse", "default": None},
            "limit": {"expr": "args.limit", "default": None},
            "wait": {"expr": "args.wait_seconds", "default": None},
        }
    },
    "output_mapping": {"error": {"message": "=body.error.message"}},
    "execution_config": {"timeout_ms": {"total": 65000}, "idempotent": True},
    "tool_description": {
        "text": "List what is in stock, by warehouse.",
        "title": "Inventory",
        "annotations": {"readOnlyHint": True},
    },
}


DEMO_VALUES: JSONObject = {
    "server": {"name": "mcp-trio-demo", "version": "1"},
    "catalog": {"registry": "registry.sqlite", "interval": INTERVAL},
}
"""The settings of the demo: how it calls itself, and how often it looks for changes."""


def demo_settings(folder: Path, upstream: str, asked: Settings) -> Settings:
    """Make the registry of the demo in a folder, and the settings that serve it.

    Args:
        folder: an empty folder of its own.
        upstream: base URL of the running `DemoUpstream`.
        asked: all else; the registry and the connections are the demo's own.
    """
    registry = folder / "registry.sqlite"
    create_registry(registry)
    publish(registry, CREATE_LEAD, GET_PROFILE, LIST_ITEMS)
    return attrs.evolve(
        asked,
        catalog=CatalogSection(registry=str(registry), interval=asked.catalog.interval),
        connections={"demo": HttpSection(base_url=upstream, vars={"tenant": "acme"})},
    )
