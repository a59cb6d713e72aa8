"""A server of the command line that says what it likes: `python hostile_server.py MODE`.

`steering` puts control characters and markup into every text, `shapes` answers with what is none
of what was asked for, `huge` with a lot.
"""

import json
import sys

STEERING = "\x1b]0;title\x07\x1b[2J\x9b31m\rover\u202egpj\u2028\x08\ufeff[/][red]b\\"
CAPABILITIES = {"tools": {}, "prompts": {}, "resources": {}}
TOOL = {
    "name": "tool",
    "description": STEERING,
    "inputSchema": {
        "type": "object",
        "properties": {
            "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "number": {"type": ["number", "null"]},
        },
    },
}
URI = "file:///" + "long" * 60


def steering(method, params):
    match method:
        case "tools/list":
            return {"tools": [{**TOOL, "name": f"[/]{STEERING}"}, TOOL]}
        case "prompts/list":
            return {"prompts": [{"name": STEERING, "title": STEERING}]}
        case "resources/list":
            return {"resources": [{"uri": URI + STEERING, "name": "n", "description": STEERING}]}
        case "resources/read":
            contents = [{"uri": "u", "text": STEERING}]
            return {"contents": [*contents, {"uri": "u", "mimeType": STEERING, "blob": "AAAA"}]}
        case "prompts/get":
            messages = [{"role": "user", "content": {"type": "text", "text": STEERING}}]
            return {"messages": [*messages, {"role": STEERING, "content": {"type": STEERING}}]}
        case "tools/call":
            said = {"type": "text", "text": json.dumps(params["arguments"]) + STEERING}
            link = {"type": "resource_link", "uri": STEERING, "name": STEERING}
            return {"content": [said, link]}


def shapes(method, params):
    match method:
        case "tools/list":
            return {"tools": [1, None, {"name": 5}]}
        case "prompts/list":
            return {"prompts": "abc"}
        case "resources/list":
            return {}
        case "resources/templates/list":
            return {"resourceTemplates": [], "nextCursor": 5}
        case "resources/read":
            return {"contents": [1, {"uri": "x", "text": 5}]}
        case "prompts/get":
            return {"messages": {"role": "user"}}
        case "tools/call":
            return {"content": 5}


def huge(method, params):
    return {"contents": [{"uri": "u", "text": "x" * 8_000_000}]}


def say(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def main(answer):
    for line in sys.stdin:
        request = json.loads(line)
        params = request.get("params") or {}
        token = (params.get("_meta") or {}).get("progressToken")
        if token is not None:
            told = {"progressToken": token, "progress": 1, "total": 3, "message": STEERING}
            say(method="notifications/progress", params=told)
        if "id" not in request:
            continue
        match request["method"]:
            case "initialize":
                result = {
                    "protocolVersion": params["protocolVersion"],
                    "capabilities": CAPABILITIES,
                    "serverInfo": {"name": STEERING, "version": STEERING},
                    "instructions": STEERING,
                }
            case "ping":
                result = {}
            case method:
                result = answer(method, params)
        if result is None:
            say(id=request["id"], error={"code": -32603, "message": STEERING})
        else:
            say(id=request["id"], result=result)


if __name__ == "__main__":
    main({"steering": steering, "shapes": shapes, "huge": huge}[sys.argv[1]])
