"""`mcp-trio diff`, `import`, `publish`, and `check` of operations: before a server sees them.

What is asked for goes to standard output, as text or, with `--json`, as one JSON value; all
else goes to standard error. The exit status is 0, 1 if there are faults or differences, 2 where
nothing could be judged at all, and 141 where nobody reads what is printed.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

import click
import msgspec

from mcp_trio.authoring.checking import Checked
from mcp_trio.authoring.checking import check as check_source
from mcp_trio.authoring.comparing import compare_views, views_by_id
from mcp_trio.authoring.faults import AuthoringError
from mcp_trio.authoring.imports import Imported
from mcp_trio.authoring.publishing import publish as publish_operations
from mcp_trio.authoring.sources import SUFFIXES, Source, read_source
from mcp_trio.authoring.yaml_text import write_yaml
from mcp_trio.catalog.operation import FORMAT
from mcp_trio.cli.judging import (
    TROUBLE,
    config_option,
    count,
    json_option,
    say,
    secret_option,
    told,
)
from mcp_trio.errors import ConfigurationError
from mcp_trio.secrets import Secret, SecretSource
from mcp_trio.wire import JSONObject

_BEGINNING = 65_536
"""Bytes of a file in which a document of operations says that it is one."""

T = TypeVar("T")


def tried(work: Callable[[], T]) -> T:
    """Do the work; what a person can mend is explained, and exits."""
    try:
        return work()
    except AuthoringError as error:
        say(f"mcp-trio: {error}")
        sys.exit(TROUBLE)


def read(place: str, secret_env: str | None) -> Source:
    """Read a source, with the secret that it may want."""
    return read_source(place, _secret_of(secret_env))


def _secret_of(variable: str | None) -> Secret | None:
    if variable is None:
        return None
    source = SecretSource(folder=Path())
    try:
        return source.secret("--secret-env", "secret", env=variable, file=None)
    except ConfigurationError as error:
        raise AuthoringError(str(error)) from error


# -- check ---------------------------------------------------------------------------


def check_operations(
    source: str, config: Path | None, secret_env: str | None, *, as_json: bool, strict: bool
) -> NoReturn:
    """Do what `mcp-trio check` does for operations, and exit."""
    checked = tried(lambda: check_source(read(source, secret_env), config))
    _tell_findings(checked, as_json=as_json)
    bad = checked.findings if strict else checked.faults
    sys.exit(1 if bad else 0)


def _tell_findings(checked: Checked, *, as_json: bool) -> None:
    faults = len(checked.faults)
    warnings = len(checked.findings) - faults
    value: JSONObject = {
        "operations": len(checked.operations),
        "faults": faults,
        "warnings": warnings,
        "findings": [each.as_json() for each in checked.findings],
    }
    lines = [each.as_text() for each in checked.findings]
    lines.append(
        f"{len(checked.operations)} sound, {count(faults, 'fault')}, {count(warnings, 'warning')}"
    )
    told(value, "\n".join(lines), as_json=as_json)


# -- diff ----------------------------------------------------------------------------


@click.command()
@click.argument("a")
@click.argument("b")
@secret_option
@json_option
def diff(a: str, b: str, secret_env: str | None, as_json: bool) -> None:
    """Tell what B would change over A, by operation id and key; exit with 1 if anything.

    A and B are files, folders or registries.
    """
    found = tried(
        lambda: compare_views(views_by_id(read(a, secret_env)), views_by_id(read(b, secret_env)))
    )
    told(found.as_json(), found.as_text(), as_json=as_json)
    sys.exit(1 if found else 0)


# -- publish -------------------------------------------------------------------------


@click.command()
@click.argument("source")
@click.argument("registry")
@config_option
@secret_option
@json_option
@click.option("--dry-run", is_flag=True, help="Tell what would change, and change nothing.")
@click.option("--prune", is_flag=True, help="Withdraw what SOURCE does not have.")
def publish(
    source: str,
    registry: str,
    *,
    config: Path | None,
    secret_env: str | None,
    as_json: bool,
    dry_run: bool,
    prune: bool,
) -> None:
    """Publish the operations of SOURCE in a registry, all of them or none.

    REGISTRY is a SQLite file (.sqlite, .sqlite3, .db) or a JSON document, made if it is not
    there, or a postgresql:// address. Nothing is written if SOURCE has a fault.
    """
    checked = tried(lambda: check_source(read(source, secret_env), config))
    if checked.faults:
        for finding in checked.faults:
            say(finding.as_text())
        say("mcp-trio: nothing was published")
        sys.exit(1)
    outcome = tried(
        lambda: publish_operations(
            checked.operations, registry, _secret_of(secret_env), prune=prune, dry_run=dry_run
        )
    )
    told({**outcome.as_json(), "dry_run": dry_run}, outcome.as_text(), as_json=as_json)


# -- import --------------------------------------------------------------------------


@click.group("import")
def import_() -> None:
    """Make operations from a description of an API."""


def _connection(_: click.Context, __: click.Parameter, name: str | None) -> str | None:
    """A name that is a key of TOML as it stands."""
    if name is not None and re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) is None:
        raise click.BadParameter("up to 64 letters, digits, '_' and '-'")
    return name


def _output(function: Callable[..., None]) -> Callable[..., None]:
    """The options of every importer."""
    for decorate in (
        json_option,
        click.option("--prefix", default="", help="What the name of every tool begins with."),
        click.option(
            "--connection",
            callback=_connection,
            help="Name of the connection in the service's settings.",
        ),
        click.option(
            "-o",
            "--output",
            required=True,
            type=click.Path(dir_okay=False, path_type=Path),
            help="The file to write, .yaml or .json.",
        ),
        click.option(
            "--include",
            multiple=True,
            metavar="KIND=PATTERN",
            help="Only these; of each kind one has to fit.",
        ),
        click.option("--exclude", multiple=True, metavar="KIND=PATTERN", help="All but these."),
    ):
        function = decorate(function)
    return function


_token = click.option(
    "--token-env", metavar="NAME", help="Environment variable with a bearer token for SOURCE."
)


_schema_bytes = click.option(
    "--schema-bytes",
    type=click.IntRange(min=256, max=262_144),
    default=16_384,
    show_default=True,
    help="About how large one schema may become.",
)
_output_schemas = click.option(
    "--output-schemas/--no-output-schemas", default=True, help="Describe answers."
)


@import_.command("openapi")
@click.argument("source")
@_output
@_token
@_schema_bytes
@_output_schemas
def import_openapi(
    source: str, *, output: Path, token_env: str | None, as_json: bool, **chosen: Any
) -> None:
    """Import OpenAPI 2.0, 3.0 or 3.1 from a file or an address.

    Filters are tag=, path=, method= or id= and a pattern, such as path=/users/*.
    """
    from mcp_trio.authoring.fetching import Library  # noqa: PLC0415 - for this command only
    from mcp_trio.authoring.openapi import importer  # noqa: PLC0415

    options = importer.Options(**chosen)
    tried(lambda: check_output(output, [source]))
    made = tried(lambda: importer.import_openapi(Library(source, bearer(token_env)), options))
    _write(made, source, output, as_json=as_json)


@import_.command("graphql")
@click.argument("source")
@_output
@_token
@_schema_bytes
@_output_schemas
@click.option(
    "--depth",
    type=click.IntRange(0, 6),
    default=2,
    show_default=True,
    help="Levels of objects to ask for below that of the field.",
)
@click.option(
    "--fields",
    type=click.IntRange(1, 500),
    default=60,
    show_default=True,
    help="Fields that one operation asks for.",
)
@click.option(
    "--scalar",
    "scalars",
    multiple=True,
    metavar="NAME=SCHEMA",
    help="JSON Schema of a custom scalar.",
)
def import_graphql(
    source: str,
    *,
    output: Path,
    token_env: str | None,
    scalars: tuple[str, ...],
    as_json: bool,
    **chosen: Any,
) -> None:
    """Import the queries and mutations of a GraphQL schema.

    SOURCE is SDL or an introspection in a file, or the address of an endpoint. Filters are kind=
    (query or mutation) and name= and a pattern.
    """
    from mcp_trio.authoring import graphql_importer as importer  # noqa: PLC0415 - this command only

    options = importer.Options(scalars=dict(map(_scalar, scalars)), **chosen)
    tried(lambda: check_output(output, [source]))
    made = tried(lambda: importer.import_graphql(source, options, bearer(token_env)))
    _write(made, source, output, as_json=as_json)


def _scalar(text: str) -> tuple[str, JSONObject]:
    name, _, schema = text.partition("=")
    try:
        found: object = json.loads(schema)
    except ValueError:
        found = None
    if not name or not isinstance(found, dict):
        raise click.UsageError(f"--scalar {text!r} is not of the form NAME={{...}}")
    return name, cast("JSONObject", found)


@import_.command("grpc")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@_output
@_token
@_schema_bytes
@_output_schemas
@click.option(
    "-I",
    "--proto-path",
    multiple=True,
    metavar="FOLDER",
    help="Where imports of .proto files are looked for.",
)
def import_grpc(
    sources: tuple[str, ...], *, output: Path, token_env: str | None, as_json: bool, **chosen: Any
) -> None:
    """Import the methods of gRPC services.

    SOURCE is a FileDescriptorSet, .proto files, or a server that offers reflection, as
    grpc://HOST:PORT, or grpcs:// with TLS. Filters are service= and method= and a pattern.
    """
    from mcp_trio.authoring import grpc_importer as importer  # noqa: PLC0415 - for this command only

    options = importer.Options(**chosen)
    tried(lambda: check_output(output, sources))
    made = tried(lambda: importer.import_grpc(sources, options, bearer(token_env)))
    _write(made, " ".join(sources), output, as_json=as_json)


def bearer(variable: str | None) -> dict[str, str]:
    """The header for a token in an environment variable.

    Raises:
        AuthoringError: it is not set.
    """
    if variable is None:
        return {}
    token = os.environ.get(variable)
    if not token:
        raise AuthoringError(f"{variable} is not set")
    return {"authorization": f"Bearer {token}"}


def check_output(output: Path, sources: Sequence[str]) -> None:
    """Refuse to write where something else would be lost: only operations are replaced.

    Raises:
        AuthoringError: the file is a source, holds no operations, or has another ending.
    """
    if output.suffix not in SUFFIXES:
        raise AuthoringError(f"-o {output}: name a file that ends with .yaml or .json")
    try:
        if not output.exists():
            return
        if not output.is_file():
            raise AuthoringError(f"-o {output}: is not a file")
        if any(Path(source).exists() and output.samefile(source) for source in sources):
            raise AuthoringError(f"-o {output}: is what is imported; name another file")
        with output.open("rb") as file:
            beginning = file.read(_BEGINNING)
    except OSError as error:
        raise AuthoringError(f"cannot write {output}: {error.strerror}") from error
    if beginning.strip() and FORMAT.encode() not in beginning:
        raise AuthoringError(
            f"-o {output}: is there and is no document of operations; name another file"
        )


def _write(made: Imported, source: str, output: Path, *, as_json: bool) -> None:
    if made.views:
        _write_operations(made.document(), source, output)
    value: JSONObject = {
        "imported": len(made.views),
        "filtered": made.filtered,
        "refused": [each.as_json() for each in made.refused],
        "notes": [each.as_json() for each in made.notes],
        "settings": made.settings,
        "output": str(output),
    }
    lines = [f"not imported: {each.what}: {each.reason}" for each in made.refused]
    lines += [f"note: {each.what}: {each.reason}" for each in made.notes]
    lines.append(
        f"{len(made.views)} imported into {output}, {len(made.refused)} not, "
        f"{made.filtered} not asked for"
    )
    if made.views and made.settings:
        lines += ["", "The service needs, for example:", "", made.settings]
    told(value, "\n".join(lines), as_json=as_json)
    if not made.views:
        say("mcp-trio: nothing was imported, and nothing written")
        sys.exit(1)


def _write_operations(document: JSONObject, source: str, output: Path) -> None:
    if output.suffix == ".json":
        text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
    else:
        # One line: a source may hold anything.
        shown = "".join(c if c.isprintable() else " " for c in source)
        text = f"# From {shown}\n{write_yaml(document)}"
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        say(f"mcp-trio: cannot write {output}: {error.strerror}")
        sys.exit(TROUBLE)


COMMANDS: dict[str, click.Command] = {
    "diff": diff,
    "import": import_,
    "publish": publish,
}
"""By name."""
