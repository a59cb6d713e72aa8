"""Settings from the environment: `MCP_TRIO_`, then the key, its parts joined by two underscores.

`MCP_TRIO_SERVER__PORT=9000` is `server.port`, `MCP_TRIO_CONNECTIONS__CRM_EU__TOTAL_TIMEOUT=5` is
`total_timeout` of the connection `crm-eu`, if the file has one, else of a new one, `crm_eu`. A
variable that means no key is a fault, because somebody meant something by it.
"""

from __future__ import annotations

import difflib
import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NoReturn, cast, get_origin

from mcp_trio.config.draft import Draft, Override, is_too_deep
from mcp_trio.config.faults import Fault, Origin, Path, dotted
from mcp_trio.config.hints import secret_advice
from mcp_trio.config.schema import element_of, keys_of, leaves, member, names_of, plain

PREFIX = "MCP_TRIO_"
RESERVED = "MCP_TRIO_TEST_"
"""Not settings: for the tests of this project."""
_JOINT = "__"
_LINK = re.compile(r"SERVICE_(HOST|PORT(_\w+)?)|PORT(_[0-9]+_[A-Z]+(_(PROTO|PORT|ADDR))?)?")
"""What Kubernetes tells containers about a service that is called mcp-trio."""
_LINKED = re.compile(r"[a-z]+://[^\s]+|[0-9a-fA-F.:]+|[a-z]+")
_NEW_NAME = re.compile(r"[a-z0-9_]+")
_NUMERIC = re.compile(r"[0-9A-Fa-fxob_.+-]{1,100}")
"""The signs of numbers in TOML, `inf` and `nan` left out."""
_NAMING = (
    f"A variable is {PREFIX} and the key in capitals, its parts joined by two underscores, "
    f"such as {PREFIX}SERVER__PORT."
)


def apply_environment(draft: Draft, root: type, environment: Mapping[str, str]) -> None:
    """Put the values of variables in place; what is wrong with them becomes faults of the draft.

    Args:
        draft: the settings so far.
        root: the class of settings.
        environment: all variables; those without the prefix are nothing to us.
    """
    named = set(_texts(draft.values)) | {environment[name] for name in _ours(environment)}
    for variable in sorted(_ours(environment), key=_rank):
        if variable in named or f"env:{variable}" in named:
            # The settings say that a secret is there.
            continue
        _apply(draft, root, variable, environment[variable])


def variable_of(path: Path) -> str:
    """The variable of a key."""
    return PREFIX + _JOINT.join(map(_spelled, path))


def _ours(environment: Mapping[str, str]) -> list[str]:
    return [
        name
        for name, value in environment.items()
        if name.startswith(PREFIX)
        and not name.startswith(RESERVED)
        and not (_LINK.fullmatch(name[len(PREFIX) :]) and _LINKED.fullmatch(value))
    ]


def _rank(variable: str) -> tuple[int, bool, str]:
    """Tables before what is in them, and the kind of a connection before its other keys."""
    return variable.count(_JOINT), not variable.endswith(_JOINT + "KIND"), variable


def _texts(held: object) -> Iterator[str]:
    if isinstance(held, str):
        yield held
    elif isinstance(held, dict):
        for inner in cast("dict[str, object]", held).values():
            yield from _texts(inner)
    elif isinstance(held, list):
        for inner in cast("list[object]", held):
            yield from _texts(inner)


def _apply(draft: Draft, root: type, variable: str, text: str) -> None:
    origin = Origin(source=variable)
    found = _resolve(variable[len(PREFIX) :], root, draft.values)
    if found is None:
        draft.faults.append(_unknown(draft, root, variable))
        return
    path, kind = found
    try:
        value = _value(text, plain(kind))
    except ValueError as error:
        advice = f"Mend the variable, or unset it for what the file says of {dotted(path)}."
        draft.faults.append(Fault(path=path, reason=str(error), advice=advice, origin=origin))
    else:
        draft.override(Override(path=path, value=value, origin=origin))


def _unknown(draft: Draft, root: type, variable: str) -> Fault:
    known = [variable_of(path) for path in leaves(root, draft.values)]
    near = difflib.get_close_matches(variable, known, n=1, cutoff=0.8)
    last = variable.rpartition(_JOINT)[2].lower()
    advice = secret_advice(last, ()) or _NAMING
    reason = "unknown variable" + (f"; did you mean {near[0]}?" if near else "")
    return Fault(reason=reason, advice=advice, origin=Origin(source=variable))


# -- from a name to a key ------------------------------------------------------------


def _resolve(rest: str, kind: Any, held: object) -> tuple[Path, Any] | None:
    """The key that the rest of a name means, and its type; None if it means none."""
    keys = keys_of(kind, held)
    if keys is None:
        element = element_of(kind)
        if element is None:
            return None
        keys = dict.fromkeys(_names(rest, held), element)
    for name, inner in keys.items():
        spelled = _spelled(name)
        if rest == spelled:
            return (name,), inner
        if rest.startswith(spelled + _JOINT):
            below = _resolve(rest[len(spelled + _JOINT) :], inner, member(held, name))
            if below is not None:
                return (name, *below[0]), below[1]
    return None


def _names(rest: str, held: object) -> Iterator[str]:
    """The names that the rest may begin with: those there are, the longest first; or a new one."""
    fits = [n for n in names_of(held) if f"{rest}{_JOINT}".startswith(_spelled(n) + _JOINT)]
    yield from sorted(fits, key=len, reverse=True)
    new = rest.partition(_JOINT)[0].lower()
    if not fits and _NEW_NAME.fullmatch(new):
        yield new


def _spelled(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]", "_", name).upper()


# -- from a text to a value ----------------------------------------------------------


def _value(text: str, kind: Any) -> object:
    """What a text means for a key of a type; the text is not repeated, it may be a secret.

    Raises:
        ValueError: nothing.
    """
    origin: object = get_origin(kind)
    if kind is str or origin is Literal:
        return text
    if kind is bool:
        return _boolean(text)
    if kind is int:
        number = _number(text)
        if not isinstance(number, int):
            raise ValueError("must be a whole number")
        return number
    if kind is float:
        number = _number(text)
        if number is None:
            raise ValueError("must be a finite number")
        return number
    if origin is list:
        return _json(text, list, 'a list in JSON, such as ["a", "b"]')
    if origin is dict or keys_of(kind, None) is not None:
        return _json(text, dict, 'a table in JSON with each key once, such as {"key": "value"}')
    try:
        # A type that another package thought of.
        return _json(text, object, "JSON")
    except ValueError:
        return text


def _boolean(text: str) -> bool:
    if text not in {"true", "false"}:
        raise ValueError("must be true or false")
    return text == "true"


def _number(text: str) -> int | float | None:
    """A number as TOML writes it; None if it is none, or not finite."""
    if _NUMERIC.fullmatch(text) is None:
        return None
    try:
        number: object = tomllib.loads(f"x = {text}")["x"]
    except ValueError:
        return None
    # A date is made of the same signs.
    if isinstance(number, float):
        return number if math.isfinite(number) else None
    return number if isinstance(number, int) else None


def _json(text: str, kind: type, demanded: str) -> object:
    try:
        value: object = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise ValueError(f"must be {demanded}") from None
    if not isinstance(value, kind) or is_too_deep(value):
        raise ValueError(f"must be {demanded}")
    return value


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """A table in which no key stands twice; of two values one would be lost without a word."""
    held = dict(pairs)
    if len(held) < len(pairs):
        raise ValueError
    return held


def _no_constant(_: str) -> NoReturn:
    raise ValueError
