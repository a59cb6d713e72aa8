"""Following `$ref` through the documents of a description, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast
from urllib.parse import quote

import attrs

from mcp_trio.authoring.faults import AuthoringError
from mcp_trio.authoring.fetching import Library
from mcp_trio.authoring.imports import NotImportableError
from mcp_trio.authoring.values import as_list, as_object
from mcp_trio.wire import JSONObject

MAX_HOPS = 30
"""References that lead to references."""


@attrs.frozen
class Spot:
    """A value, and where it stands, which is what references in it are relative to."""

    value: object
    address: str
    """Of the document."""
    fragment: str = ""
    """JSON Pointer into the document, where it was reached by a reference."""

    def child(self, value: object) -> Spot:
        """A value inside of it."""
        return Spot(value, self.address)

    def get(self, key: str) -> Spot:
        """What stands under a key; None if nothing does."""
        return self.child(self.held.get(key))

    @property
    def held(self) -> JSONObject:
        """The object it is; an empty one if it is none."""
        return as_object(self.value)

    @property
    def items(self) -> list[Spot]:
        """The items of the array it is; none if it is none."""
        return [self.child(item) for item in as_list(self.value)]


class References:
    """Resolves references of one description."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._known: dict[tuple[str, str], object] = {}

    def resolve(self, spot: Spot) -> Spot:
        """Follow the references of a spot to what is none.

        Raises:
            NotImportableError: one leads nowhere, elsewhere, or in a circle.
        """
        for _ in range(MAX_HOPS):
            reference = spot.held.get("$ref")
            if not isinstance(reference, str):
                return spot
            spot = self.target(reference, spot.address)
        raise NotImportableError(f"more than {MAX_HOPS} references follow each other")

    def anchored(self, spot: Spot) -> JSONObject:
        """The object of a spot, to be put anywhere: its references lead where they led."""
        if spot.address == self._library.root:
            return spot.held
        return as_object(self._anchored(spot.held, spot.address))

    def _anchored(self, value: object, address: str) -> object:
        if isinstance(value, list):
            return [self._anchored(item, address) for item in cast("list[object]", value)]
        if not isinstance(value, dict):
            return value
        made: JSONObject = {}
        for key, child in cast("JSONObject", value).items():
            if key == "$ref" and isinstance(child, str):
                place, fragment = self._library.join(address, child)
                made[key] = f"{place}#{quote(fragment, safe='/~')}"
            else:
                made[key] = self._anchored(child, address)
        return made

    def target(self, reference: str, base: str) -> Spot:
        """What one reference leads to.

        Raises:
            NotImportableError: it leads nowhere, or elsewhere.
        """
        address, fragment = self._library.join(base, reference)
        key = (address, fragment)
        if key not in self._known:
            try:
                document = self._library.document(address)
            except AuthoringError as error:
                raise NotImportableError(f"$ref to {reference[:120]!r}: {error}") from error
            self._known[key] = _at(document.value, fragment, reference)
        return Spot(self._known[key], address, fragment)


def _at(value: object, fragment: str, reference: str) -> object:
    if fragment and not fragment.startswith("/"):
        raise NotImportableError(f"$ref to {reference[:120]!r}: names of places are not followed")
    for part in fragment.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, Mapping) and key in value:
            value = cast("JSONObject", value)[key]
        elif (
            isinstance(value, list)
            and key.isdecimal()
            and int(key) < len(cast("list[object]", value))
        ):
            value = cast("list[object]", value)[int(key)]
        else:
            raise NotImportableError(f"$ref to {reference[:120]!r} leads nowhere")
    return value
