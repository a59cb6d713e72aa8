"""Little that would become much: JSON, schemas, patterns, views of operations."""

import json
import time

import pytest
import trio

from tests.hardening.attackers import ask, call, each, is_served, post
from tests.hardening.target import OPERATIONS, back_to_baseline, operation, size, until

DEEP = 200_000
BOMBS = {
    "brackets": b"[" * DEEP,
    "closed brackets": b"[" * DEEP + b"]" * DEEP,
    "objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "deep arguments": post(call("keep"))
    .partition(b"\r\n\r\n")[2]
    .replace(b'"arguments": {}', b'"arguments": {"a": ' + b"[" * 5000 + b"]" * 5000 + b"}"),
    "values": b"[" + b"1," * 1_900_000 + b"1]",
    "batch": b"[" + b",".join([b'{"jsonrpc":"2.0","id":1,"method":"ping"}'] * 50_000) + b"]",
    "number": b'{"jsonrpc":"2.0","id":' + b"9" * 1_000_000 + b',"method":"ping"}',
    "fraction": b'{"jsonrpc":"2.0","id":1e' + b"9" * 1_000_000 + b',"method":"ping"}',
    "name": b'{"jsonrpc":"2.0","id":1,"method":"' + b"x" * 3_000_000 + b'"}',
    "keys": b"{" + b",".join(b'"%d":1' % number for number in range(300_000)) + b"}",
    "same keys": b"{" + b",".join([b'"id":1'] * 300_000) + b"}",
    "escapes": b'{"jsonrpc":"2.0","id":1,"method":"' + b"\\u0000" * 500_000 + b'"}',
    "half a pair": b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}',
    "spaces": b" " * 4_000_000,
    "zeros": b"\x00" * 4_000_000,
    "no text": b"\xff" * 4_000_000,
    "mark": b"\xef\xbb\xbf{}",
    "utf-16": json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode("utf-16"),
    "gigabyte announced": b"",
}


@pytest.mark.parametrize("name", BOMBS)
async def test_a_bomb_of_json_is_refused_fast_and_alone(target, name):
    before = target.footprint()
    request = post(BOMBS[name])
    if name == "gigabyte announced":
        request = request.replace(b"Content-Length: 0", b"Content-Length: 1000000000")

    async def send(_):
        with trio.fail_after(20):
            status, _, _ = await ask(target, request)
        assert 400 <= status < 500

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: each(range(size(4, 100)), send, at_once=4))
        await is_served(target)
    await back_to_baseline(target, before)


EVIL = {
    "a+": ("^(a+)+$", "a" * 5000 + "!"),
    "or": ("^(a|aa)+$", "a" * 5000 + "!"),
    "words": (r"^(\w+\s?)*$", "x" * 5000 + "!"),
    "nested": ("^((a*)*)*$", "a" * 5000 + "!"),
    "backtrack": ("(.*)*=x", "=" * 5000),
    "counted": ("^(a{1,100}){1,100}$", "a" * 5000 + "!"),
    "ahead": ("(?=.*b)x", "a" * 100_000),
}


def doubling(levels):
    """A schema that is looked at 2 ** levels times by whoever follows every reference."""
    made = {
        f"l{level}": {"allOf": [{"$ref": f"#/$defs/l{level + 1}"}] * 2} for level in range(levels)
    }
    made[f"l{levels}"] = {"type": "object"}
    return {"type": "object", "$ref": "#/$defs/l0", "$defs": made}


def nested(levels):
    value = {}
    for _ in range(levels):
        value = {"a": value}
    return value


SCHEMAS = {
    "doubling": doubling(30),
    "itself": {"type": "object", "$ref": "#"},
    "round": {
        "type": "object",
        "allOf": [{"$ref": "#/$defs/a"}],
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
    },
    "elsewhere": {"type": "object", "$ref": "http://127.0.0.1:9/schema.json"},
    "file": {"type": "object", "$ref": "file:///etc/passwd"},
    "below": {"type": "object", "properties": {"a": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}},
    "below apart": {
        "type": "object",
        "$ref": "#/$defs/l0",
        "$defs": {
            f"l{level}": {"properties": {"a": {"anyOf": [{"$ref": f"#/$defs/l{level + 1}"}] * 2}}}
            for level in range(50)
        }
        | {"l50": {"required": ["x"]}},
    },
    "dynamic": {"type": "object", "$dynamicRef": "#x", "$dynamicAnchor": "x"},
    "counted pattern": {"type": "object", "patternProperties": {r"(?:\p{L}{900}){9}": True}},
}


async def test_bombs_in_schemas_cost_their_own_operation_and_no_time(target):
    """What a hostile publisher writes: each is quarantined, or it is used and answers fast."""
    bombs = [
        operation(
            f"pattern_{number}",
            protocol="static",
            target={},
            input_schema={"type": "object", "properties": {"a": {"pattern": pattern}}},
            output_mapping={"result": {"ok": True}},
        )
        for number, (pattern, _) in enumerate(EVIL.values())
    ]
    bombs += [
        operation(
            f"schema_{number}",
            protocol="static",
            target={},
            input_schema=schema,
            output_mapping={"result": {"ok": True}},
        )
        for number, schema in enumerate(SCHEMAS.values())
    ]
    before = target.footprint()
    target.publish(*OPERATIONS, *bombs)
    try:
        await target.until_catalog("published", len(OPERATIONS) + len(bombs))
        await is_served(target)
        for number, (_, text) in enumerate(EVIL.values()):
            began = time.monotonic()
            status, _, body = await ask(target, post(call(f"pattern_{number}", {"a": text})))
            assert status == 200, body
            assert time.monotonic() - began < 5
        for number in range(len(SCHEMAS)):
            with trio.fail_after(10):
                await ask(target, post(call(f"schema_{number}", {"a": {"a": {}}})))
                await ask(target, post(call(f"schema_{number}", nested(50))))
        await is_served(target)
    finally:
        target.publish(*OPERATIONS)
        await target.until_catalog("published", len(OPERATIONS))
    await back_to_baseline(target, before)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 1_000_000,
        '{"format": "mcp-operations/1", "operations": ' + "[" * 100_000 + "]" * 100_000 + "}",
        "\x00" * 1_000_000,
        "",
        "9" * 10_000_000,
    ],
    ids=["brackets", "deep", "zeros", "nothing", "number"],
)
async def test_a_bomb_in_place_of_the_registry_leaves_the_catalog(target, text):
    before = target.footprint()
    target.publish(text)
    try:
        await until(lambda: target.page("/catalog")["state"] != "fresh")
        await is_served(target)
    finally:
        target.publish(*OPERATIONS)
    await until(lambda: target.page("/catalog")["state"] == "fresh")
    await is_served(target)
    await back_to_baseline(target, before)
