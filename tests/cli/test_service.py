"""What one process of the service waits for before anybody may connect."""

import trio

from mcp_trio import MCPServer
from mcp_trio.abc import RegistryError
from mcp_trio.catalog.actor import CatalogActor
from mcp_trio.cli.lifecycle import Lifecycle
from mcp_trio.cli.service import FIRST_LOOK, until_looked
from mcp_trio.runtime.compiler import Compiler
from mcp_trio.runtime.connections import Connections


class Registry:
    """Takes its time, and is broken then."""

    def __init__(self, seconds):
        self.seconds = seconds

    async def change_token(self):
        raise AssertionError("nothing was read yet")

    async def read(self, token):
        await trio.sleep(self.seconds)
        raise RegistryError("broken")

    async def aclose(self):
        await trio.lowlevel.checkpoint()


async def waited(registry_seconds, bound, leave_after=None):
    """Seconds until somebody may connect."""
    actor = CatalogActor(Registry(registry_seconds), Compiler(Connections()))
    life = Lifecycle(MCPServer("waiting"))
    async with trio.open_nursery() as nursery:
        await nursery.start(actor.run)
        if leave_after is not None:

            async def leave():
                await trio.sleep(leave_after)
                life.leave()

            nursery.start_soon(leave)
        began = trio.current_time()
        await until_looked(actor, life, bound)
        took = trio.current_time() - began
        nursery.cancel_scope.cancel()
    return took


async def test_the_first_look_is_waited_for_however_it_ends(autojump_clock):
    assert await waited(3, FIRST_LOOK) == 3


async def test_a_registry_that_hangs_keeps_nobody_out_for_long(autojump_clock):
    assert await waited(25, FIRST_LOOK) == FIRST_LOOK


async def test_a_worker_waits_for_the_end_of_the_look_as_others_serve_meanwhile(autojump_clock):
    assert await waited(25, float("inf")) == 25


async def test_who_is_told_to_go_down_waits_no_longer(autojump_clock):
    assert await waited(25, float("inf"), leave_after=2) == 2
