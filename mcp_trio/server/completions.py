"""Suggestions for the arguments of prompts and resource templates (O5)."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias, cast

from mcp_trio.errors import (
    ConfigurationError,
    DuplicateRegistrationError,
    NotFoundError,
)
from mcp_trio.wire.completion import MAX_VALUES, CompleteParams, Completion

Completer: TypeAlias = Callable[
    [str, Mapping[str, str]],
    "Sequence[str] | Completion | Awaitable[Sequence[str] | Completion]",
]
"""Gets what was typed so far and the arguments known already; gives suggestions, best first."""


class Completions:
    """Who completes what."""

    def __init__(self, changed: Callable[[], None]) -> None:
        """Begin with nobody.

        Args:
            changed: told of each change, synchronously.
        """
        self._completers: dict[tuple[str, str, str], Completer] = {}
        self._changed = changed

    def __len__(self) -> int:
        return len(self._completers)

    def add(
        self, completer: Completer, argument: str, *, prompt: str | None, resource: str | None
    ) -> None:
        """Register who completes an argument of a prompt or a variable of a template.

        Raises:
            ConfigurationError: not exactly one of prompt and resource was given.
            DuplicateRegistrationError: somebody completes it already.
        """
        key = _key(argument, prompt, resource)
        if key in self._completers:
            raise DuplicateRegistrationError(f"{argument!r} of {key[1]!r} is completed already")
        self._completers[key] = completer
        self._changed()

    def remove(self, argument: str, *, prompt: str | None, resource: str | None) -> None:
        """Take a completer away.

        Raises:
            ConfigurationError: not exactly one of prompt and resource was given.
            NotFoundError: nobody completes that argument.
        """
        key = _key(argument, prompt, resource)
        if self._completers.pop(key, None) is None:
            raise NotFoundError(f"nobody completes {argument!r} of {key[1]!r}")
        self._changed()

    async def complete(self, params: CompleteParams) -> Completion:
        """Give suggestions; none for an argument that nobody completes.

        Args:
            params: what is asked; its prompt, resource or template exists.
        """
        ref = params.ref
        target = cast("str", ref.name if ref.type == "ref/prompt" else ref.uri)
        completer = self._completers.get((ref.type, target, params.argument.name))
        if completer is None:
            return Completion(values=[])
        context = (params.context.arguments if params.context else None) or {}
        found = completer(params.argument.value, context)
        if inspect.isawaitable(found):
            found = await found
        values = list(found.values if isinstance(found, Completion) else found)
        if not all(isinstance(value, str) for value in cast("list[object]", values)):
            raise TypeError("suggestions are strings")
        if isinstance(found, Completion):
            return found if len(found.values) <= MAX_VALUES else _shortened(found)
        return Completion(
            values=values[:MAX_VALUES], total=len(values), has_more=len(values) > MAX_VALUES
        )


def _key(argument: str, prompt: str | None, resource: str | None) -> tuple[str, str, str]:
    if (prompt is None) == (resource is None):
        raise ConfigurationError("a completion belongs to a prompt or to a resource template")
    kind = "ref/prompt" if prompt is not None else "ref/resource"
    return (kind, cast("str", prompt or resource), argument)


def _shortened(found: Completion) -> Completion:
    """As many suggestions as one answer may hold."""
    total = len(found.values) if found.total is None else found.total
    return Completion(values=found.values[:MAX_VALUES], total=total, has_more=True)
