"""A small server that is a program, and misbehaves as it is told. It starts fast.

Its arguments are a file, to which it writes each start and each method that it hears, and the
ways in which it behaves; `WAYS` in its environment has more of these.
"""

import json
import os
import signal
import sys
from pathlib import Path

log, *ways = sys.argv[1:]
log = Path(log)
ways += os.environ.get("WAYS", "").split()
out = sys.stdout.buffer
listening = []
META = {"io.modelcontextprotocol/serverInfo": {"name": "program", "version": "1"}}


def note(text):
    with log.open("a") as file:
        file.write(text + "\n")


def say(message):
    if "noise" in ways:
        out.write(b'\xff\xfe\nListening...\n{"level": "info"}\n[]\n')
    out.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    out.flush()


def die(text, status):
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
    os._exit(status)


def text(words):
    return {"content": [{"type": "text", "text": words}], "resultType": "complete"}


def call(name):
    if name == "die":
        die("no more", 7)
    if name == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "change":
        if "stateless" not in ways:
            uri = {"uri": "file:///watched"}
            say({"method": "notifications/resources/updated", "params": uri})
        for id_ in listening:
            tell("notifications/tools/list_changed", id_)
    return text(str(os.getpid()))


def tell(method, id_, **params):
    meta = {"io.modelcontextprotocol/subscriptionId": id_}
    say({"method": method, "params": {"_meta": meta, **params}})


def answer(id_, method, params):
    match method:
        case "server/discover" if "dies" in ways:
            die(f"what is {method}?", 3)
        case "server/discover" if "silent" in ways:
            return
        case "server/discover" if "stateless" in ways:
            body = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
            say({"id": id_, "result": {**body, "resultType": "complete", "_meta": META}})
        case "initialize" if "stateless" not in ways:
            body = {"protocolVersion": "2025-11-25", "capabilities": {"resources": {}}}
            say({"id": id_, "result": {**body, "serverInfo": {"name": "program", "version": "1"}}})
        case "tools/call":
            say({"id": id_, "result": call(params["name"])})
        case "subscriptions/listen":
            listening.append(id_)
            tell("notifications/subscriptions/acknowledged", id_, notifications={})
        case "resources/subscribe" | "resources/unsubscribe":
            say({"id": id_, "result": {}})
        case _:
            say({"id": id_, "error": {"code": -32601, "message": "Method not found"}})


note("start")
starts = log.read_text().count("start")
if "dead" in ways or ("once" in ways and starts > 1):
    die("cannot start", 5)
for line in sys.stdin.buffer:
    heard = json.loads(line)
    note(heard.get("method", "an answer"))
    if "id" in heard and "method" in heard:
        answer(heard["id"], heard["method"], heard.get("params"))
