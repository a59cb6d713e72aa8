"""Every fault of settings at once: what cannot be read, and what could not work.

What was found is put aside, and the rest is judged as if it was right. Nothing is started; only
the registry is asked whether it is there, unless that is not wanted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

import attrs
import trio

from mcp_trio.abc import Registry, RegistryError
from mcp_trio.catalog.operation import execution_faults
from mcp_trio.config.auth_checking import auth_faults, has_stand_in
from mcp_trio.config.blaming import blamed
from mcp_trio.config.catalog import CatalogSection
from mcp_trio.config.draft import Draft
from mcp_trio.config.faults import Fault
from mcp_trio.config.files import Surroundings, key_faults, named_faults
from mcp_trio.config.listening import listening_faults
from mcp_trio.config.settings import NO_REGISTRY, Settings, read_draft
from mcp_trio.errors import ConfigurationError
from mcp_trio.http.tls import Certificates, UnreadableFileError
from mcp_trio.runtime.connections import ConnectionSection
from mcp_trio.secrets import Secret, SecretSource

LOOK_TIMEOUT = 30.0
"""Seconds in which the registry has to answer."""
_PAIR = ("client_cert_file", "client_key_file")
_CONNECTION_ADVICE = "Mend the value; docs/serve.md tells what each key of a connection means."
_DEFAULTS_ADVICE = "Mend the value; docs/operations.md tells what each policy may be."
_CATALOG_ADVICE = "Mend the value; docs/registries.md tells what each kind of registry heeds."


@attrs.frozen(kw_only=True)
class Checked:
    """What checking settings gave."""

    settings: Settings | None
    """None if there are faults."""
    findings: tuple[Fault, ...]
    """Faults and warnings, in the order of the file."""

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Those that keep the service from starting."""
        return tuple(each for each in self.findings if each.severity == "fault")


def check_settings(draft: Draft, environment: Mapping[str, str], *, offline: bool) -> Checked:
    """Check settings; blocks while it asks the registry, for `LOOK_TIMEOUT` at most.

    Args:
        draft: the settings as they were found.
        environment: where secrets are looked up.
        offline: do not ask the registry.
    """
    settings, faults = read_draft(draft)
    around = Surroundings(folder=draft.folder, environment=environment)
    deeper = _deeper(settings, faults, around, offline=offline)
    findings = draft.located([*faults, *deeper])
    sound = not any(each.severity == "fault" for each in findings)
    return Checked(settings=settings if sound else None, findings=tuple(findings))


def _deeper(
    settings: Settings, read: Sequence[Fault], around: Surroundings, *, offline: bool
) -> Iterator[Fault]:
    """What reading does not find.

    Args:
        settings: what is left after reading.
        read: what reading found, and put aside.
        around: where names are looked up.
        offline: do not ask the registry.
    """
    yield from listening_faults(settings, around.environment, around.folder)
    named = list(named_faults(settings, around))
    yield from named
    yield from _tls_faults(settings, named, around)
    source = _Indulgent(folder=around.folder, environment=around.environment)
    yield from auth_faults(settings, (*read, *named), source)
    for index, text in enumerate(settings.server.state_keys):
        yield from key_faults(text, ("server", "state_keys", str(index)), around)
    if settings.server.cursor_key is not None:
        yield from key_faults(settings.server.cursor_key, ("server", "cursor_key"), around)
    if settings.audit is not None and settings.audit.key is not None:
        yield from key_faults(settings.audit.key, ("audit", "key"), around)
    yield from _log_faults(settings, around)
    for name, section in settings.connections.items():
        mine = [each for each in (*read, *named) if each.path[:2] == ("connections", name)]
        yield from _connection_faults(name, section, mine, around)
    if settings.catalog.registry != NO_REGISTRY:
        mine = [each for each in named if each.path[:1] == ("catalog",)]
        yield from _registry_faults(settings, mine, around, offline=offline)


def _log_faults(settings: Settings, around: Surroundings) -> Iterator[Fault]:
    """Logs without a folder; whether it may be written to is told by the service itself."""
    for name, section in (
        ("logging", settings.logging),
        ("access_log", settings.access_log),
        ("audit", settings.audit),
    ):
        if section is None:
            continue
        # `stderr` and `stdout` stand in the folder of the settings, which is there.
        place = around.folder / section.file
        reason = None
        if not place.parent.is_dir():
            reason = f"there is no folder {place.parent}"
        elif place.is_dir():
            reason = f"{place} is a folder"
        if reason is not None:
            advice = "Make the folder, or give another path; it is relative to the settings file."
            yield Fault(path=(name, "file"), reason=reason, advice=advice)


