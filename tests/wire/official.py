"""Whether a message is what the official schema of its revision says, to the letter.

`official.json` holds what the five schemas say, derived by `make_official.py`. A type is

    "string", "integer", "number", "boolean", "null", "object", "array", "anything"
    "string uri" and the like   with a format; "number 0..1" with bounds
    "Name"                      another definition
    {"is": value}               a constant
    {"one": [value, ...]}       one of these values
    {"list": type, "most": n}   an array, of so many items at most
    {"any": [type, ...]}        one of these, or several
    {"all": [type, ...]}        all of these at once
    {"fields": {"name": type, "name?": type}, "more": type}
                                an object; `?` may be missing, `more` is what other keys hold

The schemas themselves let nearly every object hold keys that they do not list. That would
hide a field of another revision, so here a key has to be listed unless the object is made
for keys of others: one without listed fields, `_meta`, and the JSON Schema of a tool.
"""

from __future__ import annotations

import base64
import binascii
import functools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import attrs

Type: TypeAlias = "str | Mapping[str, Any]"
Sender: TypeAlias = Literal["client", "server"]

OPEN = {"_meta", "inputSchema", "outputSchema"}
"""Fields whose objects take any key, whatever else is listed for them."""

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S*")


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error:
        return False
    return True


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_FORMATS: dict[str, Callable[[str], object]] = {
    "byte": _is_base64,
    "uri": _SCHEME.fullmatch,
    "uri-template": bool,
}
_PRIMITIVES: dict[str, Callable[[Any], bool]] = {
    "anything": lambda _: True,
    "array": lambda value: isinstance(value, list),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _is_number(value) and value == int(value),
    "null": lambda value: value is None,
    "number": _is_number,
    "object": lambda value: isinstance(value, dict),
    "string": lambda value: isinstance(value, str),
}


@functools.cache
def _table() -> dict[str, Any]:
    return json.loads(Path(__file__).with_name("official.json").read_text())


class Official:
    """The types of one revision."""

    def __init__(self, revision: str) -> None:
        self.types: dict[str, Type] = _table()[revision]["types"]
        self.sends: dict[Sender, dict[str, Type]] = {
            "client": self._methods("ClientRequest", "ClientNotification"),
            "server": self._methods("ServerRequest", "ServerNotification"),
        }
        """The type of a message by sender and method."""
        self._errors = self._by_code()

    # -- what is what --------------------------------------------------------------

    def _methods(self, *unions: str) -> dict[str, Type]:
        found: dict[str, Type] = {}
        for union in unions:
            made = self.types.get(union, {"any": []})
            for part in made.get("any", [made]):
                whole = self.types[part] if isinstance(part, str) else part
                found[whole["fields"]["method"]["is"]] = part
        return found

    def _by_code(self) -> dict[int, Type]:
        """The error responses that the revision has a type of their own for."""
        found: dict[int, Type] = {}
        for name, made in self.types.items():
            fields = made.get("fields", {}) if isinstance(made, Mapping) else {}
            if "error" in fields and isinstance(fields["error"], Mapping):
                for part in fields["error"].get("all", ()):
                    if isinstance(part, Mapping):
                        found[part["fields"]["code"]["is"]] = name
            elif isinstance(fields.get("code"), Mapping):
                found[fields["code"]["is"]] = {"fields": {"error": name}}
        return found

    def _first(self, *names: str) -> str:
        return next(name for name in names if name in self.types)

    def request(self, sender: Sender, method: str) -> Type:
        """The type of a request, KeyError if this side has none of this method."""
        return {"all": ["JSONRPCRequest", self.sends[sender][method]]}

    def notification(self, sender: Sender, method: str) -> Type:
        """The type of a notification, KeyError if this side has none of this method."""
        return {"all": ["JSONRPCNotification", self.sends[sender][method]]}

    def result(self, sender: Sender, method: str) -> Type:
        """The type of the answer to a request of this sender."""
        stem = str(self.sends[sender][method]).removesuffix("Request")
        response = self._first("JSONRPCResultResponse", "JSONRPCResponse")
        if f"{stem}ResultResponse" in self.types:
            return {"all": [response, f"{stem}ResultResponse"]}
        result = self._first(f"{stem}Result", "EmptyResult")
        return {"all": [response, {"fields": {"result": result}}]}

    def error(self, code: int, *, anonymous: bool = False) -> Type:
        """The type of an error; an anonymous one answers what had no readable id."""
        name = self._first("JSONRPCErrorResponse", "JSONRPCError")
        fields = self.types[name]["fields"]
        if anonymous:
            fields = {key: made for key, made in fields.items() if key.rstrip("?") != "id"}
        special = self._errors.get(code)
        return {"all": [{"fields": fields}, *([special] if special else [])]}

    # -- checking ------------------------------------------------------------------

    def faults(self, value: object, made: Type, where: str = "") -> list[str]:
        """Everything that is wrong with a value of this type, each fault with its place."""
        return self._check(value, [made], where)

    def _check(self, value: object, types: Iterable[Type], where: str) -> list[str]:
        """Check a value that is of all these types at once."""
        plain: list[Type] = []
        queue = list(types)
        while queue:
            made = queue.pop(0)
            if isinstance(made, str):
                if made in self.types:
                    queue.insert(0, self.types[made])
                else:
                    plain.append(made)
            elif "all" in made:
                queue[:0] = made["all"]
            elif "any" in made:
                tried = (self._check(value, [*plain, part, *queue], where) for part in made["any"])
                return min(tried, key=len)
            else:
                plain.append(made)
        faults = [f"{where}: {fault}" for made in plain if (fault := _fault(value, made))]
        shapes = [made for made in plain if isinstance(made, Mapping)]
        if isinstance(value, dict):
            faults += self._object(value, shapes, where)
        elif isinstance(value, list):
            for number, item in enumerate(value):
                held = [made["list"] for made in shapes if "list" in made]
                faults += self._check(item, held, f"{where}[{number}]")
        return faults

    def _object(
        self, value: Mapping[str, object], shapes: list[Mapping[str, Any]], where: str
    ) -> list[str]:
        listed: dict[str, list[Type]] = {}
        for made in shapes:
            for name, kind in made.get("fields", {}).items():
                listed.setdefault(name.rstrip("?"), []).append(kind)
        closed = any("fields" in made for made in shapes) and _last(where) not in OPEN
        more = [made["more"] for made in shapes if "more" in made]
        faults = [
            f"{where}.{name}: missing"
            for made in shapes
            for name in made.get("fields", {})
            if not name.endswith("?") and name not in value
        ]
        for key, item in value.items():
            place = f"{where}.{key}"
            if key not in listed and closed:
                faults.append(f"{place}: not a field of it")
            else:
                faults += self._check(item, listed.get(key, more), place)
        return faults


