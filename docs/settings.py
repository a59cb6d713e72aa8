"""The tables of settings in `docs/serve.md`, read from the code.

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
from mcp_trio.runtime.http_sections import AuthSection, EndpointSection, ExchangeSection
from mcp_trio.runtime.plugins import KINDS, connection_section
from mcp_trio.setting_rules import Rule

PAGE = Path(__file__).resolve().parent / "serve.md"
BEGIN, END = "<!-- settings: begin -->", "<!-- settings: end -->"
ENDPOINTS = [kind for kind in KINDS if issubclass(connection_section(kind), EndpointSection)]
SECTIONS = (
    ("[server]", config.ServerSection),
    ("[tls]", config.TLSSection),
    ("[limits]", config.LimitsSection),
    ("[rates.all] and `[rates.caller]`", config.RateSection),
    ('[tools."NAME"]', config.ToolSection),
    ('[tools."NAME".rate]', config.ToolRateSection),
    ("[catalog]", config.CatalogSection),
    ("[admin]", config.AdminSection),
    ("[logging]", config.LoggingSection),
    ("[access_log]", config.AccessLogSection),
    ("[audit]", config.AuditSection),
    ("[telemetry]", config.TelemetrySection),
    ("[auth]", config.AuthSection),
    ("[auth.jwt.NAME]", config.JWTSection),
    ("[auth.introspection.NAME]", config.IntrospectionSection),
    ('[auth.certificates."NAME"]', config.CertificateSection),
    ("[auth.dpop]", config.DPoPSection),
    ("[toolsets.NAME]", config.ToolsetSection),
    ("[connections.NAME]", ConnectionSection),
    (f"[connections.NAME] of the kinds {', '.join(ENDPOINTS)}", EndpointSection),
    *((f"[connections.NAME] of the kind {kind}", connection_section(kind)) for kind in KINDS),
    ("[connections.NAME.auth]", AuthSection),
    ("[connections.NAME.on_behalf_of]", ExchangeSection),
)
"""In the order of the page: what stands over the table, and the class of the keys in it."""


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


def shown_default(field: attrs.Attribute[object]) -> str:
    """What a key is if it is not given."""
    default = field.default
    if isinstance(default, attrs.Factory):  # type: ignore[arg-type]  # its stub is a function
        default = default.factory()
    if default is attrs.NOTHING:
        return "required"
    if default in (None, [], {}):
        return "none"
    return f"`{str(default).lower() if isinstance(default, bool) else repr(default)}`"


def table(cls: type) -> list[str]:
    """One row for each key of a section."""
    lines = ["| key | default | meaning |", "|---|---|---|"]
    docs = field_docs(cls)
    if cls is ConnectionSection:
        kinds = ", ".join(f"`{name}`" for name in KINDS)
        lines.append(f"| `kind` | `'http'` | What kind of upstream it is: {kinds}. |")
    for field in attrs.fields(cls):
        if issubclass(cls, ConnectionSection) and field.inherited:
            continue
        told = docs[field.name]
        if isinstance(field.validator, Rule):
            told = f"{told.rstrip('.')}; {field.validator.text}."
        lines.append(f"| `{field.name}` | {shown_default(field)} | {told} |")
    return lines


def introduction(cls: type) -> str:
    """What the docstring of a class says of its section, without the key it begins with."""
    text = " ".join((inspect.getdoc(cls) or "").split())
    told = text.partition("`: ")[2]
    return told[:1].upper() + told[1:]


def rows() -> str:
    """A table for each section."""
    parts: list[str] = []
    for title, cls in SECTIONS:
        key, _, kind = title.partition(" ")
        parts.append(f"#### `{key}` {kind}".rstrip())
        if introduction(cls):
            parts.append(introduction(cls))
        parts.append("\n".join(table(cls)))
    return "\n\n".join(parts)


def page_with_rows(page: str) -> str:
    """The page with its table written anew."""
    head, rest = page.split(BEGIN)
    _, tail = rest.split(END)
    return f"{head}{BEGIN}\n{rows()}\n{END}{tail}"


if __name__ == "__main__":
    PAGE.write_text(page_with_rows(PAGE.read_text()))
    sys.stdout.write(f"{PAGE.name} is up to date\n")
