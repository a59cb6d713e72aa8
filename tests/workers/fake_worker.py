"""A worker of the standard library alone, so that it starts at once.

`fake_worker.py ROOMS MODE DESCRIPTOR`. It knows its number from the folder in what it is handed
over, `number-N`. Modes: `serve`, `die`,
`fault`, `hang` (does not say that it lives), `deaf` (obeys nobody), `mute` (never says that it
serves), `late` (serves, then ends after a moment).
"""

import json
import os
import re
import select
import socket
import struct
import sys
import time
from pathlib import Path

rooms, mode, descriptor = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
leash = socket.socket(fileno=descriptor)
(size,) = struct.unpack("!I", leash.recv(4, socket.MSG_WAITALL))
number = re.search(rb"number-(\d+)", leash.recv(size, socket.MSG_WAITALL))[1].decode()
with (rooms / "starts").open("a") as starts:
    starts.write(f"{number} {os.getpid()}\n")
if mode == "die":
    sys.exit(3)


def say(**report):
    leash.send(json.dumps(report).encode() + b"\n")


if mode == "fault":
    say(fault="the moon is not full")
    sys.exit(1)
if mode != "mute":
    say(urls=["http://fake"], listing="first")
began = time.monotonic()
while not (mode == "late" and time.monotonic() > began + 0.2):
    if not select.select([leash], [], [], 0.1)[0]:
        continue
    command = leash.recv(1)
    if command == b"a":
        if mode != "hang":
            say(ready=True)
        continue
    with (rooms / "commands").open("a") as commands:
        commands.write(f"{number}{command.decode()}\n")
    if not command or (command == b"d" and mode != "deaf"):
        break
    if command == b"r":
        say(listing="second")
