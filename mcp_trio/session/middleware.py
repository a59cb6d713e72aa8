"""The onion around every request, and the question whether the caller may make it.

The order, from outside: the server's middleware in the order of registration, then
`authorize`, then the handler. So a middleware sees refusals, and may settle who the caller
is before `authorize` is asked.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TypeAlias, TypeVar

import attrs

from mcp_trio.errors import NotFoundError, UnauthorizedError, sole_cause
from mcp_trio.session.context import Context
from mcp_trio.session.targets import params_about

L = TypeVar("L")

Next: TypeAlias = Callable[[Context], Awaitable[object]]
"""The rest of the way: takes the context, gives the typed result or raises."""
Middleware: TypeAlias = Callable[[Context, Next], Awaitable[object]]
"""One layer: `async def layer(context, call_next)`. It may look, change `context.params`, answer
by itself, raise an `MCPError`, or replace the result, an object of the method's result class. It
runs inside the request's cancel scope and is entered anew in each round of a call that asks."""
Authorizer: TypeAlias = Callable[[Context], bool | Awaitable[bool]]
"""`authorize(context) -> bool`, plain or async: may this caller make this request? It looks at
`context.principal`, `context.method` and `context.target`. For each entry of a listing it is asked
the question of the call: the same context with the calling method and the entry as its target."""


async def allows(authorize: Authorizer | None, context: Context) -> bool:
    """Ask, if there is anybody to ask. Anything but True is no.

    So is `UnauthorizedError`, and `NotFoundError`, by which an authorizer denies that there is
    such a thing; alone in a group, too.
    """
    try:
        await demand(authorize, context)
    except Exception as error:
        if not isinstance(sole_cause(error), UnauthorizedError | NotFoundError):
            raise
        return False
    return True


async def demand(authorize: Authorizer | None, context: Context) -> None:
    """Ask, and refuse.

    Raises:
        UnauthorizedError: the answer is no; the authorizer's own, if it raised one to say why.
    """
    if authorize is None:
        return
    answer = authorize(context)
    if inspect.isawaitable(answer):
        answer = await answer
    if answer is not True:
        raise UnauthorizedError("The caller may not do this")


def _as_set(scopes: Iterable[str]) -> frozenset[str]:
    return frozenset(scopes)


@attrs.frozen
class RequiresScopes:
    """An authorizer that demands scopes of the caller, and says which."""

    scopes: frozenset[str] = attrs.field(converter=_as_set)
    what: str = "this server"
    """What they are needed for."""

    def __call__(self, context: Context) -> bool:
        """Ask.

        Raises:
            UnauthorizedError: the caller lacks one.
        """
        held = frozenset[str]() if context.principal is None else context.principal.scopes
        if held >= self.scopes:
            return True
        raise UnauthorizedError(
            f"{self.what} needs more scopes", data={"requiredScopes": sorted(self.scopes)}
        )


def question(context: Context, method: str, target: str) -> Context:
    """The context in which a caller would make another request, to ask whether he may."""
    return attrs.evolve(context, method=method, params=params_about(method, target))


def without(layers: tuple[L, ...], layer: L) -> tuple[L, ...]:
    """The layers but one, the innermost if it stands there twice.

    Raises:
        NotFoundError: it is none of them.
    """
    for place in reversed(range(len(layers))):
        if layers[place] == layer:
            return layers[:place] + layers[place + 1 :]
    raise NotFoundError("this middleware was not registered here")


def onion(layers: Sequence[Middleware], core: Next) -> Next:
    """Put the layers around the core, the first one outermost."""
    for layer in reversed(layers):
        core = partial(_enter, layer, core)
    return core


def _enter(layer: Middleware, inner: Next, context: Context) -> Awaitable[object]:
    return layer(context, inner)
