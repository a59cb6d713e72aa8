"""The battery itself: it passes what is right and names what is wrong."""

from __future__ import annotations

from contextlib import asynccontextmanager

import attrs
import pytest
import trio

from mcp_trio import abc
from mcp_trio.abc import Reading, RegistryError, Trouble
from mcp_trio.testing import check_registry


class InMemory:
    """A registry in memory and its publisher in one; the mistakes are made below."""

    def __init__(self, kind):
        self.registry = kind()

    async def publish(self, *views):
        await trio.lowlevel.checkpoint()
        self.registry.put(*views)

    async def withdraw(self, *ids):
        await trio.lowlevel.checkpoint()
        self.registry.drop(*ids)

    async def hide(self):
        self.registry.trouble = RegistryError(Trouble.MISSING, "gone")

    async def show(self):
        self.registry.trouble = None


def world(kind):
    @asynccontextmanager
    async def make():
        yield InMemory(kind)

    return make


async def test_a_registry_in_memory_passes(registry):
    assert isinstance(registry(), abc.Registry)
    await check_registry(world(registry))


def mistakes(right):
    class SleepyToken(right):
        async def change_token(self):
            await super().change_token()
            return "always the same"

        async def read(self, since):
            return attrs.evolve(await super().read(None), token="always the same")

    class Forgetful(right):
        async def read(self, since):
            return attrs.evolve(await super().read(since), removed=())

    class Trusting(right):
        async def read(self, since):
            if since in {"", "x"}:
                return Reading(token=await self.change_token(), entries=(), complete=False)
            return await super().read(since)

    class Shapeless(right):
        async def read(self, since):
            reading = await super().read(since)
            entries = [attrs.evolve(each, fingerprint=b"") for each in reading.entries]
            return attrs.evolve(reading, entries=tuple(entries))

    class Emptied(right):
        async def read(self, since):
            if self.trouble is not None:
                return Reading(token="", entries=(), complete=True)
            return await super().read(since)

    class Deaf(right):
        async def change_token(self):
            with trio.CancelScope(shield=True):
                return await super().change_token()

    return {
        "a change did not move the token": SleepyToken,
        "changes since a token differ from the whole": Forgetful,
        "trusts the token ''": Trusting,
        "two views, one fingerprint": Shapeless,
        "a registry that is gone answers": Emptied,
        "does not notice that it is cancelled": Deaf,
    }


@pytest.mark.parametrize(
    "complaint",
    [
        "a change did not move the token",
        "changes since a token differ from the whole",
        "trusts the token ''",
        "two views, one fingerprint",
        "a registry that is gone answers",
        "does not notice that it is cancelled",
    ],
)
async def test_a_mistake_is_named(registry, complaint):
    with pytest.raises(AssertionError, match=complaint):
        await check_registry(world(mistakes(registry)[complaint]))
