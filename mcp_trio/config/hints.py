"""What to do about a fault: the key that was probably meant, and how a secret is given."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from typing import Any

import attrs

from mcp_trio.config.faults import Fault, dotted
from mcp_trio.config.reading import MISSING, UNKNOWN
from mcp_trio.config.schema import keys_of, kind_at, leaves, plain

_SECRET = re.compile(r"pass(word|wd|phrase)?|secret|token|credentials?|(api|private|access)_?key")
_CLOSE = 0.6
"""How alike a key must be to be the one that was meant (`difflib`, 0 to 1)."""
_TYPO = 0.9
"""How alike it must be where it may as well be a secret."""
SECRETS_STAY_OUT = "a secret never stands in the settings"


def hinted(fault: Fault, root: type, values: object) -> Fault:
    """Say what to do about a fault of reading, unless it is said.

    Args:
        fault: about a key or a table.
        root: the class of settings.
        values: what was read.
    """
    if fault.advice:
        return fault
    if fault.reason == UNKNOWN:
        return _unknown(fault, root, values)
    if fault.reason == MISSING:
        return attrs.evolve(fault, advice=f"Add {fault.path[-1]} to {_table(fault)}.")
    return attrs.evolve(fault, advice=_change(fault, root, values))


def secret_advice(key: str, known: Collection[str]) -> str | None:
    """How to give what an unknown key seems to hold; None if that is no secret.

    Args:
        key: the unknown key.
        known: the keys of its table.
    """
    if _SECRET.search(key.lower()) is None or key.lower().endswith(("_file", "_env")):
        return None
    if "secret_file" in known:
        return "Put it into a file or a variable, and name that in secret_file or secret_env."
    if "auth" in known:
        return "Name a file or a variable that holds it in the table auth: secret_file, secret_env."
    return "Put it into a file or a variable, and name that in a key *_file or *_env."


def _unknown(fault: Fault, root: type, values: object) -> Fault:
    *around, key = fault.path
    found = kind_at(root, values, tuple(around))
    known = list(keys_of(*found) or ()) if found is not None else []
    near = difflib.get_close_matches(key, known, n=1, cutoff=_CLOSE)
    secret = secret_advice(key, known)
    # `secret` is not meant as `secret_env`, and `token_ur` is meant as `token_url`.
    if secret is not None and not difflib.get_close_matches(key, known, n=1, cutoff=_TYPO):
        return attrs.evolve(fault, reason=f"{UNKNOWN}; {SECRETS_STAY_OUT}", advice=secret)
    if near:
        meant = dotted((*around, near[0]))
        advice = "Mend the spelling, or remove the key."
        return attrs.evolve(fault, reason=f"{UNKNOWN}; did you mean {meant}?", advice=advice)
    elsewhere = [dotted(path) for path in leaves(root, {}) if path[-1] == key][:3]
    if elsewhere:
        advice = f"Move it to {' or '.join(elsewhere)}, or remove it."
    elif known:
        advice = f"Remove it; known here are {', '.join(sorted(known))}."
    else:
        advice = "Remove it."
    return attrs.evolve(fault, advice=advice)


def _change(fault: Fault, root: type, values: object) -> str:
    default: Any = _default(fault, root, values)
    if default is None:
        return "Change the value so that it fits."
    return f"Change the value, or leave the key out for the default, {default}."


def _default(fault: Fault, root: type, values: object) -> object:
    """The default of a key, if it is a plain value."""
    found = kind_at(root, values, fault.path[:-1]) if fault.path else None
    cls = None if found is None else plain(found[0])
    if cls is None or not attrs.has(cls):
        return None
    default = getattr(attrs.fields_dict(cls).get(fault.path[-1]), "default", None)
    if isinstance(default, bool):
        return str(default).lower()
    return repr(default) if isinstance(default, int | float | str) and default != "" else None


def _table(fault: Fault) -> str:
    return f"[{dotted(fault.path[:-1])}]" if len(fault.path) > 1 else "the settings"
