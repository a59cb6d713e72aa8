"""How much work an engine may have with one value, told from the schema and the value.

An engine follows each reference anew. Where references double with each level of the value, a
value of thirty levels is a page of text and a billion looks. How deep a value is only it can tell,
so it is walked before an engine sees it: each place once, together with the schemas that judge it
and how often each of them does. Places of one kind (the items of a list, the values below names
that no schema knows) are walked together, so that a long list costs little more than its items.

The work told is never less than what an engine does that tells every fault, and often more than
one does that stops at the first. One unit is one look of the fast engine, about 40 ns.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import cast

import attrs

from mcp_trio.json_schema_effort import Effort
from mcp_trio.json_schema_looks import Parts
from mcp_trio.json_schema_nodes import (
    FAR,
    FAR_COST,
    LARGE,
    NAMES,
    OTHERS,
    Kind,
    Node,
    known,
    read,
    slow,
    within,
)
from mcp_trio.wire.basic import JSONObject

MAX_STEPS = 50_000
"""Schemas that a walk may meet, each once for each kind of place."""
SMALL = 32
"""Units at each place that are as good as none: a message of so many places took longer to read."""
MAX_PLAIN_STEPS = 5_000
"""Steps to find out whether a schema is plain; one that takes more is not."""

_PATTERNS = 8
"""Patterns for one text that are as good as none."""
_MANY = 32
"""What comparing a large integer with the others of a list costs more than one look at it."""
_KNOWN = 16
"""Names that are put together in one step."""
_MATCHED = 16
"""Patterns that are weighed for a length in one step."""
_ENDLESS = 1 << 60
"""Looks that are as good as more of them."""
_Times = dict[Node, int]
"""How often each schema judges a place."""
_Efforts = list[tuple[Effort, int]]


@attrs.frozen(kw_only=True)
class Work:
    """What a value may cost."""

    units: int
    """Where they are more than was asked for, the walk ended there."""
    faults: int
    """Rules that may be broken."""
    places: int
    """Values in the value that some schema judges."""
    fair: int
    """Units that a value of this size may cost with any schema."""


class Costs:
    """Tells what values cost with one schema. Immutable once made."""

    def __init__(self, parts: Parts, schema: JSONObject) -> None:
        """Read a schema of which `looks` is known to be finite."""
        nodes = read(parts, schema)
        self._root = nodes[0]
        self._plain = _are_plain(nodes)
        self._calculates = any(node.numbers or node.divides or node.unique for node in nodes)

    def are_low(self, value: object) -> bool:
        """Tell in little time whether a value costs little for its size; for most it is true."""
        return self._plain and not (self._calculates and _has_slow(value))

    def of(self, value: object, most: int) -> Work:
        """Walk a value.

        Args:
            value: of JSON.
            most: units beyond what is fair at which the walk ends.
        """
        units = faults = places = characters = steps = 0
        todo: list[tuple[_Times, list[object]]] = [({self._root: 1}, [value])]
        while todo and units <= most + SMALL * places + characters:
            begun, values = todo.pop()
            place = _Place(begun)
            if steps > MAX_STEPS:
                units = most + SMALL * (places + len(values)) + characters + 1
            places += len(values)
            faults += place.faults * len(values)
            units += place.weight * len(values)
            told = place.judge(values)
            units += told.units
            steps += told.steps
            characters += told.characters
            inner = [(place.led(kind), found) for kind, found in told.inner.items()]
            todo.extend((times, found) for times, found in inner if times)
            steps += place.steps
        fair = SMALL * places + characters
        return Work(units=units, faults=faults, places=places, fair=fair)


@attrs.define
class _Told:
    """What was found in the values of one kind."""

    units: int = 0
    characters: int = 0
    """Of the texts that are held to patterns."""
    steps: int = 0
    inner: dict[Kind, list[object]] = attrs.Factory(dict[Kind, list[object]])
    """The values within, by what judges them."""


class _Place:
    """Places of one kind, with the schemas that judge them."""

    def __init__(self, begun: _Times) -> None:
        self.times = _beside(begun)
        times = self.times.items()
        self.steps = len(times)
        self.weight = sum(node.weight * many for node, many in times)
        self.faults = sum(node.faults * many for node, many in times)
        self.named = [(each, many) for node, many in times for each in node.named]
        self._divides = sum(many for node, many in times if node.divides)
        self._rules = self._divides + sum(node.numbers * many for node, many in times)
        self._efforts = [(each, many) for node, many in times for each in node.efforts]
        self._leads = [(node, many) for node, many in times if node.leads]
        self._named: dict[str, list[tuple[Node | None, int]]] = {}
        for node, many in self._leads:
            self.steps += len(node.properties) // _KNOWN
            for name, below in node.properties.items():
                self._named.setdefault(name, []).append((below, many))
        self._broad = [
            (node, many) for node, many in self._leads if node.any_name or node.patterned
        ]
        self._first = max((len(node.first) for node in self.times), default=0)
        self._unique = sum(many for node, many in times if node.unique)
        self._by_name = any(node.names for node in self.times)

    @property
    def leads(self) -> bool:
        """Whether anything is said of what is within."""
        return bool(self._leads or self._by_name)

    @property
    def light(self) -> bool:
        """Whether little is done at such a place, whatever is there."""
        efforts = [*self._efforts, *self.named]
        many = sum(many for _, many in efforts)
        return self.weight <= SMALL and many <= _PATTERNS and all(e.light for e, _ in efforts)

    def judge(self, values: list[object]) -> _Told:
        """Tell what the values cost beyond looking at them, and sort what is within."""
        told = _Told()
        # Most lists are long and of one type, and nothing is to be done with most types.
        types = set(map(type, values))
        if str in types and self._efforts:
            self._match(self._efforts, (value for value in values if type(value) is str), told)
        if self._rules and not types.isdisjoint((int, float)) and not _are_small(values, types):
            told.units += sum(self._number(value) for value in _slow_ones(values))
        if dict in types and (self._leads or self.named or self._by_name):
            for value in values:
                if type(value) is dict:
                    self._below(cast("JSONObject", value), told)
        if list in types and (self._leads or self._unique):
            for value in values:
                if type(value) is list:
                    self._within(cast("list[object]", value), told)
        return told

    def _match(self, efforts: _Efforts, texts: Iterable[str], told: _Told) -> None:
        """Count what matching some texts costs."""
        lengths = Counter(map(len, texts))
        told.steps += len(lengths) * len(efforts) // _MATCHED
        for length, times in lengths.items():
            told.characters += length * times
            told.units += times * sum(many * each.of(length) for each, many in efforts)

    def _number(self, value: float) -> int:
        """What a number costs beyond a look."""
        if isinstance(value, int):
            return self._rules * slow(value)
        return self._divides * FAR_COST

    def _below(self, held: JSONObject, told: _Told) -> None:
        """Sort the values of an object by what judges them."""
        inner = told.inner
        if self.named:
            self._match(self.named, held, told)
        if self._by_name:
            inner.setdefault(NAMES, []).extend(held)
        if self._leads:
            for name, value in held.items():
                kind = name if name in self._named else OTHERS
                if kind in inner:
                    inner[kind].append(value)
                else:
                    inner[kind] = [value]

    def _within(self, held: list[object], told: _Told) -> None:
        """Sort the items of a list by what judges them."""
        if self._leads:
            for number, value in enumerate(held[: self._first]):
                told.inner.setdefault(number, []).append(value)
            if len(held) > self._first:
                told.inner.setdefault(self._first, []).extend(held[self._first :])
        if self._unique:
            told.units += self._unique * _compared(held)

    def led(self, kind: Kind) -> _Times:
        """The schemas that judge the values of one kind."""
        led: _Times = {}
        for below, many in self._pairs(kind):
            self.steps += 1
            led[below] = led.get(below, 0) + many
        return led

    def _pairs(self, kind: Kind) -> Iterator[tuple[Node, int]]:
        if kind is NAMES:
            yield from ((below, many) for node, many in self.times.items() for below in node.names)
        elif isinstance(kind, int):
            for node, many in self._leads:
                first = node.first[kind : kind + 1]
                below = known(first) if first else node.items
                yield from ((each, many) for each in (*below, *node.every_item))
        else:
            named = self._named.get(cast("str", kind), [])
            yield from ((below, many) for below, many in named if below is not None)
            for node, many in self._broad:
                others = () if kind in node.properties else node.any_name
                yield from ((below, many) for below in (*others, *node.patterned))

    def kinds(self) -> Iterator[Kind]:
        """All kinds there may be."""
        yield from (OTHERS, NAMES)
        yield from range(self._first + 1)
        yield from self._named


def _beside(begun: _Times) -> _Times:
    """All that judges a place, with what first does, and how often."""
    times = dict(begun)
    queue = [(-node.rank, id(node), node) for node in times]
    heapq.heapify(queue)
    while queue:
        # Each is met before what is beside it, so it is known by then how often it is met.
        node = heapq.heappop(queue)[2]
        many = min(times[node], _ENDLESS) * (2 if node.unevaluated else 1)
        for other in node.beside:
            if other not in times:
                times[other] = 0
                heapq.heappush(queue, (-other.rank, id(other), other))
            times[other] += many
    return times


def _are_small(values: list[object], types: set[type]) -> bool:
    """Whether they are integers of a common size; most numbers are, and telling is fast."""
    if types != {int}:
        return False
    numbers = cast("list[int]", values)
    return min(numbers) > -LARGE and max(numbers) < LARGE


def _slow_ones(values: list[object]) -> Iterator[float]:
    """The numbers with which calculating takes long."""
    yield from _large_ones(values)
    for value in values:
        if type(value) is float and value and not 1 / FAR < abs(value) < FAR:
            yield value


def _has_slow(value: object) -> bool:
    level = [value]
    while level:
        types = set(map(type, level))
        numbers = not types.isdisjoint((int, float)) and not _are_small(level, types)
        if numbers and next(_slow_ones(level), None) is not None:
            return True
        level = within(level)
    return False


def _compared(values: list[object]) -> int:
    """What comparing the items of a list with each other costs."""
    units, level = 0, values
    while level:
        units += len(level) + sum(slow(value) * _MANY for value in _large_ones(level))
        level = within(level)
    return units


def _large_ones(values: list[object]) -> Iterator[int]:
    return (value for value in values if type(value) is int and not -LARGE < value < LARGE)


def _are_plain(nodes: list[Node]) -> bool:
    """Whether one schema at most leads on from each place, and no place has much to be done."""
    if not any(node.several for node in nodes):
        return all(_Place({node: 1}).light for node in nodes)
    steps = 0
    for start in {nodes[0], *(inner for node in nodes for inner in node.inner())}:
        place = _Place({start: 1})
        for kind in {*place.kinds()}:
            led = place.led(kind)
            below = _Place(led)
            steps += below.steps + 1
            leading = sum(many for node, many in led.items() if _Place({node: 1}).leads)
            if steps > MAX_PLAIN_STEPS or leading > 1 or not below.light:
                return False
        if not place.light:
            return False
    return True
