"""What is fuzzed, and what has to hold whatever comes.

Each target takes any bytes. It may raise nothing: what is refused is refused by the errors that the
function documents, and what is accepted reads the same when it is written and read again.
"""

import json

from mcp_trio.framing import gate, sse
from mcp_trio.framing.challenge import read_challenges
from mcp_trio.framing.headers import HeaderValueError, decode_value, encode_value
from mcp_trio.framing.param_headers import ParamHeaderError, build, mismatch, param_headers
from mcp_trio.http.whole_messages import plain_request
from mcp_trio.jsonrpc import codec
from mcp_trio.jsonrpc.messages import Malformed
from mcp_trio.runtime.mapping import MappingError, compile_mapping
from tests.http.judges import read_by_h11

NAMES = ("args", "body", "status")


def fuzz_codec(data):
    """A message, or a fault that says so; a message is the same after writing and reading."""
    reason = codec.overgrown(data)
    message = codec.decode(data)
    if reason is not None:
        assert isinstance(message, Malformed)
    elif not any(isinstance(each, Malformed) for each in getattr(message, "items", [message])):
        assert codec.decode(codec.encode(message)) == message


def fuzz_sse(data):
    """Wherever a stream is cut, it has the same events."""
    whole = _events(data)
    cut = data[0] % (len(data) + 1) if data else 0
    assert _events(data[:cut], data[cut:]) == whole
    assert _events(*(data[at : at + 1] for at in range(len(data)))) == whole


def _events(*chunks):
    decoder, made = sse.SSEDecoder(1000), []
    try:
        for chunk in chunks:
            made.extend(decoder.receive(chunk))
    except sse.EventTooLargeError:
        made.append("too large")
    return made


def fuzz_headers(data):
    """Values, sources, media types and challenges; what is written is read as it was."""
    text = data.decode("latin-1")
    try:
        value = decode_value(text)
    except HeaderValueError:
        pass
    else:
        assert decode_value(encode_value(value)) == value
    parts = [*text.split("\n"), "", "", ""][:4]
    headers = dict(zip(("host", "origin", "accept", "content-type"), parts, strict=True))
    policy = gate.GatePolicy(origins=frozenset(), any_address=len(data) % 2 == 0)
    refusal = gate.check_source(headers, policy)
    if refusal is None and len(data) % 2:
        assert headers["host"].rpartition(":")[0].lower() in gate.LOOPBACK_NAMES or (
            headers["host"].lower() in gate.LOOPBACK_NAMES
        )
    gate.check_media(headers)
    gate.accepts(parts[2])
    read_challenges(parts)


def fuzz_mapping(data):
    """A tree of JSON is a mapping or none; what it makes fits into JSON again."""
    try:
        tree, context = json.loads(data.decode())
    except (ValueError, TypeError, RecursionError):
        return
    try:
        mapper = compile_mapping(tree, "fuzzed", NAMES)
        made = mapper({"args": context, "body": context, "status": 200})
        codec.encode_value(made)
    except (MappingError, ValueError):
        pass


def fuzz_param_headers(data):
    """Annotations of a schema, and the header fields that arguments become and are judged by."""
    try:
        schema, arguments = json.loads(data.decode())
        annotations = param_headers(schema)
    except (ValueError, TypeError, AttributeError, RecursionError, ParamHeaderError):
        return
    if isinstance(arguments, dict):
        built = build(annotations, arguments)
        received = {name.lower(): value for name, value in built.items()}
        assert mismatch(annotations, arguments, received) is None


def fuzz_http1(data):
    """A request that is read at once is the one that h11 reads, once all of it has come."""
    found = plain_request(data)
    if found is not None:
        head, rest = found.head, bytes(found.missing)
        read = (head.method, head.target, head.headers, head.version), found.body + rest
        assert read == read_by_h11(data + rest)


TARGETS = {
    "http1": fuzz_http1,
    "codec": fuzz_codec,
    "sse": fuzz_sse,
    "headers": fuzz_headers,
    "mapping": fuzz_mapping,
    "param_headers": fuzz_param_headers,
}
SEEDS = {
    "http1": [
        b"POST /mcp HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\n{}",
        b"POST / HTTP/1.1\r\nhost: x\r\nx:\r\na: \tb c\t\r\ncontent-length: 0\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nabc",
    ],
    "codec": [b'{"jsonrpc":"2.0","id":1,"method":"ping"}', b'[{"jsonrpc":"2.0","method":"a"}]'],
    "sse": [b"id: 1\ndata: x\r\n\r\n", b"\xef\xbb\xbfevent: a\rdata\r\r"],
    "headers": [b"=?base64?SGVsbG8=?=\nhttp://localhost\n*/*;q=0.5\napplication/json"],
    "mapping": [b'[{"a": "=args.b", "c": {"expr": "body[?x > `1`]", "as": "string"}}, {"b": 1}]'],
    "param_headers": [
        b'[{"properties": {"a": {"type": "string", "x-mcp-header": "A"}}}, {"a": "b"}]'
    ],
}
