"""Derive `official.json` from the protocol's own schemas: `make_official.py FOLDER`.

The folder holds `REVISION/schema.json` of all five revisions, as the protocol's repository
keeps them in `schema/`. Only facts are taken over, in a form of our own that `official.py`
explains and checks messages with; no text. With `--check` nothing is written, and the exit
status tells whether the table is what the schemas say.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

TABLE = Path(__file__).with_name("official.json")
REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
_TOLD = {"$schema", "default", "description", "examples", "title"}
"""Keywords that say nothing about what is valid."""


def reduce(schema: Mapping[str, Any]) -> Any:
    """One schema as a reduced type.

    Raises:
        ValueError: a keyword that the reduced form has no room for.
    """
    known = dict(schema)
    if (target := known.pop("$ref", None)) is not None:
        made: Any = target.rpartition("/")[2]
    elif "const" in known:
        made = {"is": known.pop("const")}
        known.pop("type", None)
    elif "enum" in known:
        made = {"one": sorted(known.pop("enum"))}
        known.pop("type", None)
    elif "anyOf" in known:
        made = {"any": [reduce(part) for part in known.pop("anyOf")]}
    elif "allOf" in known:
        made = {"all": [reduce(part) for part in known.pop("allOf")]}
    else:
        made = _typed(known)
    if rest := known.keys() - _TOLD:
        raise ValueError(f"no room for {', '.join(sorted(rest))}")
    return made


def _typed(known: dict[str, Any]) -> Any:
    kind = known.pop("type", None)
    if isinstance(kind, list):
        return {"any": sorted(kind)}
    match kind:
        case None:
            return "anything"
        case "array":
            made = {"list": reduce(known.pop("items"))}
            return {**made, "most": known.pop("maxItems")} if "maxItems" in known else made
        case "object":
            return _object(known)
        case "string":
            form = known.pop("format", None)
            return f"string {form}" if form else kind
        case "integer" | "number":
            least, most = known.pop("minimum", ""), known.pop("maximum", "")
            return kind if least == most == "" else f"{kind} {least}..{most}"
        case _:
            return kind


def _object(known: dict[str, Any]) -> Any:
    required = known.pop("required", [])
    fields: Mapping[str, Any] | None = known.pop("properties", None)
    more = known.pop("additionalProperties", None)
    made: dict[str, Any] = {}
    if fields:
        made["fields"] = {
            name if name in required else f"{name}?": reduce(fields[name])
            for name in sorted(fields)
        }
    if more is not None:
        made["more"] = reduce(more if isinstance(more, dict) else {})
    elif fields is not None and not fields:
        made["fields"] = {}
    if required and (unknown := set(required) - set(fields or ())):
        raise ValueError(f"required and not described: {unknown}")
    return made or "object"


def derive(folder: Path) -> dict[str, Any]:
    """The whole table."""
    table: dict[str, Any] = {}
    for revision in REVISIONS:
        source = (folder / revision / "schema.json").read_bytes()
        schema = json.loads(source)
        definitions = schema.get("$defs") or schema["definitions"]
        table[revision] = {
            "sha256": hashlib.sha256(source).hexdigest(),
            "types": {name: reduce(definitions[name]) for name in sorted(definitions)},
        }
    return table


def written(table: Mapping[str, Any]) -> str:
    """The table as text, one definition a line."""
    lines: list[str] = []
    for revision, part in table.items():
        types = ",\n".join(
            f"   {json.dumps(name)}: {json.dumps(made, separators=(',', ':'))}"
            for name, made in part["types"].items()
        )
        lines.append(
            f' "{revision}": {{\n  "sha256": "{part["sha256"]}",\n  "types": {{\n{types}\n  }}\n }}'
        )
    return "{\n" + ",\n".join(lines) + "\n}\n"


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--check", is_flag=True, help="Compare only.")
def main(folder: Path, check: bool) -> None:
    """Write the table, or compare it."""
    text = written(derive(folder))
    if not check:
        TABLE.write_text(text)
    elif text != TABLE.read_text():
        raise click.ClickException(f"{TABLE.name} is not what the schemas say")


if __name__ == "__main__":
    main()
