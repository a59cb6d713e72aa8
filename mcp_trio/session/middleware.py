"""The onion around every request, and the question whether the caller may make it.

The order, from outside: the server's middleware in the order of registration, then
`authorize`, then the handler. So a middleware sees refusals, and may settle who the caller
is before `authorize` is asked.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeAlias, TypeVar, cast

import attrs

from mcp_trio.errors import ConfigurationError, NotFoundError, UnauthorizedError, sole_cause
from mcp_trio.session.context import Context
from mcp_trio.session.targets import params_about

L = TypeVar("L")
_SCOPE = re.compile(r"[!#-\[\]-~]+")

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


async def shows(authorize: Authorizer | None, context: Context, *, beyond_scopes: bool) -> bool:
    """Ask whether an entry is listed for a caller: the question of the call.

    With `beyond_scopes` it is listed, too, for who lacks nothing but scopes: he can get them, and
    has to know of it first.
    """
    try:
        await demand(authorize, context)
    except Exception as error:
        cause = sole_cause(error)
        if not isinstance(cause, UnauthorizedError | NotFoundError):
            raise
        needed, who = needed_scopes(cause.data), context.principal
        if not beyond_scopes or not needed:
            return False
        if who is None:
            return True  # of whom nothing is known yet
        if needed <= who.scopes:
            return False
        richer = attrs.evolve(who, scopes=who.scopes | needed)
        asked = attrs.evolve(context, principal=richer)
        return await shows(authorize, asked, beyond_scopes=True)
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


_SCOPES = "requiredScopes"
"""Under this name a refusal says in its `data` which scopes the request needs."""


def _as_set(scopes: Iterable[str]) -> frozenset[str]:
    return frozenset(scopes)


def needed_scopes(data: object) -> frozenset[str]:
    """The scopes that the data of a refusal name; none if it is not about scopes."""
    if not isinstance(data, Mapping):
        return frozenset()
    named = cast("Mapping[str, object]", data).get(_SCOPES)
    if not isinstance(named, list | tuple | set | frozenset):
        return frozenset()
    return frozenset(scope for scope in cast("Iterable[object]", named) if isinstance(scope, str))


def naming(error: UnauthorizedError, scopes: Iterable[str]) -> UnauthorizedError:
    """The same refusal; if it is for want of scopes, one that names these too.

    A client should hear at once of all that an operation needs.
    """
    named = needed_scopes(error.data)
    every = named.union(scopes) if named else named
    if every == named:
        return error
    return UnauthorizedError(error.message, data={**(error.data or {}), _SCOPES: sorted(every)})


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
            f"{self.what} needs more scopes", data={_SCOPES: sorted(self.scopes)}
        )


@attrs.frozen
class _Both:
    """Scopes first, and then whatever else is asked."""

    scopes: RequiresScopes
    rest: Authorizer

    async def __call__(self, context: Context) -> bool:
        await demand(self.scopes, context)
        await demand(self.rest, context)
        return True


def guarded_by(
    scopes: Iterable[str] | None, authorize: Authorizer | None, what: str
) -> Authorizer | None:
    """The authorizer of one entry: it needs scopes, or asks somebody, or both, or neither.

    Raises:
        ConfigurationError: what is named is no scope.
    """
    named = check_scopes(scopes or (), what)
    if not named:
        return authorize
    demanded = RequiresScopes(named, what)
    return demanded if authorize is None else _Both(demanded, authorize)


def check_scopes(scopes: Iterable[str], what: str) -> frozenset[str]:
    """Judge scopes that a program or its settings name.

    Raises:
        ConfigurationError: they are one string, or one of them is none (RFC 6749, section 3.3).
    """
    if isinstance(scopes, str):
        raise ConfigurationError(f"{what}: scopes are given as a list")
    named = frozenset(scopes)
    for scope in named:
        if not _SCOPE.fullmatch(scope):
            raise ConfigurationError(f"{what}: {scope[:64]!r} is no scope")
    return named


def scopes_of(authorize: Authorizer | None) -> frozenset[str]:
    """The scopes that an authorizer demands, as far as it says."""
    named: object = authorize.scopes if isinstance(authorize, _Both) else authorize
    return named.scopes if isinstance(named, RequiresScopes) else frozenset()


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
