"""The changes a client has been told of, as an asynchronous iterator, in both eras.

Without a session the stream of changes is a request that may break. It is made again, and the
listener hears that something may have happened meanwhile.
"""

from __future__ import annotations

import abc
import contextlib
import logging
import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import cast

import trio

from mcp_trio.client.calls import Calls
from mcp_trio.engine.backoff import Backoff
from mcp_trio.engine.subscriptions import Mailbox, Notice
from mcp_trio.errors import MCPError, RemoteError, TransportError, plainly
from mcp_trio.framing.uri_template import normal
from mcp_trio.jsonrpc.messages import Notification
from mcp_trio.session.session import Dispatcher
from mcp_trio.wire import JSONObject
from mcp_trio.wire.converter import from_wire, to_wire
from mcp_trio.wire.notices import AcknowledgedParams, SubscriptionFilter

logger = logging.getLogger("mcp_trio.client")

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
MISSED = "missed"
"""What a listener gets after an interruption: anything may have changed meanwhile."""
STEADY = 60.0
"""Seconds after which a stream counts as one that worked, so that its end is a first failure."""
GOODBYE_TIMEOUT = 1.0
"""Seconds that ending a subscription may take, under a shield."""


def wait_before(error: MCPError, failures: int, backoff: Backoff, chance: float) -> float | None:
    """Seconds to wait before listening again, None to give up.

    A broken line is tried again, and a server that says when to come back. Any other error is
    an answer, and would come again.

    Args:
        error: that ended the stream.
        failures: in a row, 1 or more.
        backoff: how patiently.
        chance: between 0 and 1.
    """
    pause = backoff.pause(failures, chance)
    if pause is None or isinstance(error, TransportError):
        return pause
    asked = (error.data or {}).get("retryAfterMs") if isinstance(error, RemoteError) else None
    if type(asked) is not int:
        return None
    return max(pause, min(asked / 1000, backoff.longest))


class Changes:
    """Gives each change as text: its method, and its URI if it has one; or `MISSED`.

    What waits is coalesced, so a caller that is slow to look hears of each kind once.
    """

    def __init__(self, wanted: SubscriptionFilter) -> None:
        self.resource = next(iter(wanted.resource_subscriptions or ()), None)
        """The URI of the resource that is watched, if one is."""
        self._mailbox = Mailbox(wanted)
        self._watched = {normal(uri): uri for uri in wanted.resource_subscriptions or ()}
        self._wake = trio.Event()
        self._started = trio.Event()
        self._missed = False
        self._ended = False
        self._error: MCPError | None = None
        self.honoured: SubscriptionFilter | None = None
        """The part of what was asked for that the server serves, where it says so."""

    @property
    def has_started(self) -> bool:
        """Whether the server has acknowledged, or sent anything."""
        return self._started.is_set()

    def watches(self, place: str) -> bool:
        """Whether a resource, in its normal form, is listened for."""
        return place in self._watched

    def deliver(self, notification: Notification) -> None:
        """Take a notification. Never waits."""
        uri = (notification.params or {}).get("uri")
        notice = Notice(notification.method, self._place(uri) if isinstance(uri, str) else None)
        if self._mailbox.put(notice):
            self._wake.set()
        self._started.set()

    def _place(self, uri: str) -> str:
        """The resource that is listened for: the one that changed, or one that holds it (U8)."""
        spelled = normal(uri)
        if spelled not in self._watched:
            for place, watched in self._watched.items():
                if spelled.startswith(place.rstrip("/") + "/"):
                    return watched
        return uri

    def miss(self) -> None:
        """Take note that changes may have been missed."""
        self._missed = True
        self._wake.set()

    def end(self) -> None:
        """The server will send no more."""
        self._ended = True
        self._started.set()
        self._wake.set()

    def fail(self, error: MCPError) -> None:
        """The server cannot be listened to, or not any more."""
        if not self._ended:
            self._error = error
        self.end()

    async def started(self) -> None:
        """Wait until the server has acknowledged.

        Raises:
            MCPError: it refused.
        """
        await self._started.wait()
        if self._error is not None:
            raise self._error

    def __aiter__(self) -> Changes:
        return self

    async def __anext__(self) -> str:
        while True:
            if self._missed:
                self._missed = False
                return MISSED
            notice = self._mailbox.take()
            if notice is not None:
                return notice.method if notice.uri is None else f"{notice.method} {notice.uri}"
            if self._error is not None:
                raise self._error
            if self._ended:
                raise StopAsyncIteration
            self._wake = trio.Event()
            await self._wake.wait()


