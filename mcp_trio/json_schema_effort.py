"""What a regular expression of a schema costs to match, told from its text.

An engine without backtracking does, for each character, one step for each place of the pattern
that it may be at: a few for most patterns, but ten thousand for `(a{1,100}){1,100}`, whose repeats
can divide a text in that many ways. So the places that may be live at once are counted. What
only backtracking can match (lookaround, backreferences) is told apart: it may read a text again
from each of its characters. One unit is what an engine needs for one look at one value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import attrs

from mcp_trio.json_schema_characters import ALL, Characters, characters
from mcp_trio.json_schema_patterns import members, plain, tokens

MAX_LIVE = 1_000_000
"""More places than that are as good as any."""

_FEW = 16
"""So many places at once make an automaton that is built once and then followed."""
_FOLLOWED = 16
"""Characters for one unit, where the automaton is followed."""
_BUILT = 4
"""Units to build one state of an automaton."""
_REREAD = 20
"""Characters that are read again, for one unit."""
_CAPTURED = 3
"""Units for each character where parts of the text are remembered."""
_NEAR = 64
"""So many places end soon enough."""
MAX_AGAIN = 32
"""Places at once in what may be read again: with more of them there is no bound."""
_WIDE = 4
"""Places in what stands for characters of more than one byte."""
_BACKTRACKS = re.compile(r"\(\?(?:[=!>(]|<[=!])|\\[1-9k]")
_AROUND = ("(?=", "(?!", "(?<=", "(?<!")
_WIDE_ESCAPES = {r"\p", r"\P", r"\u", r"\x", r"\W", r"\D", r"\S", r"\s"}
_EDGES = ("$", r"\b", r"\B")


@attrs.frozen
class Effort:
    """What one pattern costs."""

    live: int
    """Places at which it may be at once."""
    states: int
    """Places that it has."""
    again: int
    """Places at once in what may be read again from each character; 0 where nothing is."""
    far: bool = False
    """Whether what is read again has no end of its own."""
    captures: bool = False
    """Whether it remembers parts of the text, which takes the engine longer."""

    @property
    def light(self) -> bool:
        """Whether it costs little for each character of any text."""
        return self.live <= _FEW and not self.again

    @property
    def endless(self) -> bool:
        """Whether no bound is known for it."""
        return self.again > MAX_AGAIN

    @property
    def backtracks(self) -> int:
        """How often the engine may go back in one text before it gives up."""
        if self.again > _FEW:
            return 500
        if not self.far:
            return 200_000
        return 1_000 if self.captures else 10_000

    def of(self, length: int) -> int:
        """Units for a text of so many characters."""
        if self.live > _FEW:
            once = length * self.live
        else:
            once = length // _FOLLOWED + min(length, self.states) * _BUILT
        if self.captures:
            once = max(once, length * _CAPTURED)
        if self.again > _FEW:
            once = max(once, length * length * self.again)
        elif self.again and self.far:
            each = length * _CAPTURED if self.captures else length // _REREAD
            once = max(once, length * each)
        elif self.again:
            once = max(once, length * self.again * _BUILT)
        return once + 1


@attrs.define
class _Part:
    """A piece of a pattern."""

    states: int
    live: int
    """Places at once, if it is entered at one character only."""
    spread: int
    """If it is entered at one character, at so many of them is entered what comes after it."""
    length: int
    """Of the longest text that it matches."""
    least: int
    """Places until it may have matched."""
    first: Characters | None = None
    """The characters it may begin with; None where they are not known."""
    run: Characters | None = None
    """Where what comes next does not begin with one of these, it is entered once for all that."""
    empty: bool = False
    """Whether it may be empty."""
    exact: bool = True
    """Whether all it matches is as long."""
    endless: bool = False
    """Whether something in it repeats without end."""
    captures: bool = False

    @property
    def far(self) -> bool:
        """Whether it may read far."""
        return self.endless or self.states > _NEAR


class _Branch:
    """Alternatives that are being read, the last of them still open."""

    def __init__(self, opening: str) -> None:
        self.opening = opening
        self.parts: list[_Part] = []
        self.captures = opening == "(" or (
            opening.startswith(("(?<", "(?P<")) and (opening not in _AROUND)
        )
        self.held = False
        """Whether the open alternative begins with `^`."""
        self.backtracks = False
        """Whether something within needs backtracking."""
        self._done: list[_Part] = []
        self._loose = 0
        """Places of the alternatives that may begin anywhere."""

    def close(self) -> None:
        """End an alternative."""
        whole = _sequence(self.parts)
        if not self.held:
            self._loose += whole.least
        self._done.append(whole)
        self.parts, self.held = [], False

    def whole(self) -> _Part:
        """All alternatives as one piece."""
        done = self._done
        # Those of one length end where others of that length do.
        exact = [part.length for part in done if part.exact]
        same = len(exact) - len({*exact})
        return _Part(
            states=sum(part.states for part in done) + len(done) - 1,
            live=sum(part.live for part in done),
            spread=min(MAX_LIVE, sum(part.spread for part in done) - same),
            length=max(part.length for part in done),
            least=sum(part.least for part in done),
            first=_union(part.first for part in done),
            run=done[0].run if len(done) == 1 else None,
            empty=any(part.empty for part in done),
            exact=len({*exact}) == 1 and len(exact) == len(done),
            endless=any(part.endless for part in done),
            captures=self.captures or any(part.captures for part in done),
        )

    def live(self) -> int:
        """Places at once, where each alternative that is not held may begin anywhere."""
        return max(self._loose, self.whole().live)


def _sequence(parts: list[_Part]) -> _Part:
    whole = _Part(0, 0, 1, 0, 0, empty=True)
    firsts: list[Characters | None] = []
    for part in parts:
        whole.states += part.states
        whole.length += part.length
        whole.exact = whole.exact and part.exact
        whole.endless = whole.endless or part.endless
        whole.captures = whole.captures or part.captures
        # What begins in another way than what is repeated before it can begin at one place only.
        once = whole.run is not None and part.first is not None and not whole.run & part.first
        live = min(part.states, part.live if once else whole.spread * part.live)
        whole.live = max(whole.live, live) if whole.spread == 1 else whole.live + live
        if not part.length:
            continue  # an edge, or lookaround
        if whole.empty:
            firsts.append(part.first)
        if once and part.empty:
            whole.run = _union((whole.run, part.first, part.run if part.spread > 1 else part.first))
            whole.spread += part.spread
        else:
            alone = once or whole.spread == 1
            whole.run = part.run if alone and part.spread > 1 else None
            whole.spread = part.spread if alone else whole.spread * part.spread
        whole.spread = min(MAX_LIVE, whole.spread)
        whole.empty = whole.empty and part.empty
    whole.first = _union(firsts)
    # Who only asks whether there is a match stops at the first one.
    whole.least = whole.states - (parts[-1].states - parts[-1].least if parts else 0)
    return whole


def _repeated(body: _Part, least: int, most: int, *, open_ended: bool) -> _Part:
    states = min(MAX_LIVE, body.states * most)
    length = min(MAX_LIVE, body.length * most)
    run: Characters | None = None
    if body.spread == 1:
        live, spread, run = body.live, most - least + 1, body.first
    else:
        live, spread = states, length + 1
        within, first = body.run, None if body.empty else body.first
        if within is not None and first is not None and not within & first:
            live, run = min(states, 2 * body.live), within | first
    return _Part(
        states=states,
        live=live,
        spread=MAX_LIVE if open_ended or body.endless else min(MAX_LIVE, spread),
        length=length,
        least=min(MAX_LIVE, body.states * least),
        first=body.first,
        run=run,
        empty=body.empty or least == 0,
        exact=body.exact and least == most and not open_ended,
        endless=body.endless or open_ended,
        captures=body.captures,
    )


def _union(several: Iterable[Characters | None]) -> Characters | None:
    found: Characters = frozenset()
    for each in several:
        if each is None:
            return None
        found |= each
    return found


def effort(pattern: str) -> Effort:
    """Weigh one pattern. What is wrong with it is for the engine to tell."""
    return _Reader(plain(pattern)).read()


class _Reader:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._open = [_Branch("")]
        self._front = True
        """Whether nothing but `^` and lookaround came until now."""
        self._folds = re.search(r"\(\?[a-zA-Z]*i", pattern) is not None
        self._repeats = False
        """Whether the last piece was a repetition; another `+` makes it a possessive one."""
        self._around = _Part(0, 0, 1, 0, 0)
        """All that is in lookaround."""
        self._again = False
        self._tail = 0
        """How many parts of the whole came before the last that needs backtracking ended."""

    def read(self) -> Effort:
        for token in tokens(self._pattern):
            text = token[0]
            if token["least"] or token["upto"]:
                self._counted(token["least"], token["most"] or token["upto"])
            else:
                self._plain(text)
        while len(self._open) > 1:  # a group that is not closed is for the engine to tell
            self._group()
        top = self._open[0]
        tail = _sequence(top.parts[self._tail :])
        top.close()
        again = max(1, self._around.live, tail.live) if self._again else 0
        return Effort(
            live=min(MAX_LIVE, max(top.live(), self._around.live, 1)),
            states=min(MAX_LIVE, top.whole().states),
            again=min(MAX_LIVE, again),
            far=self._again and (self._around.far or tail.far),
            captures=self._around.captures or (self._again and tail.captures),
        )

    def _plain(self, text: str) -> None:
        top = self._open[-1]
        repeats, self._repeats = self._repeats, False
        if text[0] == "[" and len(text) > 1:
            self._take(text)
        elif text[0] == "(" and not text.endswith(")"):
            self._open.append(_Branch(text))
            self._backtracks(text)
        elif text == ")" and len(self._open) > 1:
            self._group()
        elif text == "|":
            top.close()
            self._front = self._front and len(self._open) > 1
            self._tail = 0 if len(self._open) == 1 else self._tail
        elif text in {"*", "+", "?"} and repeats:
            self._again = self._again or text == "+"
            self._repeats = text != "?"
        elif text in {"*", "+", "?"}:
            self._repeat(int(text == "+"), 1, open_ended=text != "?")
        elif text == "^":
            top.held = top.held or not top.parts
        elif text in _EDGES:
            top.parts.append(_Part(0, 0, 1, 0, 0))
        elif not text.endswith(")"):
            self._backtracks(text)
            self._take(text)

    def _backtracks(self, text: str) -> None:
        """Take note of what needs backtracking; at the front of an anchored pattern it is cheap."""
        if _BACKTRACKS.match(text):
            front = len(self._open) == 2 and self._front and self._open[0].held
            self._again = self._again or not (front and text in _AROUND)
            for branch in self._open:
                branch.backtracks = True
            self._tail = len(self._open[0].parts) + 1
            # What a backreference repeats may be long.
            self._around.endless = self._around.endless or text[0] == "\\"

    def _take(self, text: str) -> None:
        """One character of some kind."""
        self._front = self._front and len(self._open) > 1
        self._repeats = False
        states = _WIDE if _is_wide(text) else 1
        if _BACKTRACKS.match(text):  # what was captured may have any length
            part = _Part(states, 1, MAX_LIVE, 1, states, empty=True, exact=False, endless=True)
        else:
            first = ALL if self._folds else characters(text)
            part = _Part(states, 1, 1, 1, states, first=first)
        self._open[-1].parts.append(part)

    def _group(self) -> None:
        branch = self._open.pop()
        branch.close()
        whole = branch.whole()
        if branch.opening in _AROUND:
            around = self._around
            around.live += whole.live
            around.states += whole.states
            around.endless = around.endless or whole.endless
            around.captures = around.captures or whole.captures
            whole = _Part(whole.states, whole.live, 1, 0, whole.states)
        elif len(self._open) == 1:
            self._front = False
        self._open[-1].parts.append(whole)
        if branch.backtracks:
            self._open[-1].backtracks = True
            self._tail = len(self._open[0].parts)

    def _counted(self, least: str | None, most: str | None) -> None:
        low, high = _number(least), _number(most)
        if most is None:
            high = low
        self._repeat(low, max(low, high, 1), open_ended=most is not None and not _NUMBER(most))

    def _repeat(self, least: int, most: int, *, open_ended: bool) -> None:
        parts = self._open[-1].parts
        self._repeats = True
        if parts:
            parts[-1] = _repeated(parts[-1], least, most, open_ended=open_ended)


_NUMBER = re.compile(r"\d+").search


def _number(digits: str | None) -> int:
    found = _NUMBER(digits or "")
    return min(MAX_LIVE, int(found[0][:9])) if found else 0


def _is_wide(text: str) -> bool:
    """Whether characters of more than one byte may be meant."""
    if text[0] == "[" and len(text) > 1:
        return text[1] == "^" or any(_is_wide(each) for each in members(text) if each != ".")
    return not text.isascii() or text == "." or text[:2] in _WIDE_ESCAPES
