"""What a server offers, and how it gets there: tools, prompts, resources, completions, layers.

Registration only. What the methods of the protocol do with it is written in `server`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, TypeVar, Unpack, cast, overload

import attrs
import trio

from mcp_trio.engine.subscriptions import RESOURCE_UPDATED, Notice
from mcp_trio.errors import ConfigurationError, UnauthorizedError
from mcp_trio.events import EventHub
from mcp_trio.framing.uri_template import normal
from mcp_trio.server.completions import Completer, Completions
from mcp_trio.server.invoke import Threads, ToolOptions, function_tool
from mcp_trio.server.listing import Listed, Listing
from mcp_trio.server.prompts import PromptEntry, PromptOptions, function_prompt
from mcp_trio.server.providers import ToolEntry, ToolProvider
from mcp_trio.server.resources import (
    FunctionTemplate,
    ResourceEntry,
    ResourceOptions,
    TemplateEntry,
    function_resource,
)
from mcp_trio.server.shelf import Shelf, ToolShelf
from mcp_trio.session.context import Context
from mcp_trio.session.middleware import (
    Authorizer,
    Middleware,
    demand,
    naming,
    scopes_of,
    without,
)
from mcp_trio.session.notices import NoticeHub
from mcp_trio.wire import METHODS, Tool
from mcp_trio.wire.prompts import Prompt
from mcp_trio.wire.resources import Resource, ResourceTemplate

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=Completer)
M = TypeVar("M", bound=Middleware)
A = TypeVar("A", bound=Authorizer)


@attrs.frozen
class _Rule:
    """One authorizer, and the methods it is asked for; None for all."""

    ask: Authorizer
    methods: frozenset[str] | None

    def concerns(self, method: str) -> bool:
        return self.methods is None or method in self.methods


class Offers:
    """The registration part of `MCPServer`. Everything may be added and removed at any time.

    Clients that listen are told of changes of a list: one notice for what changes between two
    looks of a client. What runs goes on when its tool, prompt or resource is removed.
    """

    def __init__(self, *, max_threads: int, listener_patience: float) -> None:
        """Begin with nothing.

        Args:
            max_threads: worker threads for synchronous functions.
            listener_patience: seconds a listener may leave a notice untaken.
        """
        self.notices = NoticeHub(listener_patience)
        self.events = EventHub()
        """What happens, for observers; see `mcp_trio.events`."""
        self.threads = Threads(trio.CapacityLimiter(max_threads))
        self.tools = ToolShelf(
            self._changed,
            self.events.emit,
            lambda: self.authorizer,
            self._place_of,
        )
        self.prompts: Shelf[PromptEntry] = Shelf("prompt", self._changed)
        self.resources: Shelf[ResourceEntry] = Shelf("resource", self._changed, key=normal)
        self.templates: Shelf[TemplateEntry] = Shelf("template", self._changed)
        self.completions = Completions(self._stale)
        self.layers: tuple[Middleware, ...] = ()
        """The middleware, outermost first."""
        self._rules: tuple[_Rule, ...] = ()

    def _stale(self) -> None:
        """Forget what was derived from the offers; called with every change of them."""

    def _place_of(self, entry: ToolEntry, context: Context) -> AbstractContextManager[object]:  # noqa: ARG002 - for the server
        """Let one call of a tool in, for the block, as far as the tool has limits of its own.

        Raises:
            OverloadedError: it may not run now.
        """
        return contextlib.nullcontext()

    def _changed(self, notice: Notice) -> None:
        self._stale()
        self.notices.tell(notice)

    def notify_resource_updated(self, uri: str) -> None:
        """Tell everybody who watches a resource that it changed. Never waits; once each."""
        self.notices.tell(Notice(RESOURCE_UPDATED, uri))

    # -- tools -------------------------------------------------------------------

    @overload
    def tool(self, function: F, /) -> F: ...

    @overload
    def tool(self, /, **options: Unpack[ToolOptions]) -> Callable[[F], F]: ...

    def tool(
        self, function: F | None = None, /, **options: Unpack[ToolOptions]
    ) -> F | Callable[[F], F]:
        """Register a function as a tool, with or without parentheses; see `ToolOptions`.

        The function is returned unchanged. Sync functions run in a worker thread.

        Raises:
            SignatureError: the function cannot be called with JSON arguments.
            SchemaError: a schema given by hand cannot be used.
            DuplicateRegistrationError: the name is taken.
        """

        def register(target: F) -> F:
            self.add_tool(target, **options)
            return target

        return register if function is None else register(function)

    def add_tool(self, function: Callable[..., object], **options: Unpack[ToolOptions]) -> Tool:
        """Register a function as a tool and give the tool as it will be listed; see `tool`."""
        entry = function_tool(function, self.threads, **options)
        self.add_entry(entry)
        return entry.definition

    def add_entry(self, entry: ToolEntry) -> None:
        """Register any `ToolEntry`.

        Raises:
            DuplicateRegistrationError: the name is taken, by code or by a provider.
        """
        self.tools.add(entry.definition.name, entry)

    def remove_tool(self, name: str) -> None:
        """Take a tool of this program away.

        Raises:
            NotFoundError: there is none of that name.
        """
        self.tools.remove(name)

    def add_provider(self, provider: ToolProvider) -> None:
        """Take in a provider's tools, now and whenever they change."""
        self.tools.add_provider(provider)

    @property
    def listing(self) -> Listing[ToolEntry]:
        """The tools as they are now. Immutable; a later change makes a new one."""
        return self.tools.listing

    # -- prompts -----------------------------------------------------------------

    @overload
    def prompt(self, function: F, /) -> F: ...

    @overload
    def prompt(self, /, **options: Unpack[PromptOptions]) -> Callable[[F], F]: ...

    def prompt(
        self, function: F | None = None, /, **options: Unpack[PromptOptions]
    ) -> F | Callable[[F], F]:
        """Register a function as a prompt, with or without parentheses; see `PromptOptions`.

        Its parameters are the prompt's arguments, which arrive as strings and are read as
        the annotations say. It returns text, content blocks, `PromptMessage`s, a list of
        these, or a `GetPromptResult`.

        Raises:
            SignatureError: the function cannot be called with named arguments.
            DuplicateRegistrationError: the name is taken.
        """

        def register(target: F) -> F:
            self.add_prompt(target, **options)
            return target

        return register if function is None else register(function)

    def add_prompt(
        self, function: Callable[..., object], **options: Unpack[PromptOptions]
    ) -> Prompt:
        """Register a function as a prompt and give it as it will be listed; see `prompt`."""
        entry = function_prompt(function, self.threads, **options)
        self.prompts.add(entry.definition.name, entry)
        return entry.definition

    def remove_prompt(self, name: str) -> None:
        """Take a prompt away.

        Raises:
            NotFoundError: there is none of that name.
        """
        self.prompts.remove(name)

    # -- resources ---------------------------------------------------------------

    def resource(self, uri: str, **options: Unpack[ResourceOptions]) -> Callable[[F], F]:
        """Register a function as a resource, or as a template if the URI has expressions.

        The function's parameters are the template's variables. It returns text, bytes, any
        JSON value, `ResourceContents`, a list of these, or a `ReadResourceResult`.

        Raises:
            ConfigurationError: no URI was given.
            UriTemplateError: the template cannot be matched.
            SignatureError: the parameters are not the variables.
            DuplicateRegistrationError: the URI is taken.
        """
        if not isinstance(cast("object", uri), str):
            raise ConfigurationError('a resource needs its URI: @server.resource("scheme://name")')

        def register(target: F) -> F:
            self.add_resource(uri, target, **options)
            return target

        return register

    def add_resource(
        self, uri: str, function: Callable[..., object], **options: Unpack[ResourceOptions]
    ) -> Resource | ResourceTemplate:
        """Register a function as a resource or template and give it as listed; see `resource`."""
        entry = function_resource(uri, function, self.threads, **options)
        if isinstance(entry, FunctionTemplate):
            self.templates.add(uri, entry)
        else:
            self.resources.add(uri, entry)
        return entry.definition

    def remove_resource(self, uri: str) -> None:
        """Take a resource or a template away, by the URI it was registered with.

        Raises:
            NotFoundError: there is none.
        """
        shelf = self.templates if self.templates.find(uri) is not None else self.resources
        shelf.remove(uri)

    # -- completions -------------------------------------------------------------

    def completion(
        self, argument: str, *, prompt: str | None = None, resource: str | None = None
    ) -> Callable[[C], C]:
        """Register a function that suggests values for an argument of a prompt or template.

        It gets what was typed so far and the arguments known already, and returns
        suggestions, best first; it may be async.

        Raises:
            ConfigurationError: no argument, or not exactly one of `prompt` and `resource`.
            DuplicateRegistrationError: the argument is completed already.
        """
        if not isinstance(cast("object", argument), str):
            raise ConfigurationError('a completion needs its argument: @server.completion("name")')

        def register(completer: C) -> C:
            self.add_completion(argument, completer, prompt=prompt, resource=resource)
            return completer

        return register

    def add_completion(
        self,
        argument: str,
        completer: Completer,
        *,
        prompt: str | None = None,
        resource: str | None = None,
    ) -> None:
        """Register a completer; see `completion`."""
        self.completions.add(completer, argument, prompt=prompt, resource=resource)

    def remove_completion(
        self, argument: str, *, prompt: str | None = None, resource: str | None = None
    ) -> None:
        """Take a completer away.

        Raises:
            ConfigurationError: not exactly one of `prompt` and `resource` was given.
            NotFoundError: nobody completes that argument.
        """
        self.completions.remove(argument, prompt=prompt, resource=resource)

    # -- around every request ----------------------------------------------------

    def middleware(self, layer: M) -> M:
        """Put a layer around every request, inside those registered before; a decorator.

        See `mcp_trio.session.middleware.Middleware`. Requests that run keep their layers.
        """
        self.add_middleware(layer)
        return layer

    def add_middleware(self, layer: Middleware) -> None:
        """Put a layer around every request; see `middleware`."""
        self.layers = (*self.layers, layer)

    def remove_middleware(self, layer: Middleware) -> None:
        """Take a layer away.

        Raises:
            NotFoundError: it was not registered.
        """
        self.layers = without(self.layers, layer)

    @overload
    def authorize(self, function: A, /) -> A: ...

    @overload
    def authorize(self, *methods: str) -> Callable[[A], A]: ...

    def authorize(self, *given: Any) -> Any:
        """Register a function that says whether a caller may make a request; a decorator.

        `@server.authorize` asks it for every method, `@server.authorize("tools/call",
        "prompts/get")` for those. With several, all of them have to agree. See
        `mcp_trio.session.middleware.Authorizer` for what it is asked; a single tool, prompt or
        resource takes one as its `authorize` option.

        Raises:
            ConfigurationError: a method that does not exist.
        """
        if len(given) == 1 and not isinstance(given[0], str):
            self.add_authorizer(given[0])
            return given[0]

        def register(function: A) -> A:
            self.add_authorizer(function, given)
            return function

        return register

    def add_authorizer(self, function: Authorizer, methods: Iterable[str] = ()) -> None:
        """Register an authorizer, for some methods or, by default, for all; see `authorize`."""
        chosen = frozenset(methods)
        unknown = sorted(name for name in chosen if name not in METHODS)
        if unknown:
            raise ConfigurationError(f"no such method: {', '.join(unknown)}")
        self._rules = (*self._rules, _Rule(function, chosen or None))

    @property
    def required_scopes(self) -> frozenset[str]:
        """The scopes without which a caller can do nothing here."""
        every = (scopes_of(rule.ask) for rule in self._rules if rule.methods is None)
        return frozenset[str]().union(*every)

    def scopes_for(self, context: Context) -> frozenset[str]:
        """All scopes that a request needs, as far as its authorizers say.

        Those of the server, and that of the entry it is about.
        """
        rules = (scopes_of(rule.ask) for rule in self._rules if rule.concerns(context.method))
        return self._entry_scopes(context).union(*rules)

    def _entry_scopes(self, context: Context) -> frozenset[str]:
        target = context.target or ""
        entry: Listed | None = None
        match context.method:
            case "tools/call":
                entry = self.tools.find(target)
            case "prompts/get":
                entry = self.prompts.find(target)
            case "resources/read":
                entry, _ = self._resource_at(target)
            case _:
                pass
        return frozenset() if entry is None else scopes_of(entry.authorize)

    def _resource_at(self, uri: str) -> tuple[ResourceEntry | TemplateEntry | None, dict[str, str]]:
        """What is offered under a URI, and the values of its template's variables."""
        entry = self.resources.find(uri)
        if entry is None:
            for candidate in self.templates.listing.entries.values():
                variables = candidate.template.match(uri)
                if variables is not None:
                    return candidate, variables
        return entry, {}

    @property
    def authorizer(self) -> Authorizer | None:
        """All registered authorizers as one; None if there is none."""
        return self._ask_all if self._rules else None

    async def _ask_all(self, context: Context) -> bool:
        for rule in self._rules:
            if rule.concerns(context.method):
                try:
                    await demand(rule.ask, context)
                except UnauthorizedError as error:
                    raise naming(error, self.scopes_for(context)) from None
        return True

    async def _demand_entry(self, entry: Listed, context: Context) -> None:
        """Refuse who may not use an entry."""
        try:
            await demand(entry.authorize, context)
        except UnauthorizedError as error:
            raise naming(error, self.scopes_for(context)) from None
