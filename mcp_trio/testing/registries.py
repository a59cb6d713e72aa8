"""The battery: what every `Registry` has to do, wherever it keeps its operations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Protocol, TypeAlias

import trio

from mcp_trio.abc import Reading, Registry, RegistryError
from mcp_trio.wire import JSONObject

PATIENCE = 60.0
"""Seconds one check may take."""
ROUNDS = 12
"""Changes that a follower has to keep up with."""


class PublishedRegistry(Protocol):
    """A registry, and the hands of somebody who publishes in it."""

    @property
    def registry(self) -> Registry:
        """What is checked."""
        ...

    async def publish(self, *views: Mapping[str, object]) -> None:
        """Insert or replace operations and publish them, all at once."""
        ...

    async def withdraw(self, *operation_ids: str) -> None:
        """Let operations no longer be published, all at once."""
        ...

    async def hide(self) -> None:
        """Put the registry where it cannot be read, such as a server that is down."""
        ...

    async def show(self) -> None:
        """Put it back as it was."""
        ...


MakeRegistry: TypeAlias = Callable[[], AbstractAsyncContextManager[PublishedRegistry]]
_Views: TypeAlias = dict[str, JSONObject | None]


async def check_registry(make: MakeRegistry) -> None:
    """Run the battery.

    Args:
        make: makes a fresh registry without operations each time it is called; the context
            it gives is left after each check.

    Raises:
        AssertionError: naming what the registry does wrong.
    """
    checks: tuple[Callable[[PublishedRegistry], Awaitable[None]], ...] = (
        _an_empty_registry_is_read_as_empty,
        _what_is_published_is_read_as_it_was_written,
        _the_token_moves_with_every_change_and_only_then,
        _changes_since_a_token_add_up_to_the_whole,
        _an_older_token_is_as_good_as_the_last,
        _a_foreign_token_gives_everything,
        _fingerprints_tell_versions_apart,
        _a_follower_misses_nothing_of_a_busy_publisher,
        _a_cancelled_call_harms_no_later_one,
        _an_outage_is_an_error_and_nothing_is_lost,
        _it_can_be_used_after_closing,
    )
    for check in checks:
        async with make() as published:
            try:
                with trio.fail_after(PATIENCE):
                    await check(published)
            finally:
                with trio.move_on_after(PATIENCE, shield=True):
                    await published.registry.aclose()


def _expect(condition: object, what: str) -> None:
    if not condition:
        raise AssertionError(what)


def sample_view(operation_id: str, text: str = "A tool.") -> JSONObject:
    """A sound view that needs no connection, with values that are easily lost on the way."""
    return {
        "operation_id": operation_id,
        "name": operation_id.replace(":", "_"),
        "protocol": "static",
        "target": {},
        "input_schema": {
            "type": "object",
            "properties": {"zulu": {"type": "string"}, "alpha": {"type": "integer"}},
        },
        "output_schema": None,
        "input_mapping": {},
        "output_mapping": {
            "result": {"big": 2**60, "real": 0.1, "none": None, "text": "é\U0001f600"}
        },
        "execution_config": {},
        "tool_description": text,
    }


def _views(reading: Reading) -> _Views:
    ids = [entry.operation_id for entry in reading.entries]
    _expect(len(set(ids)) == len(ids), "an id appears twice in one reading")
    return {entry.operation_id: entry.view for entry in reading.entries}


def _follow(known: _Views, reading: Reading) -> _Views:
    """What a reader knows after a reading."""
    if reading.complete:
        _expect(not reading.removed, "a complete reading tells what was removed")
        return _views(reading)
    left = {i: view for i, view in known.items() if i not in reading.removed}
    return {**left, **_views(reading)}


async def _an_empty_registry_is_read_as_empty(published: PublishedRegistry) -> None:
    reading = await published.registry.read(None)
    _expect(reading.complete, "reading everything is not complete")
    _expect(reading.entries == (), "an empty registry has entries")


async def _what_is_published_is_read_as_it_was_written(published: PublishedRegistry) -> None:
    views = [sample_view("a"), sample_view("b:é", "A description that says {nothing}.")]
    views[1]["name"] = "b"
    views[1]["output_schema"] = {"type": "object"}
    await published.publish(*views)
    reading = await published.registry.read(None)
    wanted = {str(view["operation_id"]): view for view in views}
    _expect(_views(reading) == wanted, f"read {_views(reading)!r}")
    for view in _views(reading).values():
        schema: object = (view or {})["input_schema"]
        _expect(str(schema).index("zulu") < str(schema).index("alpha"), "keys lost their order")


async def _the_token_moves_with_every_change_and_only_then(published: PublishedRegistry) -> None:
    registry = published.registry
    tokens = [await registry.change_token()]
    _expect(await registry.change_token() == tokens[0], "the token moves by itself")
    for change in (
        partial(published.publish, sample_view("a")),
        partial(published.publish, sample_view("a", "Another text.")),
        partial(published.publish, sample_view("b"), sample_view("c")),
        partial(published.withdraw, "b"),
    ):
        await change()
        tokens.append(await registry.change_token())
        _expect((await registry.read(None)).token == tokens[-1], "read and token disagree")
        _expect(await registry.change_token() == tokens[-1], "reading moves the token")
    _expect(len(set(tokens)) == len(tokens), "a change did not move the token")


async def _changes_since_a_token_add_up_to_the_whole(published: PublishedRegistry) -> None:
    registry = published.registry
    reading = await registry.read(None)
    known = _follow({}, reading)
    steps = (
        (partial(published.publish, *(sample_view(f"op{n}") for n in range(6))), 6),
        (partial(published.publish, sample_view("op1", "New.")), 6),
        (partial(published.withdraw, "op2", "op3"), 4),
        (partial(published.publish, sample_view("op2"), sample_view("op7")), 6),
        (partial(published.withdraw, "op7"), 5),
    )
    for change, count in steps:
        await change()
        reading = await registry.read(reading.token)
        known = _follow(known, reading)
        whole = _views(await registry.read(None))
        _expect(known == whole, "changes since a token differ from the whole")
        _expect(len(whole) == count, f"{len(whole)} operations are read, {count} are published")
    quiet = await registry.read(reading.token)
    _expect(_follow(known, quiet) == known, "a reading without a change changes something")


async def _an_older_token_is_as_good_as_the_last(published: PublishedRegistry) -> None:
    # A catalog that doubts a reading asks again from where it stood before.
    registry = published.registry
    await published.publish(sample_view("a"), sample_view("b"))
    base = await registry.read(None)
    await published.withdraw("a")
    first = await registry.read(base.token)
    await published.publish(sample_view("c"))
    second = await registry.read(base.token)
    known = _follow({}, base)
    _expect(set(_follow(known, first)) == {"b"}, "a withdrawal is not told")
    _expect(set(_follow(known, second)) == {"b", "c"}, "the same token told less the second time")


async def _a_foreign_token_gives_everything(published: PublishedRegistry) -> None:
    await published.publish(sample_view("a"))
    for token in ("", "x", "x:y:z", "x:1", "0", "é:٣:\x00"):
        reading = await published.registry.read(token)
        _expect(reading.complete and len(reading.entries) == 1, f"trusts the token {token!r}")


async def _fingerprints_tell_versions_apart(published: PublishedRegistry) -> None:
    registry = published.registry
    seen: list[bytes] = []
    for text in ("One.", "Two.", "One."):
        await published.publish(sample_view("a", text), sample_view("b"))
        entries = {entry.operation_id: entry for entry in (await registry.read(None)).entries}
        seen.append(entries["a"].fingerprint)
        _expect(entries["a"].fingerprint != entries["b"].fingerprint, "two views, one fingerprint")
    _expect(seen[0] != seen[1], "another version has the same fingerprint")
    _expect(seen[0] == seen[2], "the same version has another fingerprint")


async def _a_follower_misses_nothing_of_a_busy_publisher(published: PublishedRegistry) -> None:
    registry = published.registry
    done = False

    async def be_busy() -> None:
        nonlocal done
        for number in range(ROUNDS):
            await published.publish(sample_view(f"op{number % 5}", f"Version {number}."))
            if number % 3 == 2:
                await published.withdraw(f"op{(number + 1) % 5}")
            await trio.lowlevel.checkpoint()
        done = True

    token: str | None = None
    known: _Views = {}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(be_busy)
        finished = False
        while not finished:
            was_done = done
            try:
                reading = await registry.read(token)
            except RegistryError:
                # Caught in the middle of a change; a catalog tries again, too.
                await trio.lowlevel.checkpoint()
                continue
            known, token = _follow(known, reading), reading.token
            finished = was_done
    _expect(known == _views(await registry.read(None)), "a follower missed a change")


async def _a_cancelled_call_harms_no_later_one(published: PublishedRegistry) -> None:
    registry = published.registry
    await published.publish(sample_view("a"))
    base = await registry.read(None)
    await published.publish(sample_view("b"))
    for _ in range(3):
        with trio.CancelScope() as scope:
            scope.cancel()
            await registry.change_token()
        _expect(scope.cancelled_caught, "change_token does not notice that it is cancelled")
        with trio.CancelScope() as scope:
            scope.cancel()
            await registry.read(None)
        _expect(scope.cancelled_caught, "read does not notice that it is cancelled")
        async with trio.open_nursery() as nursery:
            # Cancelled while it is under way.
            nursery.start_soon(registry.read, base.token)
            await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
    reading = await registry.read(base.token)
    _expect(set(_follow(_follow({}, base), reading)) == {"a", "b"}, "a cancelled read took news")


async def _an_outage_is_an_error_and_nothing_is_lost(published: PublishedRegistry) -> None:
    registry = published.registry
    await published.publish(sample_view("a"), sample_view("b"))
    base = await registry.read(None)
    await published.hide()
    for _ in range(2):
        for call in (registry.change_token, lambda: registry.read(None)):
            try:
                found = await call()
            except RegistryError:
                continue
            raise AssertionError(f"a registry that is gone answers {found!r}")
    await published.show()
    _expect(
        set(_follow(_follow({}, base), await registry.read(base.token))) == {"a", "b"},
        "an outage changed what is published",
    )
    await published.withdraw("a")
    reading = await registry.read(base.token)
    _expect(set(_follow(_follow({}, base), reading)) == {"b"}, "no change is seen after an outage")


async def _it_can_be_used_after_closing(published: PublishedRegistry) -> None:
    registry = published.registry
    await published.publish(sample_view("a"))
    base = await registry.read(None)
    await registry.aclose()
    await registry.aclose()
    await published.publish(sample_view("b"))
    reading = await registry.read(base.token)
    _expect(set(_follow(_follow({}, base), reading)) == {"a", "b"}, "closing lost something")
    _expect(await registry.change_token() == reading.token, "token and reading disagree")
