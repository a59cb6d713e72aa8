"""URI templates, read backwards: which values a URI gives its template's variables.

RFC 6570 tells how to expand a template; a server has to match. Supported are the
expressions of levels 1 to 3 that can be matched without guessing: `{var}`, `{+var}`,
`{/var}`, `{?a,b}`, `{&a,b}`. Prefix and explode modifiers are refused.

A matched value is safe to use as a name: it is UTF-8 without NUL, and that of `{var}` or
`{/var}` is one path segment, neither `.` nor `..`, however it was encoded (O3).
"""

from __future__ import annotations

import re
import string
from urllib.parse import parse_qsl, quote, unquote

_EXPRESSION = re.compile(r"\{([^{}]*)\}")
_BODY = re.compile(r"([+/?&]?)([A-Za-z_]\w*(?:,[A-Za-z_]\w*)*)")
_SAFE = "-._~:/?#[]@!$&'()*+,;=%{}"
_ENCODED = re.compile("%([0-9A-Fa-f]{2})?")
# Braces never need to be told apart from their encoding, and keep templates readable.
_PLAIN = frozenset(string.ascii_letters + string.digits + "-._~{}")


class UriTemplateError(ValueError):
    """A template that cannot be matched; the text says why."""


class UriTemplate:
    """One template, compiled."""

    def __init__(self, template: str) -> None:
        """Compile.

        Raises:
            UriTemplateError: unbalanced braces, an expression that is not supported, or a
                variable that comes twice.
        """
        self.template = template
        self.variables = tuple[str, ...]()
        self._query = tuple[str, ...]()
        pattern, position = "", 0
        for found in _EXPRESSION.finditer(template):
            pattern += re.escape(normal(template[position : found.start()]))
            position = found.end()
            pattern += self._expression(found[1])
        rest = template[position:]
        if not {"{", "}"}.isdisjoint(_EXPRESSION.sub("", template)):
            raise UriTemplateError(f"unbalanced braces in {template!r}")
        if self._query and rest:
            raise UriTemplateError("a query expression has to be the end of the template")
        self._pattern = re.compile(pattern + re.escape(normal(rest)), re.DOTALL)

    def _expression(self, body: str) -> str:
        parsed = _BODY.fullmatch(body)
        if parsed is None or self._query:
            raise UriTemplateError(f"the expression {{{body}}} is not supported")
        operator: str = parsed[1]
        names: list[str] = parsed[2].split(",")
        if len({*self.variables, *names}) != len(self.variables) + len(names):
            raise UriTemplateError(f"a variable of {{{body}}} comes twice")
        self.variables += tuple(names)
        if operator in {"?", "&"}:
            self._query = tuple(names)
            return rf"(?:\{operator}(?P<_query>[^#]*))?"
        if len(names) > 1:
            raise UriTemplateError(f"{{{body}}}: more than one variable cannot be told apart")
        if operator == "+":
            # As little as fits: a query behind it is not part of it.
            return f"(?P<{names[0]}>.+?)"
        return f"{operator}(?P<{names[0]}>[^/?#]+)"

    def match(self, uri: str) -> dict[str, str] | None:
        """The values of the variables, decoded; absent query variables are left out.

        None if the URI is not of this template, or a value would not be safe.
        """
        found = self._pattern.fullmatch(normal(uri))
        if found is None:
            return None
        values: dict[str, str] = {}
        for name, raw in found.groupdict().items():
            if name != "_query":
                value = _decoded(raw)
                if value is None or not _is_safe(value, slashes=self._allows_slashes(name)):
                    return None
                values[name] = value
        query = found.groupdict().get("_query") or ""
        if _decoded(query) is None:
            return None
        for name, value in parse_qsl(query, keep_blank_values=True):
            if name in self._query and name not in values:
                values[name] = value
        return values

    def _allows_slashes(self, name: str) -> bool:
        return f"{{+{name}}}" in self.template


def normal(uri: str) -> str:
    """Write a URI so that every spelling of it is the same (RFC 3986, section 6.2.2).

    A character beyond ASCII is encoded, one that needs no encoding is not, the digits of an
    encoding are upper case, and a percent sign that begins none is encoded itself.
    """
    return _ENCODED.sub(_spelling, quote(uri, safe=_SAFE))


def _spelling(found: re.Match[str]) -> str:
    if found[1] is None:
        return "%25"
    char = chr(int(found[1], 16))
    return char if char in _PLAIN else found[0].upper()


def _decoded(text: str) -> str | None:
    """Without its encodings; None for what is no text, or holds a NUL."""
    try:
        value = unquote(text, errors="strict")
    except UnicodeDecodeError:
        return None
    return None if "\0" in value else value


def _is_safe(value: str, *, slashes: bool) -> bool:
    segments = re.split(r"[/\\]", value)
    if any(segment in {".", ".."} for segment in segments):
        return False
    return slashes or len(segments) == 1