def _last(where: str) -> str:
    return where.rpartition(".")[2]


def _fault(value: object, made: Type) -> str | None:
    """What is wrong with the value itself, not with what it holds."""
    if isinstance(made, str):
        kind, _, detail = made.partition(" ")
        if not _PRIMITIVES[kind](value):
            return f"not of type {kind}"
        if kind == "string":
            return f"no {detail}" if detail and not _FORMATS[detail](value) else None
        return f"not in {detail}" if detail and not _in_range(value, detail) else None
    if "is" in made:
        return None if value == made["is"] else f"not {made['is']!r}"
    if "one" in made:
        return None if value in made["one"] else f"none of {made['one']}"
    if "list" in made:
        if not isinstance(value, list):
            return "not of type array"
        most = made.get("most")
        return None if most is None or len(value) <= most else f"more than {most} items"
    return None if isinstance(value, dict) else "not of type object"


def _in_range(value: Any, bounds: str) -> bool:
    least, _, most = bounds.partition("..")
    return (not least or value >= float(least)) and (not most or value <= float(most))


@attrs.define
class Conversation:
    """The messages of one connection in their order, each judged as it is said."""

    revision: str
    faults: list[str] = attrs.field(factory=list[str])
    """Everything that was wrong so far."""
    judged: int = 0
    """Messages that were looked at."""
    wrong: int = 0
    """Those of them with a fault, or with several."""
    said: set[tuple[Sender, str]] = attrs.field(factory=set[tuple[Sender, str]])
    """Who has sent what: methods, and `result`s and `error`s by what they answer."""
    unreadable: int = 0
    """Errors that are owed to messages that cannot be read: without an id, or with this one."""
    unreadable_id: int | None = None
    _asked: dict[tuple[Sender, object], str] = attrs.field(factory=dict[tuple[Sender, object], str])

    def finish(self) -> None:
        """The connection is over; what was asked in it is answered no more."""
        self._asked.clear()

    @property
    def official(self) -> Official:
        """The types of the revision."""
        return official(self.revision)

    def hear(self, sender: Sender, message: object, *, judge: bool = True) -> None:
        """Take the next message, or batch of them.

        Args:
            sender: who says it.
            message: as decoded from JSON.
            judge: False for what a test says wrong on purpose.
        """
        if not isinstance(message, list):
            faults = self._faults(sender, message)
        elif message and "JSONRPCBatchRequest" in self.official.types:
            for item in message:
                self.hear(sender, item, judge=judge)
            return
        else:
            faults = [": a batch"]
            for item in message:
                self._faults(sender, item)
        if judge:
            self.judged += 1
            self.wrong += bool(faults)
            told = json.dumps(message)[:300]
            self.faults += [f"{self.revision} {sender} {fault} in {told}" for fault in faults]

    def _faults(self, sender: Sender, message: object) -> list[str]:
        if not isinstance(message, dict):
            return [": not an object"]
        id_ = message.get("id")
        if not message.keys() & {"result", "error"} or "method" in message:
            return self._called(sender, str(message.get("method")), message)
        other: Sender = "server" if sender == "client" else "client"
        if "error" in message and self.unreadable and id_ in (None, self.unreadable_id):
            self.unreadable -= 1
            self.said.add((sender, "error"))
            return self._error(message, anonymous=id_ is None)
        asked = self._asked.pop((other, id_), None)
        if asked is None:
            return [".id: answers nothing"]
        self.said.add((sender, f"{'error' if 'error' in message else 'result'} {asked}"))
        if "error" in message:
            return self._error(message)
        if asked not in self.official.sends[other]:
            return [f": a result of {asked}, which the revision does not have"]
        return self.official.faults(message, self.official.result(other, asked))

    def _called(self, sender: Sender, method: str, message: dict[str, Any]) -> list[str]:
        self.said.add((sender, method))
        if "id" in message:
            self._asked[sender, message["id"]] = method
        if method not in self.official.sends[sender]:
            return [f".method: the {sender} has no {method}"]
        kind = self.official.request if "id" in message else self.official.notification
        return self.official.faults(message, kind(sender, method))

    def _error(self, message: dict[str, Any], *, anonymous: bool = False) -> list[str]:
        body = message["error"]
        code = body.get("code") if isinstance(body, dict) else None
        return self.official.faults(
            message, self.official.error(code if isinstance(code, int) else 0, anonymous=anonymous)
        )


@functools.cache
def official(revision: str) -> Official:
    """The types of a revision, read once."""
    return Official(revision)
