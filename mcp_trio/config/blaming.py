"""Which keys of a section are to blame that nothing can be made of it.

Whoever makes something of a section tells the first thing that is wrong, and seldom by its key.
Here the values are put one after the other into a section of which something can be made; the
one with which nothing can is to blame, and is left out again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar, cast

import attrs

from mcp_trio.config.faults import Path
from mcp_trio.errors import ConfigurationError

_SOUND = (
    "https://sound.example/sound.json",
    "sound.example:443",
    "postgresql://sound.example/sound",
    "sound",
)
"""What stands in for a text that has to be there: one of them fits wherever one is wanted."""
_WORD = re.compile(r"\w+")

S = TypeVar("S")


def blamed(section: S, make: Callable[[S], object]) -> Iterator[tuple[Path, str]]:
    """Tell everything for which nothing can be made of a section.

    Args:
        section: an instance of a class of settings.
        make: makes something of one, or raises `ConfigurationError`.

    Yields:
        The key below the section, none if it is the section as a whole, and the reason.
    """
    search = _Search[S](make)
    whole = search.trouble(section)
    if whole is None:
        return
    values = _given(section)
    sound = search.sound(section, values)
    if not sound or search.missing == whole:
        # Something is missed, or there is nothing to compare with.
        yield (), whole
    # What has to be there comes first: what else may be there depends on it.
    for name in sorted(values, key=lambda name: not _is_required(section, name)) if sound else ():
        if name not in search.told:
            yield from search.put(sound, name, values)


@attrs.define
class _Search(Generic[S]):
    """What was put in so far, and fits."""

    make: Callable[[S], object]
    missing: str | None = None
    """What is told of a section with nothing in it."""
    told: set[str] = attrs.field(factory=set[str])
    """Values that were told together with others."""

    def trouble(self, section: S) -> str | None:
        """Why nothing can be made of a section."""
        try:
            self.make(section)
        except ConfigurationError as error:
            return str(error)
        return None

    def sound(self, section: S, values: Mapping[str, object]) -> list[S]:
        """Sections of which something can be made, with as little in them as can be."""
        required = [name for name in values if _is_required(section, name)]
        bare = _with(section, {**_defaults(section), **dict.fromkeys(required, _SOUND[0])})
        bases = [_with(bare, dict.fromkeys(required, each)) for each in _SOUND]
        sound = [each for each in bases if self.trouble(each) is None]
        if sound:
            return sound
        self.missing = self.trouble(bases[0])
        named = _WORD.findall(self.missing or "")
        tried = [{name: value} for name, value in values.items() if name in named]
        kinds = {field.name: str(field.type) for field in attrs.fields(cast("Any", type(section)))}
        absent = [name for name in named if kinds.get(name) == "str | None"]
        tried += [{name: each} for name in absent for each in _SOUND]
        rest = (_with(bases[0], each) for each in tried)
        return [each for each in rest if self.trouble(each) is None][:1]

    def put(
        self, sound: list[S], name: str, values: Mapping[str, object]
    ) -> list[tuple[Path, str]]:
        """Put a value into all that is sound, and tell what is wrong if it fits into none.

        Args:
            sound: put in place where the value fits.
            name: of the value.
            values: all of them; two may go together only.
        """
        value = values[name]
        for more in ({}, *({other: values[other]} for other in values if other != name)):
            fit = [_with(each, {name: value, **more}) for each in sound]
            fit = [each for each in fit if self.trouble(each) is None]
            if fit:
                sound[:] = fit
                return []
        base = sound[0]
        reason = self.trouble(_with(base, {name: value})) or ""
        left = [key for key in values if not _is_required(base, key) and key != name]
        named = set(_WORD.findall(reason))
        others = {key for key in left if key in named and getattr(base, key) != values[key]}
        pair = {name: value, **{other: values[other] for other in others}}
        together = self.trouble(_with(base, pair))
        if others and together not in {None, reason}:
            # The first one misses the other, and that is not what is wrong with them.
            self.told |= others
            return [((), together or reason)]
        if isinstance(value, dict):
            return self._items(sound, name, cast("dict[str, object]", value)) or [((name,), reason)]
        if attrs.has(type(value)):
            return [((name, *self._inner(base, name, value, reason)), reason)]
        return [((name,), reason)]

    def _items(
        self, sound: list[S], name: str, items: Mapping[str, object]
    ) -> list[tuple[Path, str]]:
        each_by_itself = (
            ((name, key), self.trouble(_with(sound[0], {name: {key: item}})))
            for key, item in items.items()
        )
        return [(path, reason) for path, reason in each_by_itself if reason is not None]

    def _inner(self, base: S, name: str, value: object, reason: str) -> Path:
        """The key in a section within, without which, or with another value of which, it fits."""
        named = _WORD.findall(reason)
        given = sorted(_given(value), key=lambda key: key not in named)
        defaults = _defaults(value)
        for key in given:
            others = [defaults[key]] if key in defaults else []
            for other in (*others, *(_SOUND if key in named else ())):
                if self.trouble(_with(base, {name: _with(value, {key: other})})) is None:
                    return (key,)
        return ()


def _with(section: S, values: Mapping[str, object]) -> S:
    return cast("S", attrs.evolve(cast("Any", section), **values))


def _given(section: object) -> dict[str, object]:
    """The values that are not their defaults, by key."""
    fields = attrs.fields(cast("Any", type(section)))
    held = {field.name: getattr(section, field.name) for field in fields}
    defaults = _defaults(section)
    return {key: value for key, value in held.items() if defaults.get(key, held) != value}


def _defaults(section: object) -> dict[str, object]:
    found: dict[str, object] = {}
    for field in attrs.fields(cast("Any", type(section))):
        default: Any = field.default
        if default is not attrs.NOTHING:
            factory: Any = getattr(default, "factory", None)
            found[field.name] = default if factory is None else factory()
    return found


def _is_required(section: object, name: str) -> bool:
    return name not in _defaults(section)