class Listening(Calls):
    """The part of `MCPClient` that hears of changes."""

    _backoff: Backoff
    """How patiently a broken stream of changes is opened again."""

    def __init__(self) -> None:
        super().__init__()
        self._listeners: set[Changes] = set()
        self._subscribed: Counter[str] = Counter()
        """How many subscribers each resource has in this session, by its normal form."""
        self._spelled: dict[str, str] = {}
        """And how the first of them spelled it."""

    @abc.abstractmethod
    async def _renewed(self, session: Dispatcher) -> bool:
        """Wait for the session after this one. False if this one goes on, or was the last."""

    @abc.abstractmethod
    def _heard(self, notification: Notification) -> None:
        """Take note of a change that a listener hears of."""

    # -- subscribing in a session --------------------------------------------------

    async def subscribe(self, uri: str) -> None:
        """Ask, in a session, to be told when a resource changes; without one `listen` does.

        The changes go to `ClientCallbacks.resource_updated`, and make a cached answer old.
        Being cancelled takes it back: by then the server may have heard of it.

        Raises:
            MethodNotFoundError: the revision does not have it; nothing was sent.
            RemoteError: no such resource, or the server tells of no changes.
        """
        self._demand("resources/subscribe", "listen for the resource")
        self._subscribed[normal(uri)] += 1
        self._spelled.setdefault(normal(uri), uri)
        try:
            await self.call("resources/subscribe", {"uri": uri})
        except RemoteError:
            self._leave(uri)
            raise
        except BaseException:
            with trio.move_on_after(GOODBYE_TIMEOUT, shield=True), contextlib.suppress(MCPError):
                await self.unsubscribe(uri)
            raise

    async def unsubscribe(self, uri: str) -> None:
        """Take back one `subscribe`; the server is told when it was the last one of its URI.

        Raises:
            MethodNotFoundError: the revision does not have it; nothing was sent.
            RemoteError: the server has nothing to take back.
        """
        self._demand("resources/unsubscribe", "leave `listen`")
        spelled = self._leave(uri)
        if spelled is None:
            await trio.lowlevel.checkpoint()
        else:
            await self.call("resources/unsubscribe", {"uri": spelled})

    def _leave(self, uri: str) -> str | None:
        """Count one subscriber less; how the first one spelled the URI, if this was the last."""
        place = normal(uri)
        self._subscribed[place] -= 1
        if self._subscribed[place] > 0:
            return None
        del self._subscribed[place]
        return self._spelled.pop(place, uri)

    async def _resume(self, session: Dispatcher, *, within: float) -> None:
        """Ask of another session what was asked of the one before, if there was one (D4).

        Args:
            session: the new one.
            within: seconds for each request.
        """
        if self._log_level is not None and (
            session.stamp is None or not session.stamp.ask_for_logs(self._log_level)
        ):
            with contextlib.suppress(MCPError):  # the lines are a courtesy
                level: JSONObject = {"level": self._log_level}
                await session.call("logging/setLevel", level, timeout=within)
        for place, uri in tuple(self._spelled.items()):
            try:
                await session.call("resources/subscribe", {"uri": uri}, timeout=within)
            except MCPError as error:
                logger.warning("%.200s cannot be subscribed to again: %s", uri, error)
                for changes in self._listeners:
                    if changes.watches(place):
                        changes.fail(error)
        for changes in self._listeners:
            changes.miss()

    # -- listening -----------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def listen(
        self,
        *,
        tools: bool = False,
        prompts: bool = False,
        resources: bool = False,
        resource: str | Iterable[str] | None = None,
    ) -> AsyncGenerator[Changes, None]:
        """Hear of changes while the block runs; of the tool list if nothing is named.

        Iterating gives the method name of each change, followed by the URI if it has one; a
        burst that nobody has looked at yet is one change. It ends when the server says so.

        In the stateless era a stream that breaks is opened again, after the pauses of
        `ClientOptions.reconnect`, and then the iterator gives `missed`. In a session it
        lives as long as the session.

        Args:
            tools: changes of the tool list.
            prompts: changes of the prompt list.
            resources: changes of the resource list.
            resource: changes of the resource with this URI, or of several.

        Raises:
            RemoteError: the server does not serve this, on entering; or, from the iterator, not
                any more.
            TransportError: the line is broken, and opening it again was in vain.
        """
        watched = [resource] if isinstance(resource, str) else list(resource or ())
        nothing = not (tools or prompts or resources or watched)
        wanted = SubscriptionFilter(
            tools_list_changed=(tools or nothing) or None,
            prompts_list_changed=prompts or None,
            resources_list_changed=resources or None,
            resource_subscriptions=watched or None,
        )
        changes = Changes(wanted)
        if not self.revision.stateless:
            async with self._watching(changes, watched):
                yield changes
            return
        with plainly():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._stay_subscribed, changes, wanted)
                await changes.started()
                yield changes
                nursery.cancel_scope.cancel()

    @contextlib.asynccontextmanager
    async def _watching(self, changes: Changes, watched: list[str]) -> AsyncGenerator[None, None]:
        """Listen in a session, where lists are told anyway and resources when asked for."""
        session = self.session
        if session.closed and not await self._renewed(session):
            session.check_open()  # nobody would ever tell this listener anything
        self._listeners.add(changes)
        asked: list[str] = []
        try:
            for uri in watched:
                await self.subscribe(uri)
                asked.append(uri)
            yield
        finally:
            self._listeners.discard(changes)
            with trio.move_on_after(GOODBYE_TIMEOUT, shield=True):
                for uri in asked:
                    with contextlib.suppress(MCPError):  # then there is nothing to take back
                        await self.unsubscribe(uri)

    async def _stay_subscribed(self, changes: Changes, wanted: SubscriptionFilter) -> None:
        failures = 0
        again = False
        while True:
            began = trio.current_time()
            session = self.session
            try:
                await session.call(
                    "subscriptions/listen",
                    {"notifications": to_wire(wanted, self.revision)},
                    on_notification=self._stream(changes, wanted, again=again),
                )
            except MCPError as error:
                again = changes.has_started
                if await self._renewed(session):
                    continue  # on another line, at once
                failures = 1 if trio.current_time() - began >= STEADY else failures + 1
                chance = random.random()  # noqa: S311 - spreads out those who come back
                pause = wait_before(error, failures, self._backoff, chance)
                if not changes.has_started or session.closed or pause is None:
                    changes.fail(error)
                    return
                logger.warning("listening was interrupted, again in %.1f s: %s", pause, error)
                await trio.sleep(pause)
            else:
                changes.end()
                return

    def _stream(
        self, changes: Changes, wanted: SubscriptionFilter, *, again: bool
    ) -> Callable[[Notification], None]:
        """Take what comes on one stream; the first thing that does opens it."""
        opened = False

        def take(notification: Notification) -> None:
            nonlocal opened
            if not opened:
                opened = True
                if again:
                    self.forget()
                    changes.miss()
            if notification.method == ACKNOWLEDGED:
                changes.honoured = self._compared(notification, wanted)
            else:
                self._heard(notification)
            changes.deliver(notification)

        return take

    def _compared(
        self, notification: Notification, wanted: SubscriptionFilter
    ) -> SubscriptionFilter | None:
        """What the server says it serves; a warning for what it does not (U7)."""
        try:
            params = from_wire(notification.params or {}, AcknowledgedParams, self.revision)
        except MCPError as error:
            logger.warning("what the server serves cannot be read: %s", error)
            return None
        served, asked = (to_wire(f, self.revision) for f in (params.notifications, wanted))
        for name, value in asked.items():
            if isinstance(value, list):
                known = {normal(uri) for uri in params.notifications.resource_subscriptions or ()}
                missing = [uri for uri in cast("list[str]", value) if normal(uri) not in known]
            else:
                missing = [] if served.get(name) is True else [name]
            if missing:
                logger.warning("the server does not tell of changes of %.500s", ", ".join(missing))
        return params.notifications

    def told(self, notification: Notification) -> None:
        """Take a notification that belongs to no request. Called by the session."""
        self._heard(notification)
        for changes in tuple(self._listeners):
            changes.deliver(notification)

    def _session_over(self) -> None:
        """Tell those who listen that nothing comes any more."""
        for changes in tuple(self._listeners):
            changes.fail(TransportError("the line was closed while somebody listened"))
