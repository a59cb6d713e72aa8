"""Files and variables that settings name: secrets, keys and certificates, judged by their keys.

The name of a key says what it names, in every section: `*_env` a variable, `*secret_file` and
`*key_file` a file that holds a secret, `*ca_file` and `*cert_file` certificates. What they hold is
never told.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path as FilePath
from typing import Any, cast

import attrs
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from mcp_trio.config.faults import Fault, Path
from mcp_trio.config.keys import read_key
from mcp_trio.errors import ConfigurationError
from mcp_trio.http.tls import EXPIRES_SOON
from mcp_trio.secrets import unusable

_KEY_ADVICE = (
    "Put a key there that the service may read, or mend the path, which is relative to the "
    "settings file; openssl rand -hex 32 makes one."
)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CREDENTIAL = re.compile(r"authorization|cookie|token|secret|api-?key|password", re.IGNORECASE)


@attrs.frozen(kw_only=True)
class Surroundings:
    """What names in settings are looked up in."""

    folder: FilePath
    """What relative paths are relative to."""
    environment: Mapping[str, str] = attrs.field(repr=False)


def named_faults(section: object, around: Surroundings, path: Path = ()) -> Iterator[Fault]:
    """What is wrong with all that a section names, and with the sections in it.

    Args:
        section: an instance of a class of settings, or a table of them.
        around: where names are looked up.
        path: the key of the section.
    """
    if isinstance(section, dict):
        held = cast("dict[str, object]", section)
    else:
        fields = attrs.fields(cast("Any", type(section)))
        held = {field.name: getattr(section, field.name) for field in fields}
    for name, value in held.items():
        here = (*path, name)
        if _has_inner(value):
            yield from named_faults(value, around, here)
        if not isinstance(section, dict):
            yield from _value_faults(value, here, around)


def _has_inner(value: object) -> bool:
    return isinstance(value, dict) or attrs.has(type(value))


def key_faults(text: str, path: Path, around: Surroundings) -> Iterator[Fault]:
    """What is wrong with a key that is given as `env:NAME` or `file:PATH`."""
    try:
        read_key(text, "key", around.folder, around.environment)
    except ConfigurationError as error:
        reason = str(error).removeprefix("key: ")
        yield Fault(path=path, reason=reason, advice=_KEY_ADVICE)
        return
    kind, _, place = text.partition(":")
    if kind == "file":
        yield from _exposure(around.folder / place, place, path)


def _value_faults(value: object, path: Path, around: Surroundings) -> Iterator[Fault]:
    key = path[-1]
    if isinstance(value, str):
        if key.endswith("_env"):
            yield from _variable_faults(value, path, around)
        elif key.endswith(("secret_file", "key_file")):
            yield from _secret_faults(around.folder / value, value, path)
        elif key.endswith(("ca_file", "cert_file")):
            yield from _certificate_faults(around.folder / value, value, path)
    elif key == "env_from":
        for name, variable in cast("dict[str, str]", value).items():
            yield from _variable_faults(variable, (*path, name), around)
    elif key in {"headers", "metadata"}:
        for name in cast("dict[str, str]", value):
            if _CREDENTIAL.search(name):
                yield Fault(
                    path=(*path, name),
                    severity="warning",
                    reason="looks like a header that holds a secret",
                    advice="Give it in the table auth of the connection, by name of a file or "
                    "variable: what stands here is not masked in logs.",
                )
    elif key == "verify_tls" and value is False:
        yield Fault(
            path=path,
            severity="warning",
            reason="certificates are not checked: anybody on the way can be the upstream",
            advice="Give the authority of the upstream as ca_file, and leave this out.",
        )


def _variable_faults(name: str, path: Path, around: Surroundings) -> Iterator[Fault]:
    if _VARIABLE.fullmatch(name) is None:
        # It may be the secret itself, so it is not repeated.
        advice = "Give the name of the variable that holds the secret, not the secret."
        yield Fault(path=path, reason="is not the name of a variable", advice=advice)
    elif not around.environment.get(name):
        advice = "Set it where the service runs, and where this check runs."
        yield Fault(path=path, reason=f"{name} is not set", advice=advice)
    elif path[-1] == "secret_env" and (trouble := unusable(around.environment[name])):
        advice = "Put the secret into it, and nothing else."
        yield Fault(path=path, reason=f"{name} {trouble}", advice=advice)


def _secret_faults(file: FilePath, shown: str, path: Path) -> Iterator[Fault]:
    try:
        held = file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        yield _unreadable(shown, path, error)
        return
    trouble = unusable(held, lines=path[-1] != "secret_file")
    if trouble is not None:
        advice = "Put the secret into it, and nothing else."
        yield Fault(path=path, reason=f"{shown} {trouble}", advice=advice)
    yield from _exposure(file, shown, path)


def _exposure(file: FilePath, shown: str, path: Path) -> Iterator[Fault]:
    try:
        mode = file.stat().st_mode
    except (OSError, ValueError):
        # It was there a moment ago; whoever reads it next tells.
        return
    if mode & stat.S_IROTH:
        yield Fault(
            path=path,
            severity="warning",
            reason=f"everybody on this machine can read {shown}",
            advice="Take the permission away, with chmod o-rwx.",
        )


def _certificate_faults(file: FilePath, shown: str, path: Path) -> Iterator[Fault]:
    try:
        found = x509.load_pem_x509_certificates(file.read_bytes())
    except OSError as error:
        yield _unreadable(shown, path, error)
        return
    except ValueError:
        advice = "Give certificates in PEM, which begin with -----BEGIN CERTIFICATE-----."
        yield Fault(path=path, reason=f"{shown} holds no certificates", advice=advice)
        return
    if path == ("tls", "cert_file") and not _is_of_a_server(found[0]):
        yield Fault(
            path=path,
            severity="warning",
            reason=f"{shown} is not for servers, so most clients refuse it",
            advice="Have one issued whose extended key usage holds serverAuth, or is left out.",
        )
    now = datetime.now(UTC)
    # Of many authorities some may be over; of a chain each one counts.
    first_end = max if path[-1].endswith("ca_file") else min
    end = first_end(each.not_valid_after_utc for each in found)
    begin = max(each.not_valid_before_utc for each in found)
    renew = "Renew it, and put the new one in its place."
    if end <= now:
        reason = f"{shown} expired on {end:%Y-%m-%d}"
        yield Fault(path=path, reason=reason, advice=renew)
    elif end - now < EXPIRES_SOON:
        reason = f"{shown} expires on {end:%Y-%m-%d}"
        yield Fault(path=path, severity="warning", reason=reason, advice=renew)
    if begin > now and not path[-1].endswith("ca_file"):
        reason = f"{shown} is not valid before {begin:%Y-%m-%d}"
        yield Fault(path=path, reason=reason, advice="Mend the clock, or use another certificate.")


def _is_of_a_server(certificate: x509.Certificate) -> bool:
    """Whether a server may show it (RFC 5280, section 4.2.1.12)."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (x509.ExtensionNotFound, x509.DuplicateExtension, ValueError):
        return True
    wanted = {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}
    return not wanted.isdisjoint(found)


def _unreadable(shown: str, path: Path, error: Exception) -> Fault:
    why = error.strerror if isinstance(error, OSError) else "it is no text"
    advice = "Mend the path, which is relative to the settings file, or let the service read it."
    return Fault(path=path, reason=f"cannot read {shown}: {why}", advice=advice)
