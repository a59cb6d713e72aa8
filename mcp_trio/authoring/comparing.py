"""What publishing B over A would change: added, removed, renamed, and what else, key by key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import attrs

from mcp_trio.authoring.faults import AuthoringError
from mcp_trio.authoring.sources import Source
from mcp_trio.authoring.values import as_list, as_object
from mcp_trio.catalog.operation import VIEW_KEYS, canonical
from mcp_trio.json_schema import pointer
from mcp_trio.wire import JSONObject

MAX_PLACES = 50
"""Places told of one operation."""


@attrs.frozen(kw_only=True)
class Change:
    """One operation that both have, in different versions."""

    operation_id: str
    name: str
    """Its name in B."""
    keys: tuple[str, ...]
    """The keys of the view that differ."""
    places: tuple[tuple[str, str], ...]
    """Pointers into the view, with `added`, `removed` or `changed`."""


@attrs.frozen(kw_only=True)
class Comparison:
    """All differences, by operation id. True if there are any."""

    added: tuple[tuple[str, str], ...]
    """Operation id and name."""
    removed: tuple[tuple[str, str], ...]
    renamed: tuple[tuple[str, str, str], ...]
    """Operation id, the name in A, the name in B. It may be among the changed, too."""
    changed: tuple[Change, ...]
    same: int
    """How many are the same in both."""

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.renamed or self.changed)

    def as_json(self) -> JSONObject:
        """For programs."""
        return {
            "added": [{"operation_id": i, "name": n} for i, n in self.added],
            "removed": [{"operation_id": i, "name": n} for i, n in self.removed],
            "renamed": [{"operation_id": i, "from": a, "to": b} for i, a, b in self.renamed],
            "changed": [
                {
                    "operation_id": each.operation_id,
                    "name": each.name,
                    "keys": list(each.keys),
                    "places": [{"pointer": p, "how": how} for p, how in each.places],
                }
                for each in self.changed
            ],
            "same": self.same,
        }

    def as_text(self) -> str:
        """For people."""
        lines = [f"+ {name} ({operation_id})" for operation_id, name in self.added]
        lines += [f"- {name} ({operation_id})" for operation_id, name in self.removed]
        lines += [f"> {old} -> {new} ({operation_id})" for operation_id, old, new in self.renamed]
        marks = {"added": "+", "removed": "-", "changed": "~"}
        for each in self.changed:
            lines.append(f"~ {each.name} ({each.operation_id}): {', '.join(each.keys)}")
            lines += [f"    {marks[how]} {place}" for place, how in each.places]
        lines.append(
            f"{len(self.added)} added, {len(self.removed)} removed, {len(self.renamed)} renamed, "
            f"{len(self.changed)} changed, {self.same} the same"
        )
        return "\n".join(lines)


def views_by_id(source: Source) -> dict[str, JSONObject]:
    """The views of a source by operation id.

    Raises:
        AuthoringError: something in it is no view, or two have one id.
    """
    if source.findings:
        raise AuthoringError(source.findings[0].as_text())
    found: dict[str, JSONObject] = {}
    for entry in source.entries:
        if not entry.operation_id:
            told = entry.finding("fault", "is no operation", "Run mcp-trio check on it.")
            raise AuthoringError(told.as_text())
        if entry.operation_id in found:
            told = entry.finding(
                "fault", "another operation has the operation_id", "Run mcp-trio check on it."
            )
            raise AuthoringError(told.as_text())
        found[entry.operation_id] = as_object(entry.view)
    return found


def compare_views(a: Mapping[str, JSONObject], b: Mapping[str, JSONObject]) -> Comparison:
    """Compare views by operation id."""
    both = sorted(a.keys() & b.keys())
    changed = [_change(operation_id, a[operation_id], b[operation_id]) for operation_id in both]
    renamed = [(i, _name(a[i]), _name(b[i])) for i in both if a[i].get("name") != b[i].get("name")]
    different = [each for each in changed if each is not None]
    touched = {each.operation_id for each in different} | {each[0] for each in renamed}
    return Comparison(
        added=tuple((i, _name(b[i])) for i in sorted(b.keys() - a.keys())),
        removed=tuple((i, _name(a[i])) for i in sorted(a.keys() - b.keys())),
        renamed=tuple(renamed),
        changed=tuple(different),
        same=len(both) - len(touched),
    )


def _name(view: JSONObject) -> str:
    return str(view.get("name", ""))[:200]


def _change(operation_id: str, a: JSONObject, b: JSONObject) -> Change | None:
    keys = [key for key in dict.fromkeys([*VIEW_KEYS, *a, *b]) if not _same(a.get(key), b.get(key))]
    keys = [key for key in keys if key != "name"]
    if not keys:
        return None
    places: list[tuple[str, str]] = []
    for key in keys:
        for place in _places(a.get(key), b.get(key), (key,)):
            if len(places) == MAX_PLACES:
                break
            places.append(place)
    return Change(operation_id=operation_id, name=_name(b), keys=tuple(keys), places=tuple(places))


def _same(a: object, b: object) -> bool:
    # Python takes 1, 1.0 and true for equal.
    return canonical(a) == canonical(b)


def _places(a: object, b: object, path: Sequence[str | int]) -> Iterator[tuple[str, str]]:
    """Where two values differ, as deep as both have the same shape."""
    if _same(a, b):
        return
    ones, others = as_list(a), as_list(b)
    if isinstance(a, dict) and isinstance(b, dict):
        one, other = cast("JSONObject", a), cast("JSONObject", b)
        for key in dict.fromkeys([*one, *other]):
            if key not in one or key not in other:
                yield pointer([*path, key]), "added" if key in other else "removed"
            else:
                yield from _places(one[key], other[key], [*path, key])
    elif ones and len(ones) == len(others):
        pairs = zip(ones, others, strict=True)
        for index, (one_item, other_item) in enumerate(pairs):
            yield from _places(one_item, other_item, [*path, index])
    else:
        yield pointer(path), "changed"
