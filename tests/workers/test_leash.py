"""The pair of sockets between a worker and its parent, from both ends."""

import pickle
import socket
import struct
from contextlib import closing
from pathlib import Path

import trio
import trio.testing

from mcp_trio.config import parse_settings
from mcp_trio.workers.leash import DRAIN, LOOK, RELOAD, Handover, ParentsEnd

HANDOVER = Handover(
    number=1,
    count=2,
    rooms=Path("rooms"),
    listeners=(),
    # More than the system keeps for a socket, so that handing it over takes several turns.
    settings=parse_settings({"catalog": {"registry": "r" * (1 << 20)}}),
    folder=Path(),
    state_key=b"",
    cursor_key=b"",
    nonce_key="",
    audit_key=b"",
)


async def test_commands_during_the_start_come_behind_what_is_handed_over():
    ours, theirs = socket.socketpair()
    arrived = bytearray()

    def listen():
        while piece := theirs.recv(65536):
            arrived.extend(piece)

    with theirs:
        async with trio.open_nursery() as nursery:
            with closing(ParentsEnd(ours)) as leash:
                leash.tell(RELOAD)
                async with trio.open_nursery() as handing:
                    handing.start_soon(leash.hand_over, HANDOVER)
                    await trio.testing.wait_all_tasks_blocked()
                    leash.tell(LOOK)
                    nursery.start_soon(trio.to_thread.run_sync, listen)
                # A command for which there is no room is lost, and there may be none just now.
                await trio.lowlevel.wait_writable(ours)
                leash.tell(DRAIN)
    (size,) = struct.unpack_from("!I", arrived)
    assert pickle.loads(arrived[4 : 4 + size]) == HANDOVER
    assert arrived[4 + size :] == RELOAD + LOOK + DRAIN
