"""The table of settings in `docs/serve.md`, read from the code.

`python docs/settings.py` rewrites it.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from abc import ABC
from pathlib import Path

import attrs

from mcp_trio import config
from mcp_trio.runtime.connections import ConnectionSection
from mcp_trio.runtime.http_sections import AuthSection, ExchangeSection
from mcp_trio.runtime.plugins import KINDS, connection_section

PAGE = Path(__file__).resolve().parent / "serve.md"
BEGIN, END = "<!-- settings: begin -->", "<!-- settings: end -->"
SECTIONS = (
    ("server", config.ServerSection),
    ("catalog", config.CatalogSection),
    ("admin", config.AdminSection),
    ("toolsets.NAME", config.ToolsetSection),
    ("connections.NAME", ConnectionSection),
    *((f"connections.NAME, {kind}", connection_section(kind)) for kind in KINDS),
    ("connections.NAME.auth", AuthSection),
    ("connections.NAME.on_behalf_of", ExchangeSection),
)


def field_docs(cls: type) -> dict[str, str]:
    """The string under each field of a class, those it inherits included."""
    found = {} if cls.__base__ in {None, object, ABC} else field_docs(cls.__base__)
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    name = None
    for node in body.body if isinstance(body, ast.ClassDef) else ():
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
        elif name and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            found[name] = " ".join(str(node.value.value).split())
    return found


def rows() -> str:
    """One row for each key."""
    lines = ["| key | default | meaning |", "|---|---|---|"]
    told: set[tuple[str, str]] = set()
    for title, cls in SECTIONS:
        section, _, kind = title.partition(", ")
        docs = field_docs(cls)
        if cls is ConnectionSection:
            kinds = ", ".join(f"`{name}`" for name in KINDS)
            lines.append(f"| `{section}.kind` | `'http'` | What kind of upstream it is: {kinds}. |")
        for field in attrs.fields(cls):
            if (section, field.name) in told:
                continue
            if not kind:
                told.add((section, field.name))
            default = field.default
            if isinstance(default, attrs.Factory):  # type: ignore[arg-type]  # its stub is a function
                default = default.factory()
            shown = "required" if default is attrs.NOTHING else f"`{default!r}`"
            shown = {"`None`": "none", "`[]`": "none", "`{}`": "none"}.get(shown, shown)
            where = f"`{section}.{field.name}`" + (f" ({kind})" if kind else "")
            lines.append(f"| {where} | {shown} | {docs[field.name]} |")
    return "\n".join(lines)


def page_with_rows(page: str) -> str:
    """The page with its table written anew."""
    head, rest = page.split(BEGIN)
    _, tail = rest.split(END)
    return f"{head}{BEGIN}\n{rows()}\n{END}{tail}"


if __name__ == "__main__":
    PAGE.write_text(page_with_rows(PAGE.read_text()))
    sys.stdout.write(f"{PAGE.name} is up to date\n")
