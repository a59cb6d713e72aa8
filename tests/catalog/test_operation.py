"""The published view: what it may hold, its revision, and what is listed of it."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio.catalog.operation import (
    MAX_FAULTS,
    VIEW_KEYS,
    OperationError,
    find_faults,
    parse,
)
from mcp_trio.wire import ToolAnnotations
from mcp_trio.wire.converter import to_wire
from mcp_trio.wire.revisions import R2026_07_28

REST = {"protocol": "rest", "target": {"connection": "c", "method": "GET", "path": "/x"}}


def test_a_view_has_exactly_ten_keys():
    assert set(VIEW_KEYS) == {
        "operation_id",
        "name",
        "protocol",
        "target",
        "input_schema",
        "output_schema",
        "input_mapping",
        "output_mapping",
        "execution_config",
        "tool_description",
    }


def test_what_is_parsed_can_be_written_again(view):
    made = parse(view(**REST))
    assert made.view() == view(**REST)
    assert parse(made.view()) == made


@pytest.mark.parametrize("key", VIEW_KEYS)
def test_every_key_is_required(view, key):
    made = view()
    del made[key]
    with pytest.raises(OperationError, match=f"misses '{key}'"):
        parse(made)


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"status": "draft"}, "unknown key 'status'"),
        ({"sample_payload": {}}, "unknown key 'sample_payload'"),
        ({"import_metadata": {}}, "unknown key 'import_metadata'"),
        ({"ui": {}}, "unknown key 'ui'"),
        ({"target": {"connection": "c"}}, "target: unknown key 'connection'"),
        ({**REST, "target": {**REST["target"], "auth": 1}}, "target: unknown key 'auth'"),
        ({**REST, "target": {"connection": "c", "method": "GET"}}, "target: misses 'path'"),
        (
            {**REST, "target": {**REST["target"], "method": "FETCH"}},
            "target.method: must be one of",
        ),
        ({**REST, "target": {**REST["target"], "path": "x"}}, "target.path: "),
        ({**REST, "target": {**REST["target"], "path": "/a?b"}}, "target.path: "),
        ({**REST, "target": {**REST["target"], "path": "/a b"}}, "target.path: "),
        ({**REST, "target": {**REST["target"], "connection": ""}}, "target.connection: "),
        ({"protocol": "SOAP"}, "protocol: must match"),
        ({"protocol": 1}, "protocol: must match"),
        ({"operation_id": ""}, "operation_id: "),
        ({"operation_id": "x" * 201}, "operation_id: "),
        ({"operation_id": 5}, "operation_id: "),
        ({"name": "a b"}, "name: must match"),
        ({"name": "a" * 129}, "name: must match"),
        ({"name": "a\n"}, "name: must match"),
        ({"name": ""}, "name: must match"),
        ({"input_schema": {"type": "array"}}, "input_schema: "),
        ({"input_schema": {}}, "input_schema: "),
        ({"input_schema": None}, "input_schema: "),
        ({"output_schema": []}, "output_schema: "),
        ({"input_mapping": {"bodyy": 1}}, "input_mapping: unknown key 'bodyy'"),
        ({"input_mapping": {"path": "x"}}, "input_mapping.path: must be an object"),
        ({"output_mapping": {"error": {"why": 1}}}, "output_mapping.error: unknown key 'why'"),
        ({"output_mapping": []}, "output_mapping: must be an object"),
        ({"execution_config": {"retires": 1}}, "execution_config: unknown key 'retires'"),
        ({"execution_config": {"timeout_ms": {"total": 0}}}, "execution_config.timeout_ms.total: "),
        ({"execution_config": {"timeout_ms": {"total": True}}}, "timeout_ms.total: "),
        ({"execution_config": {"timeout_ms": {"read": 1}}}, "timeout_ms: unknown key 'read'"),
        ({"execution_config": {"retry": {"on": [200]}}}, r"retry.on\[0\]: "),
        ({"execution_config": {"idempotent": 1}}, "execution_config.idempotent: "),
        ({"execution_config": {"limits": {"bytes": 1}}}, "limits: unknown key 'bytes'"),
        ({"execution_config": {"required_scopes": "a"}}, "required_scopes: must be an array"),
        ({"tool_description": 5}, "tool_description: must be an object"),
        ({"tool_description": {}}, "tool_description: misses 'text'"),
        ({"tool_description": {"text": "", "hidden": 1}}, "tool_description: unknown key 'hidden'"),
        (
            {"tool_description": {"text": "", "annotations": {"readonly": True}}},
            "tool_description.annotations: unknown key 'readonly'",
        ),
        (
            {"tool_description": {"text": "", "icons": [{"src": "x", "alt": "y"}]}},
            r"tool_description.icons\[0\]: unknown key 'alt'",
        ),
    ],
)
def test_anything_else_is_refused_with_its_place(view, changes, place):
    with pytest.raises(OperationError, match=place):
        parse(view(**changes))


def test_all_faults_of_a_view_are_told_at_once_in_its_order(view):
    made = view(
        **{**REST, "target": {"connection": "", "method": "FETCH", "auth": 1}},
        name="a b",
        input_schema={"type": "array"},
        execution_config={"timeout_ms": {"total": 0, "read": 1}, "retry": {"on": [200, "x"]}},
        ui={},
    )
    found = find_faults(made)
    assert [(fault.place, fault.key) for fault in found] == [
        ("", "ui"),
        ("name", None),
        ("input_schema", None),
        ("execution_config.timeout_ms", "read"),
        ("execution_config.timeout_ms.total", None),
        ("execution_config.retry.on[0]", None),
        ("execution_config.retry.on[1]", None),
        ("target", "auth"),
        ("target", None),
        ("target.connection", None),
        ("target.method", None),
    ]
    with pytest.raises(OperationError) as caught:
        parse(made)
    assert str(caught.value) == str(found[0])


def test_a_sound_view_has_no_faults_and_a_hopeless_one_has_a_bounded_number(view):
    assert find_faults(view()) == []
    assert len(find_faults(view(**{f"k{n}": n for n in range(MAX_FAULTS * 2)}))) == MAX_FAULTS
    for nonsense in ([], "a", None, 5):
        assert [str(fault) for fault in find_faults(nonsense)] == ["must be an object"]


@pytest.mark.parametrize(
    ("extra", "place"),
    [
        ({"styles": {"query": {"a": {"style": "matrix"}}}}, "target.styles.query.a.style: "),
        ({"styles": {"path": {"a": {}}}}, "target.styles.path.a: misses 'style'"),
        ({"styles": {"trailer": {}}}, "target.styles: unknown key 'trailer'"),
        ({"styles": {"query": {"a": {"style": "form", "explode": 1}}}}, "explode: "),
        ({"media_type": "json"}, "target.media_type: "),
        ({"media_type": "a/b\r\nX: y"}, "target.media_type: "),
    ],
)
def test_styles_and_media_types_are_openapis(view, extra, place):
    with pytest.raises(OperationError, match=place):
        parse(view(**{**REST, "target": {**REST["target"], **extra}}))


@pytest.mark.parametrize(
    ("protocol", "target"),
    [
        ("graphql", {"connection": "c", "document": "{a}", "operation_name": "a", "path": "/g"}),
        ("grpc", {"connection": "c", "service": "s", "method": "m", "descriptor": "AA=="}),
        ("sql", {"connection": "c", "statement": "select 1", "access": "read"}),
        ("mcp", {"connection": "c", "tool": "t"}),
        ("static", {}),
    ],
)
def test_other_protocols_are_views_too(view, protocol, target):
    assert parse(view(protocol=protocol, target=target)).target == target
    with pytest.raises(OperationError, match="target: unknown key 'zz'"):
        parse(view(protocol=protocol, target={**target, "zz": 1}))


def test_all_that_the_format_names_is_read(view):
    config = {
        "timeout_ms": {"connect": 1, "first_byte": 2, "total": 3},
        "retry": {
            "max_attempts": 3,
            "on": [503, "connect", "timeout"],
            "backoff_ms": 1,
            "max_backoff_ms": 2,
        },
        "idempotent": True,
        "idempotency_key_header": "Idempotency-Key",
        "circuit": {"failure_rate": 0.5, "min_calls": 10, "window_s": 60, "cooldown_s": 60},
        "concurrency": 5,
        "rate_per_minute": {"limit": 5, "per": "principal"},
        "cache": {"ttl_s": 5, "vary": ["principal"]},
        "limits": {"request_bytes": 1, "response_bytes": 2, "items": 3, "on_exceed": "error"},
        "output_validation": "warn",
        "auth": "connection",
        "required_scopes": ["a"],
        "stream_progress": False,
        "task": "never",
    }
    assert parse(view(execution_config=config)).execution_config == config


def test_a_view_too_deep_or_too_large_is_refused_without_recursion(view):
    deep: object = 1
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(OperationError, match="levels deep"):
        parse(view(output_mapping={"result": deep}))
    with pytest.raises(OperationError, match="more than 50000 values"):
        parse(view(output_mapping={"result": [0] * 60_000}))
    while isinstance(deep, list):
        # Taken apart by hand: the interpreter would recurse.
        deep = deep.pop()


def test_the_revision_is_a_hash_of_the_canonical_view(view):
    one, same = parse(view()), parse(dict(reversed(view().items())))
    assert one.revision == same.revision
    assert len(one.revision) == 64
    for key, value in (
        ("name", "b"),
        ("execution_config", {"concurrency": 1}),
        ("tool_description", "Another."),
        ("output_schema", {"type": "object"}),
    ):
        assert parse(view(**{key: value})).revision != one.revision


def test_the_tool_is_projected(view):
    said = {
        "text": "Text.",
        "title": "Title",
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
        "icons": [{"src": "https://x.test/i.png", "mimeType": "image/png", "sizes": ["48x48"]}],
        "tags": ["crm"],
    }
    tool = parse(view(tool_description=said, output_schema={"type": "object"})).to_tool()
    assert tool.annotations == ToolAnnotations(read_only_hint=True, open_world_hint=False)
    assert to_wire(tool, R2026_07_28) == {
        "name": "a",
        "title": "Title",
        "description": "Text.",
        "inputSchema": {"type": "object"},
        "outputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
        "icons": [{"src": "https://x.test/i.png", "mimeType": "image/png", "sizes": ["48x48"]}],
    }
    assert to_wire(parse(view()).to_tool(), R2026_07_28) == {
        "name": "a",
        "description": "A tool.",
        "inputSchema": {"type": "object"},
    }


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.sampled_from(VIEW_KEYS), JSON)
def test_any_json_in_any_place_is_taken_or_refused_and_nothing_else(key, value):
    from_conftest = {
        "operation_id": "a",
        "name": "a",
        "protocol": "static",
        "target": {},
        "input_schema": {"type": "object"},
        "output_schema": None,
        "input_mapping": {},
        "output_mapping": {},
        "execution_config": {},
        "tool_description": "",
    }
    made = copy.deepcopy(from_conftest)
    made[key] = value
    try:
        operation = parse(made)
    except OperationError:
        return
    assert operation.to_tool().name == operation.name
