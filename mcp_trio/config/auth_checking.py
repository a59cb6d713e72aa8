"""What is wrong with `[auth]`, key by key: each is judged as if all the others were right.

What a value may be is known where it is used; here each is only put there by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

import attrs

from mcp_trio.auth.resource_server import ClientCertificates
from mcp_trio.auth.resource_server.audience import check_resource
from mcp_trio.config.auth import AuthSection, IntrospectionSection, JWTSection
from mcp_trio.config.faults import Fault, Path
from mcp_trio.config.hints import SECRETS_STAY_OUT
from mcp_trio.config.settings import Settings
from mcp_trio.errors import ConfigurationError
from mcp_trio.secrets import SecretSource
from mcp_trio.session.middleware import check_scopes

_ADVICE = "Mend the value; docs/authorization.md tells what each way to prove needs."
_SOUND_URL = "https://sound.example/mcp"
_SOUND_JWT = JWTSection(issuer=_SOUND_URL)
_SOUND_INTROSPECTION = IntrospectionSection(
    url=_SOUND_URL,
    issuer=_SOUND_URL,
    client_id="sound",
    secret_env="SOUND",  # noqa: S106 - the name of a variable
)
_SOUND = AuthSection(resource=_SOUND_URL, jwt={"sound": _SOUND_JWT})
_HELD = frozenset({"jwt", "introspection", "certificates", "dpop", "required_scopes"})
"""Keys of `[auth]` that are judged by their own parts."""
_OF_A_CLIENT = frozenset({"secret_env", "secret_file", "private_key_file", "key_algorithm"})
"""Keys that count together, and are judged so."""

S = TypeVar("S")


def auth_faults(
    settings: Settings, found: Sequence[Fault], source: SecretSource
) -> Iterator[Fault]:
    """What is wrong with `[auth]` and the scopes of toolsets.

    Args:
        settings: all of them.
        found: what has been told already.
        source: has something for every secret that is missing and has been told.
    """
    told = {each.path: each for each in found if each.severity == "fault"}
    for part, toolset in settings.toolsets.items():
        path = ("toolsets", part, "required_scopes")
        yield from _scope_faults(toolset.required_scopes, path)
    auth = settings.auth
    if auth is None:
        return
    for key, reason in _one_by_one(auth, _SOUND, lambda each: each.resource_server(source), _HELD):
        told_so = reason.removeprefix("auth: ").removeprefix(f"{key}: ")
        yield Fault(path=("auth", key), reason=told_so, advice=_ADVICE)
    # One that was put aside is no longer what was given.
    if ("auth", "resource") not in told:
        yield from _resource_faults(settings, auth)
    yield from _scope_faults(auth.required_scopes, ("auth", "required_scopes"))
    yield from _jwt_faults(auth)
    for name, asked in auth.introspection.items():
        yield from _introspection_faults(name, asked, told, source)
    if auth.dpop is not None:
        try:
            auth.dpop.proofs(source)
        except ConfigurationError as error:
            reason = str(error).removeprefix("auth.dpop: ")
            yield Fault(path=("auth", "dpop"), reason=reason, advice=_ADVICE)
    yield from _certificate_faults(settings, auth)


def has_stand_in(reason: str, found: Sequence[Fault]) -> bool:
    """Whether a secret is missing because it stands in the file itself, which has been told."""
    told = any(SECRETS_STAY_OUT in each.reason for each in found)
    return told and "give either " in reason


def _one_by_one(
    section: S, sound: S, make: Callable[[S], object], leave: frozenset[str] = frozenset()
) -> Iterator[tuple[str, str]]:
    """Put each value of a section into a sound one, and tell the keys that make it fail.

    Args:
        section: what is judged.
        sound: one of which something can be made.
        make: makes something of a section, or raises `ConfigurationError`.
        leave: keys that are not judged.

    Yields:
        Key and reason.
    """
    for field in attrs.fields(cast("Any", type(section))):
        value = getattr(section, field.name)
        if field.name in leave or value == getattr(sound, field.name):
            continue
        try:
            make(attrs.evolve(cast("Any", sound), **{field.name: value}))
        except ConfigurationError as error:
            yield field.name, str(error)


def _scope_faults(scopes: Sequence[str], path: Path) -> Iterator[Fault]:
    try:
        check_scopes(scopes, path[-1])
    except ConfigurationError as error:
        advice = "A scope is a word without blanks or quotes; give each as one item of the list."
        yield Fault(path=path, reason=str(error).removeprefix(f"{path[-1]}: "), advice=advice)


def _resource_faults(settings: Settings, auth: AuthSection) -> Iterator[Fault]:
    """A resource that is not where the endpoint is."""
    try:
        check_resource(auth.resource)
    except ConfigurationError:
        return  # told already
    path = settings.server.path.rstrip("/")
    if auth.resource.rstrip("/").endswith(path):
        return
    yield Fault(
        path=("auth", "resource"),
        # Those of toolsets are made from it.
        severity="fault" if settings.toolsets else "warning",
        reason=f"does not end with server.path, {path}",
        advice="Give the URL that clients have for the endpoint. Only a proxy that changes paths "
        "makes it end in another way.",
    )


def _jwt_faults(auth: AuthSection) -> Iterator[Fault]:
    first: dict[str, str] = {}
    for name, section in auth.jwt.items():
        path = ("auth", "jwt", name)
        for key, reason in _one_by_one(section, _SOUND_JWT, JWTSection.authenticator):
            yield Fault(path=(*path, key), reason=reason, advice=_ADVICE)
        other = first.setdefault(section.issuer, name)
        if other != name:
            yield Fault(
                path=(*path, "issuer"),
                reason=f"is the issuer of auth.jwt.{other}, too, which judges all its tokens",
                advice="Leave one of the two tables; audiences and algorithms are lists.",
            )


def _introspection_faults(
    name: str,
    section: IntrospectionSection,
    told: Mapping[Path, Fault],
    source: SecretSource,
) -> Iterator[Fault]:
    path = ("auth", "introspection", name)

    def make(each: IntrospectionSection) -> object:
        return each.authenticator("its client", source)

    for key, reason in _one_by_one(section, _SOUND_INTROSPECTION, make, _OF_A_CLIENT):
        yield Fault(path=(*path, key), reason=reason, advice=_ADVICE)
    own = {key: getattr(section, key) for key in _OF_A_CLIENT}
    inner = [each for each in told.values() if each.path[:3] == path]
    if any(each.path[3:] == ("private_key_file",) for each in inner):
        # There is nothing that could be made up in its place.
        return
    try:
        make(attrs.evolve(_SOUND_INTROSPECTION, **own))
    except ConfigurationError as error:
        reason = str(error).removeprefix("its client: ")
        if not has_stand_in(reason, inner):
            yield Fault(path=path, reason=reason, advice=_ADVICE)


def _certificate_faults(settings: Settings, auth: AuthSection) -> Iterator[Fault]:
    for name in auth.certificates:
        path = ("auth", "certificates", name)
        yield from _scope_faults(auth.certificates[name].scopes, (*path, "scopes"))
        try:
            ClientCertificates(identities={name: auth.identities()[name]})
        except ConfigurationError as error:
            advice = "Name a certificate by what is in it, such as dns:agent.internal or cn:agent."
            yield Fault(path=path, reason=str(error), advice=advice)
    tls = settings.tls
    if auth.certificates and (tls is None or tls.client_certificates == "none"):
        yield Fault(
            path=("auth", "certificates"),
            reason="nobody is asked for a certificate",
            advice='Set tls.client_ca_file, and tls.client_certificates to "optional" or '
            '"required"; or leave these tables out.',
        )
