"""`WWW-Authenticate`, read and written: which schemes a server takes, and what it wants to see."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import attrs

from mcp_trio.framing.headers import TCHARS

_PARAMETER = re.compile(rf'({TCHARS})[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|({TCHARS}))')
_SCHEME = re.compile(rf"({TCHARS})(?:[ \t]+|(?=,)|$)")
_TOKEN68 = re.compile(r"[A-Za-z0-9\-._~+/]+=*[ \t]*(?=,|$)")
_GAP = re.compile(r"[ \t,]*")
MAX_HEADER = 16 * 1024


@attrs.frozen
class Challenge:
    """One challenge. Parameter names are lower-case."""

    scheme: str
    parameters: Mapping[str, str]

    @property
    def scopes(self) -> tuple[str, ...]:
        """The scopes it names, in order."""
        return tuple(dict.fromkeys(self.parameters.get("scope", "").split()))


def write_challenge(scheme: str, parameters: Mapping[str, str]) -> str:
    """Write one challenge as a header field of its own (RFC 9110, section 11.6.1).

    What is no printable ASCII becomes `?`: values go into a header.
    """
    written = [f'{name}="{_quoted(value)}"' for name, value in parameters.items()]
    return f"{scheme} {', '.join(written)}" if written else scheme


def _quoted(value: str) -> str:
    clean = re.sub(r"[^ -~]", "?", value)
    return re.sub(r'(["\\])', r"\\\1", clean)


def read_challenges(values: Iterable[str]) -> list[Challenge]:
    """Read all header fields of that name. What cannot be read ends its own field only."""
    found: list[Challenge] = []
    for value in values:
        found += _field(value[:MAX_HEADER])
    return found


def _field(text: str) -> list[Challenge]:
    found: list[Challenge] = []
    parameters: dict[str, str] | None = None
    place = 0
    while True:
        gap = _GAP.match(text, place)
        place = gap.end() if gap else place
        parameter = _PARAMETER.match(text, place)
        if parameter is not None and parameters is not None:
            quoted, bare = parameter[2], parameter[3]
            said = bare if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
            parameters.setdefault(parameter[1].lower(), said)
            place = parameter.end()
            continue
        scheme = _SCHEME.match(text, place)
        if scheme is None:
            return found
        parameters = {}
        found.append(Challenge(scheme[1], parameters))
        place = scheme.end()
        if _PARAMETER.match(text, place) is None:
            blob = _TOKEN68.match(text, place)
            # A lone word before a comma is credentials of this scheme only right behind it.
            if blob is not None and scheme[0] != scheme[1]:
                place = blob.end()


def bearing(challenges: Iterable[Challenge]) -> Challenge | None:
    """The challenge to answer with a token: DPoP before Bearer, since it asks for more."""
    by_scheme: dict[str, Challenge] = {}
    for challenge in challenges:
        by_scheme.setdefault(challenge.scheme.lower(), challenge)
    return by_scheme.get("dpop") or by_scheme.get("bearer")
