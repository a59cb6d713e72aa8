"""The table of settings in `docs/serve.md`, read from the code.

`python docs/settings.py` rewrites it.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from pathlib import Path

import attrs

from mcp_trio import config

PAGE = Path(__file__).resolve().parent / "serve.md"
BEGIN, END = "<!-- settings: begin -->", "<!-- settings: end -->"
SECTIONS = (
    ("server", config.ServerSection),
    ("catalog", config.CatalogSection),
    ("connections.NAME", config.ConnectionSection),
    ("connections.NAME.auth", config.AuthSection),
)


def field_docs(cls: type) -> dict[str, str]:
    """The string under each field of a class."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    found: dict[str, str] = {}
    name = None
    for node in body.body if isinstance(body, ast.ClassDef) else ():
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
        elif name and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            found[name] = str(node.value.value)
    return found


def rows() -> str:
    """One row for each key."""
    lines = ["| key | default | meaning |", "|---|---|---|"]
    for section, cls in SECTIONS:
        docs = field_docs(cls)
        for field in attrs.fields(cls):
            default = field.default
            if isinstance(default, attrs.Factory):  # type: ignore[arg-type]  # its stub is a function
                default = default.factory()
            shown = "required" if default is attrs.NOTHING else f"`{default!r}`"
            shown = {"`None`": "none", "`[]`": "none", "`{}`": "none"}.get(shown, shown)
            lines.append(f"| `{section}.{field.name}` | {shown} | {docs[field.name]} |")
    return "\n".join(lines)


def page_with_rows(page: str) -> str:
    """The page with its table written anew."""
    head, rest = page.split(BEGIN)
    _, tail = rest.split(END)
    return f"{head}{BEGIN}\n{rows()}\n{END}{tail}"


if __name__ == "__main__":
    PAGE.write_text(page_with_rows(PAGE.read_text()))
    sys.stdout.write(f"{PAGE.name} is up to date\n")