def _tls_faults(
    settings: Settings, named: Sequence[Fault], around: Surroundings
) -> Iterator[Fault]:
    tls = settings.tls
    if tls is None:
        return
    if (tls.client_ca_file is None) != (tls.client_certificates == "none"):
        yield Fault(
            path=("tls", "client_certificates"),
            reason="belongs together with client_ca_file: the one says whether certificates are "
            "asked for, the other whose count",
            advice="Give both, or neither.",
        )
    if any(each.path == ("tls", "key_file") and each.severity == "fault" for each in named):
        return
    pair = attrs.evolve(tls, client_ca_file=None, client_certificates="none")
    try:
        Certificates(pair.options(around.folder))
    except UnreadableFileError:
        return  # told already
    except ConfigurationError as error:
        advice = "Give the key of this certificate in PEM, without a password."
        yield Fault(path=("tls", "key_file"), reason=str(error), advice=advice)


class _Indulgent(SecretSource):
    """Has something for every secret that is missing: that has been told already."""

    def secret(self, whose: str, name: str, *, env: str | None, file: str | None) -> Secret:
        """Fetch a secret, or make one up."""
        try:
            return super().secret(whose, name, env=env, file=file)
        except ConfigurationError:
            if (env is None) == (file is None):
                raise
            return Secret("made-up")


def _connection_faults(
    name: str, section: ConnectionSection, found: list[Fault], around: Surroundings
) -> Iterator[Fault]:
    path = ("connections", name)
    told = [each for each in found if each.severity == "fault"]
    for fault in execution_faults(section.defaults, "defaults"):
        place = (*fault.place.split("."), *([fault.key] if fault.key else []))
        yield Fault(path=(*path, *place), reason=fault.reason, advice=_DEFAULTS_ADVICE)
    rest = _without_told(attrs.evolve(cast("Any", section), defaults={}), told)
    source = _Indulgent(folder=around.folder, environment=around.environment)
    for key, told_so in blamed(rest, lambda each: each.connection(name, source)):
        reason = told_so.removeprefix(f"connection {name}: ")
        if not has_stand_in(reason, found):
            yield Fault(path=(*path, *key), reason=reason, advice=_CONNECTION_ADVICE)


def _without_told(section: Any, told: Sequence[Fault]) -> Any:
    """The section without files that have been told, for which nothing can be made up."""
    for fault in told:
        key, last = fault.path[2], fault.path[-1]
        aside = _PAIR if last in _PAIR else (key,)
        if last in {"private_key_file", "ca_file", *_PAIR}:
            section = attrs.evolve(section, **dict.fromkeys(aside))
    return section


def _registry_faults(
    settings: Settings, found: list[Fault], around: Surroundings, *, offline: bool
) -> Iterator[Fault]:
    catalog = settings.catalog
    missing = {each.path[-1] for each in found if each.severity == "fault"}
    # Without what is missing; it has been told.
    catalog = attrs.evolve(catalog, **cast("Any", dict.fromkeys(missing)))

    def make(each: CatalogSection) -> Registry:
        return each.open_registry(around.folder, around.environment)

    wrong = list(blamed(catalog, make))
    for key, told_so in wrong:
        reason = told_so.removeprefix("catalog: ")
        yield Fault(path=("catalog", *key), reason=reason, advice=_CATALOG_ADVICE)
    if offline or missing or wrong:
        return
    trouble = trio.run(_look, make(catalog))
    if trouble is not None:
        yield Fault(
            path=("catalog", "registry"),
            severity="warning",
            reason=f"cannot be read now: {trouble}",
            advice="The service starts, and is ready once the registry can be read.",
        )


async def _look(registry: Registry) -> str | None:
    """Why a registry cannot be read, if so."""
    try:
        with trio.fail_after(LOOK_TIMEOUT):
            await registry.change_token()
    except RegistryError as error:
        return str(error)
    except trio.TooSlowError:
        return f"no answer in {LOOK_TIMEOUT:.0f} seconds"
    finally:
        with suppress(RegistryError):
            await registry.aclose()
    return None
