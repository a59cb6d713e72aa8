"""What every importer gives: views, what was left out and why, and what to configure.

Names and identities are made here, so that they are made the same way from every source.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import lru_cache

import attrs

from mcp_trio.authoring.checking import Checker
from mcp_trio.authoring.lint import MAX_NAME
from mcp_trio.authoring.sources import Entry
from mcp_trio.authoring.stand_ins import StandIns
from mcp_trio.catalog.operation import FORMAT
from mcp_trio.wire import JSONObject

MAX_TEXT = 1_000
"""Characters of a description that is taken over."""


@attrs.frozen(kw_only=True)
class ImportOptions:
    """What to import from whatever source; each importer adds what its own has."""

    connection: str | None = None
    """Name of the connection; made from the source if None."""
    prefix: str = ""
    """Of every name."""
    include: Sequence[str] = ()
    """A kind of filter that the importer has, `=` and a pattern; of each kind one has to fit."""
    exclude: Sequence[str] = ()
    """The same; none may fit."""
    schema_bytes: int = 16_384
    """Bytes of one schema, about."""
    output_schemas: bool = True
    """Whether answers are described."""


class NotImportableError(Exception):
    """One operation that cannot be imported; the text is the reason."""


@attrs.frozen
class Left:
    """Something that was left out, or decided, and why."""

    what: str
    """The operation, as the source calls it."""
    reason: str

    def as_json(self) -> JSONObject:
        """For programs."""
        return {"what": self.what, "reason": self.reason}


@attrs.define(kw_only=True)
class Imported:
    """What an import made."""

    views: list[JSONObject] = attrs.field(factory=list["JSONObject"])
    refused: list[Left] = attrs.field(factory=list["Left"])
    """Operations that were not imported."""
    notes: list[Left] = attrs.field(factory=list["Left"])
    """What was decided about operations that were."""
    filtered: int = 0
    """Operations that nobody asked for."""
    settings: str = ""
    """TOML that the service needs, as a suggestion."""

    def take(self, what: str, make: Callable[[], tuple[JSONObject, list[str]] | None]) -> None:
        """Take one operation in.

        Args:
            what: the operation, as the source calls it.
            make: makes the view, with notes; None if nobody asked for the operation. May raise
                `NotImportableError`.
        """
        try:
            made = make()
        except NotImportableError as error:
            self.refused.append(Left(what, str(error)))
            return
        if made is None:
            self.filtered += 1
            return
        view, notes = made
        self.views.append(view)
        self.notes += [Left(what, note) for note in notes]

    def document(self) -> JSONObject:
        """The views as a document of the format."""
        return {"format": FORMAT, "operations": self.views}

    def keep_sound(self) -> None:
        """Move what the server would not serve from the views to the refused."""
        checker = Checker(StandIns())
        sound: list[JSONObject] = []
        for view in self.views:
            entry = Entry(view=view, source="")
            fault = next((f for f in checker.entry(entry) if f.severity == "fault"), None)
            if fault is None:
                sound.append(view)
            else:
                place = f"{fault.pointer}: " if fault.path else ""
                self.refused.append(Left(str(view["operation_id"]), f"{place}{fault.reason}"))
        self.views = sound


class Names:
    """Names of tools: readable, unique, at most 64 characters.

    Args:
        prefix: what every name begins with.
    """

    def __init__(self, prefix: str = "") -> None:
        self._prefix = snake(prefix) + "_" if snake(prefix) else ""
        self._taken: dict[str, int] = {}
        """Names that are given, each with the number that comes next after it."""

    def make(self, *wishes: str) -> tuple[str, str | None]:
        """Make a name of the first wish that is free; tell why if it is not the first.

        Args:
            wishes: from the best to the plainest; at least one gives letters.
        """
        made = [self._fit(wish) for wish in wishes if snake(wish)] or [self._fit("operation")]
        for name in made:
            if name not in self._taken:
                break
        else:
            name = self._numbered(made[0])
        self._taken.setdefault(name, 2)
        if name == made[0]:
            return name, None
        return name, f"is named {name}: {made[0]} is the name of another operation"

    def _fit(self, wish: str) -> str:
        name = self._prefix + snake(wish)
        if not name[0].isalpha():
            name = f"call_{name}"
        if len(name) <= MAX_NAME:
            return name
        cut = name[:MAX_NAME]
        at_word = cut.rpartition("_")[0]
        return (
            at_word if len(at_word) > MAX_NAME // 2 and name[MAX_NAME] != "_" else cut.rstrip("_")
        )

    def _numbered(self, name: str) -> str:
        while True:
            end = f"_{self._taken[name]}"
            self._taken[name] += 1
            candidate = name[: MAX_NAME - len(end)].rstrip("_") + end
            if candidate not in self._taken:
                return candidate


_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")


def snake(text: str) -> str:
    """The words of a text, in lower case, joined by underscores."""
    return "_".join(word.lower() for word in _WORDS.findall(text))


def identity(taken: dict[str, int], *parts: str) -> str:
    """An operation id that nobody has yet.

    Args:
        taken: those that somebody has, each with the number that comes next after it.
        parts: what it is made of.
    """
    made = ".".join(part for part in parts if part)[:200]
    found, number = made, taken.get(made, 2)
    while found in taken:
        end = f"~{number}"
        found, number = made[: 200 - len(end)] + end, number + 1
    taken[made] = number
    taken.setdefault(found, 2)
    return found


def words(text: object) -> str:
    """A text of the source as one that a model reads: bounded, without markup and control."""
    return _words(text[: MAX_TEXT * 8]) if isinstance(text, str) else ""


_MARKUP = re.compile(r"<[a-zA-Z/!][^<>]{0,200}>")
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
"""What is not seen and may still be read: control, and marks of direction and width."""


@lru_cache(maxsize=32_768)
def _words(text: str) -> str:
    # Descriptions say the same things over and over.
    plain = _CONTROL.sub(" ", _MARKUP.sub(" ", text))
    plain = re.sub(r" ?\n ?", "\n", re.sub(r" {2,}", " ", plain))
    return re.sub(r"\n{3,}", "\n\n", plain).strip()


def shortened(text: str, most: int = MAX_TEXT) -> str:
    """The text, cut at the end of a sentence or a word if it is longer."""
    if len(text) <= most:
        return text
    cut = text[: most - 1]
    sentence = max(cut.rfind(". "), cut.rfind(".\n"))
    if sentence > most // 2:
        return cut[: sentence + 1]
    return cut[: max(cut.rfind(" "), most // 2)].rstrip(" ,;:") + "…"


def argument_name(wish: str, taken: Sequence[str] | set[str]) -> str:
    """A name for an argument that every client takes."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", wish).strip("_")[:60] or "value"
    found, number = name, 2
    while found in taken:
        found, number = f"{name}_{number}", number + 1
    return found


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def argument(name: str) -> str:
    """The expression that reads an argument."""
    return member("args", name)


def member(expression: str, name: str) -> str:
    """The expression that reads a member of what an expression gives."""
    if _PLAIN.fullmatch(name):
        return f"{expression}.{name}"
    return f"{expression}.{json.dumps(name)}"
