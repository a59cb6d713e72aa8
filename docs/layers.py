"""The layers of the package, and their picture as the code has it.

`LAYERS` is the decision; everything else here is read from the imports.
`python docs/layers.py` rewrites the picture in `docs/architecture.md`.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "mcp_trio"
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- layers: begin -->", "<!-- layers: end -->"

LAYERS: tuple[tuple[str, str], ...] = (
    ("errors", "every exception"),
    ("secrets", "values that do not show themselves"),
    ("setting_rules", "what settings may be"),
    ("wire", "protocol types and the table of revisions"),
    ("jsonrpc", "bytes and messages"),
    ("json_schema", "validation"),
    ("framing", "bytes and frames, headers and verdicts"),
    ("engine", "ids, cursors, subscriptions, the handshake table"),
    ("eras", "what differs between revisions"),
    ("abc", "contracts for users"),
    # -- trio begins here --
    ("events", "what observers are told"),
    ("network_guard", "which addresses may be reached"),
    ("postgres", "lines to PostgreSQL"),
    ("session", "the pump, the dispatch, the context"),
    ("transports", "lines for messages"),
    ("http", "the endpoint and its connections"),
    ("auth", "tokens for a client"),
    ("server", "MCPServer"),
    ("catalog", "published operations, kept fresh"),
    ("client", "MCPClient"),
    ("runtime", "operations, run"),
    ("telemetry", "logs, metrics, traces"),
    ("config", "settings"),
    ("workers", "several processes"),
    ("authoring", "tools for those who write operations"),
    ("testing", "tools for tests"),
    ("cli", "the command"),
)
"""Lowest first. A package imports itself and what stands before it."""

LINE = "abc"
"""Up to here nothing imports trio, Hypercorn, or a socket."""


def package_of(module: str) -> str:
    """`mcp_trio.wire.tools` belongs to `wire`."""
    parts = module.split(".")
    return layer_name(parts[1]) if len(parts) > 1 else ""


def layer_name(name: str) -> str:
    """Two modules belong to a layer of another name."""
    own = {"__main__": "cli"}
    # Parts of one thing, of which the first name is the face.
    if name.startswith("json_schema_"):
        return "json_schema"
    return own.get(name, name)


def imports(path: Path) -> list[str]:
    """Every module that a file imports, at any depth, relative ones spelled out."""
    found = []
    package = ["mcp_trio", *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found.append(module)
            found += [f"{module}.{alias.name}" for alias in node.names if module == "mcp_trio"]
    return found


def files() -> list[Path]:
    """Every module of the package except the front door."""
    return [path for path in sorted(PACKAGE.rglob("*.py")) if path != PACKAGE / "__init__.py"]


def layer_of(path: Path) -> str:
    """The layer a file belongs to."""
    name = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return layer_name(name)


def arrows() -> dict[str, set[str]]:
    """For each layer the layers it imports."""
    known = {name for name, _ in LAYERS}
    drawn: dict[str, set[str]] = {name: set() for name in known}
    for path in files():
        for module in imports(path):
            target = package_of(module) if module.startswith("mcp_trio") else ""
            if target in known and target != layer_of(path):
                drawn[layer_of(path)].add(target)
    return drawn


def picture() -> str:
    """The layers from the top down, each with what it imports."""
    drawn = arrows()
    order = [name for name, _ in LAYERS]
    width = max(map(len, order))
    lines = []
    for name, job in reversed(LAYERS):
        uses = " ".join(sorted(drawn[name], key=order.index)) or "-"
        lines.append(f"{name:<{width}}  {job:<50}  uses {uses}")
        if order.index(name) == order.index(LINE) + 1:
            lines.append("-" * 20 + " trio begins above this line " + "-" * 20)
    return "\n".join(lines)


def page_with_picture(page: str) -> str:
    """The page with its picture drawn anew."""
    head, rest = page.split(BEGIN)
    _, tail = rest.split(END)
    return f"{head}{BEGIN}\n```text\n{picture()}\n```\n{END}{tail}"


if __name__ == "__main__":
    PAGE.write_text(page_with_picture(PAGE.read_text()))
    sys.stdout.write(f"{PAGE.relative_to(ROOT)} is up to date\n")
