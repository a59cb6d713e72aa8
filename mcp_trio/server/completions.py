"""Suggestions for the arguments of prompts and resource templates (O5)."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias, cast

from mcp_trio.errors import ConfigurationError, DuplicateRegistrationError, InvalidParamsError
from mcp_trio.wire.completion import MAX_VALUES, CompleteParams, Completion

Completer: TypeAlias = Callable[
    [str, Mapping[str, str]],
    "Sequence[str] | Completion | Awaitable[Sequence[str] | Completion]",
]
"""Gets what was typed so far and the arguments known already; gives suggestions, best first."""


class Completions:
    """Who completes what."""

    def __init__(self) -> None:
        self._completers: dict[tuple[str, str, str], Completer] = {}

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
        if (prompt is None) == (resource is None):
            raise ConfigurationError("a completion belongs to a prompt or to a resource template")
        kind = "ref/prompt" if prompt is not None else "ref/resource"
        key = (kind, cast("str", prompt or resource), argument)
        if key in self._completers:
            raise DuplicateRegistrationError(f"{argument!r} of {key[1]!r} is completed already")
        self._completers[key] = completer

    async def complete(
        self, params: CompleteParams, known: Callable[[str, str], bool]
    ) -> Completion:
        """Give suggestions; none for an argument that nobody completes.

        Args:
            params: what is asked.
            known: tells whether the prompt or template of a reference exists.

        Raises:
            InvalidParamsError: a reference to nothing.
        """
        ref = params.ref
        target = ref.name if ref.type == "ref/prompt" else ref.uri
        if ref.type not in {"ref/prompt", "ref/resource"} or target is None:
            raise InvalidParamsError("ref must be a ref/prompt with a name or a ref/resource")
        if not known(ref.type, target):
            raise InvalidParamsError(f"Unknown reference: {target[:128]}")
        completer = self._completers.get((ref.type, target, params.argument.name))
        if completer is None:
            return Completion(values=[])
        context = (params.context.arguments if params.context else None) or {}
        found = completer(params.argument.value, context)
        if inspect.isawaitable(found):
            found = await found
        if isinstance(found, Completion):
            return found if len(found.values) <= MAX_VALUES else _shortened(found)
        values = list(found)
        return Completion(
            values=values[:MAX_VALUES], total=len(values), has_more=len(values) > MAX_VALUES
        )


def _shortened(found: Completion) -> Completion:
    """As many suggestions as one answer may hold."""
    total = len(found.values) if found.total is None else found.total
    return Completion(values=found.values[:MAX_VALUES], total=total, has_more=True)
