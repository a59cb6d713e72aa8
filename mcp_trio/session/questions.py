"""The questions a handler may put, from arguments to the wire and back.

`Context` is the face of these; it tells what they do in time. How a question reaches the
client is the `Asking` of the request.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Literal, Protocol, TypedDict, TypeVar, cast
from urllib.parse import urlsplit

from mcp_trio.eras.asking import (
    check_form,
    check_page,
    check_roots,
    check_sampling,
    opens_pages,
)
from mcp_trio.eras.forms import form_on_wire
from mcp_trio.eras.rounds import MAX_KEY, Ask
from mcp_trio.errors import InvalidParamsError, URLRequiredError
from mcp_trio.session.asking import Asking
from mcp_trio.session.forms import Elicited, Form
from mcp_trio.wire import METHODS, JSONObject, Revision
from mcp_trio.wire.basic import EmptyParams
from mcp_trio.wire.converter import from_wire, to_wire
from mcp_trio.wire.elicitation import (
    ElicitationCompleteParams,
    ElicitParams,
    ElicitResult,
)
from mcp_trio.wire.roots import ListRootsResult, Root
from mcp_trio.wire.sampling import (
    CreateMessageParams,
    CreateMessageResult,
    ModelPreferences,
    SamplingMessage,
    ToolChoice,
    message_fault,
    messages_for,
)
from mcp_trio.wire.tools import Tool

T = TypeVar("T")
COMPLETE = "notifications/elicitation/complete"


class SamplingOptions(TypedDict, total=False):
    """What can be said about a completion beside its conversation. Everything is optional."""

    system_prompt: str
    """The client may change or leave it out."""
    model_preferences: ModelPreferences
    """Advice only."""
    include_context: Literal["none", "thisServer", "allServers"]
    """What else the model is shown; all but `none` need a client that declares it."""
    temperature: float
    stop_sequences: list[str]
    metadata: JSONObject
    """For the provider of the model."""
    tools: list[Tool]
    """What the model may ask to be used; needs a client that declares it."""
    tool_choice: ToolChoice
    """Whether it may, must or must not."""


class Notifier(Protocol):
    """The part of `context.Exchange` that is needed here."""

    async def notify(self, method: str, params: JSONObject) -> None:
        """Send a notification."""
        ...


class Asker(Protocol):
    """The part of `Context` that is needed here."""

    @property
    def revision(self) -> Revision:
        """In use."""
        ...

    @property
    def capabilities(self) -> JSONObject:
        """Of the client, for this request."""
        ...

    @property
    def asking(self) -> Asking:
        """How a question reaches the client."""
        ...

    @property
    def exchange(self) -> Notifier:
        """The line back."""
        ...


async def _ask(
    asker: Asker, method: str, params: object, answer: type[T], key: str | None
) -> tuple[str, T]:
    """Put a question; give the place of the answer, for faults in it, and the answer."""
    if key is not None and not 0 < len(key) <= MAX_KEY:
        raise ValueError(f"the key of a question has 1 to {MAX_KEY} characters")
    if key is not None:
        asker.asking.take(key)
    ask = Ask(method=method, params=to_wire(params, asker.revision), key=key)
    where, plain = await asker.asking.ask(ask)
    if not isinstance(plain, dict):
        raise InvalidParamsError(f"{where}: expected an object")
    return where, from_wire(cast("JSONObject", plain), answer, asker.revision, where=where)


async def elicit(asker: Asker, message: str, form: Form[T], key: str | None) -> Elicited[T]:
    """See `Context.elicit`."""
    check_form(asker.capabilities, asker.revision)
    schema = form_on_wire(form.schema, asker.revision)
    params = ElicitParams(message=message, mode="form", requested_schema=schema)
    where, result = await _ask(asker, "elicitation/create", params, ElicitResult, key)
    action = _action(result, where)
    if action != "accept":
        return Elicited(action=action)
    return Elicited(action=action, content=form.read(result.content or {}, f"{where}.content"))


def _action(result: ElicitResult, where: str) -> Literal["accept", "decline", "cancel"]:
    match result.action:
        case "accept" | "decline" | "cancel" as action:
            return action
        case _:
            raise InvalidParamsError(f"{where}.action must be accept, decline or cancel")


async def elicit_url(
    asker: Asker, message: str, url: str, elicitation_id: str | None, key: str | None
) -> Elicited[None]:
    """See `Context.elicit_url`."""
    params = _page(asker, message, url, elicitation_id)
    where, result = await _ask(asker, "elicitation/create", params, ElicitResult, key)
    return Elicited(action=_action(result, where), elicitation_id=params.elicitation_id)


def _page(asker: Asker, message: str, url: str, elicitation_id: str | None) -> ElicitParams:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("a page to visit has an http or https URL")
    check_page(asker.capabilities, asker.revision)
    # A visit has an id where its end is told.
    id_ = (elicitation_id or secrets.token_urlsafe(16)) if _ends_are_told(asker) else None
    return ElicitParams(message=message, mode="url", url=url, elicitation_id=id_)


def _ends_are_told(asker: Asker) -> bool:
    return METHODS[COMPLETE].exists_in(asker.revision)


async def require_url(
    asker: Asker, message: str, url: str, elicitation_id: str | None, key: str | None
) -> Elicited[None]:
    """See `Context.require_url`."""
    if not _ends_are_told(asker):
        return await elicit_url(asker, message, url, elicitation_id, key)
    params = _page(asker, message, url, elicitation_id)
    raise URLRequiredError(
        "The user has to visit a page first",
        data={"elicitations": [to_wire(params, asker.revision)]},
    )


async def elicitation_completed(asker: Asker, elicitation_id: str) -> None:
    """See `Context.elicitation_completed`."""
    if _ends_are_told(asker) and opens_pages(asker.capabilities, asker.revision):
        params = ElicitationCompleteParams(elicitation_id=elicitation_id)
        await asker.exchange.notify(COMPLETE, to_wire(params, asker.revision))


async def sample(
    asker: Asker,
    messages: str | Iterable[SamplingMessage],
    max_tokens: int,
    options: SamplingOptions,
    key: str | None,
) -> CreateMessageResult:
    """See `Context.sample`."""
    talk = [SamplingMessage.user(messages)] if isinstance(messages, str) else list(messages)
    fault = message_fault(talk)
    if fault is not None:
        raise ValueError(fault)
    check_sampling(
        asker.capabilities,
        asker.revision,
        tools="tools" in options or "tool_choice" in options,
        context=options.get("include_context", "none") != "none",
    )
    params = CreateMessageParams(
        messages=messages_for(talk, asker.revision),
        max_tokens=max_tokens,
        system_prompt=options.get("system_prompt"),
        model_preferences=options.get("model_preferences"),
        include_context=options.get("include_context"),
        temperature=options.get("temperature"),
        stop_sequences=options.get("stop_sequences"),
        metadata=options.get("metadata"),
        tools=options.get("tools"),
        tool_choice=options.get("tool_choice"),
    )
    _, result = await _ask(asker, "sampling/createMessage", params, CreateMessageResult, key)
    return result


async def list_roots(asker: Asker, key: str | None) -> list[Root]:
    """See `Context.list_roots`."""
    check_roots(asker.capabilities)
    _, result = await _ask(asker, "roots/list", EmptyParams(), ListRootsResult, key)
    return result.roots
