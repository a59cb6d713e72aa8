"""Standing back for those who have just been woken. Nothing here knows what they do."""

import trio

ROUNDS = 2
"""Trio gives everybody who is ready one turn, and draws lots for which end of the queue is first:
after one round somebody who was woken before may still be next."""


async def others_first() -> None:
    """Return after everybody who is ready now has had a turn: who was just cancelled, for one.

    A checkpoint; cancelled, it ends at once.
    """
    for _ in range(ROUNDS):
        await trio.lowlevel.checkpoint()
