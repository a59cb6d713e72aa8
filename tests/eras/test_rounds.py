"""The sealed state and the books of a round: pure, so tested without a client."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio.eras.asking import check_form, check_page, check_roots, check_sampling
from mcp_trio.eras.forms import form_fault, form_on_wire
from mcp_trio.eras.handshake import HandshakeEra
from mcp_trio.eras.rounds import (
    Ask,
    KeyRing,
    Memory,
    RoundSettings,
    StateError,
    binding,
    open_round,
)
from mcp_trio.errors import (
    ConfigurationError,
    InvalidParamsError,
    MCPError,
    MissingCapabilityError,
)
from mcp_trio.wire.revisions import R2025_03_26, R2025_06_18, R2025_11_25, R2026_07_28, REVISIONS

OLD, NEW = b"o" * 32, b"n" * 32
BOUND = binding("server", "alice", "tools/call", {"name": "pay", "arguments": {"a": 1, "b": 2}})
NOW = 1_000_000.0
NAME = Ask(method="elicitation/create", params={"message": "name?"})
COLOR = Ask(method="elicitation/create", params={"message": "color?"}, key="color")
ANSWER = {"action": "accept", "content": {"name": "Bob"}}


def settings(*keys, ttl=60.0, max_rounds=3):
    return RoundSettings(keys=KeyRing(keys or (NEW,)), ttl=ttl, max_rounds=max_rounds)


def begin(state=None, responses=None, *, bound=BOUND, now=NOW, of=None):
    return open_round(of or settings(), lambda: bound, state=state, responses=responses, now=now)


def asked(*asks, **options):
    book = begin(**options)
    for ask in asks:
        assert book.enter(ask)[1] is None
    return book.question(NOW)


# -- sealing -----------------------------------------------------------------------


@given(st.binary(max_size=200), st.binary(max_size=50))
def test_what_is_sealed_comes_back_and_never_looks_the_same_twice(payload, bound):
    ring = KeyRing((NEW,))
    one, two = ring.seal(payload, bound), ring.seal(payload, bound)
    assert one != two
    assert ring.open(one, bound) == ring.open(two, bound) == payload
    assert payload not in one.encode() or len(payload) < 8


@given(st.data())
def test_any_changed_character_is_refused(data):
    ring = KeyRing((NEW,))
    text = ring.seal(b"payload", BOUND)
    place = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(
        st.sampled_from("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=+/ ")
    )
    changed = text[:place] + other + text[place + 1 :]
    if changed != text:
        with pytest.raises(StateError):
            ring.open(changed, BOUND)


@given(st.text(max_size=120))
def test_what_is_no_state_is_refused(text):
    with pytest.raises(StateError):
        KeyRing((NEW,)).open(text, BOUND)


@pytest.mark.parametrize("suffix", ["-TAMPERED", "A", "=", "AAAA", "\n", "\u00e9"])
def test_what_is_appended_is_noticed(suffix):
    ring = KeyRing((NEW,))
    with pytest.raises(StateError):
        ring.open(ring.seal(b"x", BOUND) + suffix, BOUND)


def test_keys_rotate():
    old = KeyRing((OLD,)).seal(b"x", BOUND)
    both = KeyRing((NEW, OLD))
    assert both.open(old, BOUND) == b"x"
    new = both.seal(b"y", BOUND)
    assert KeyRing((NEW,)).open(new, BOUND) == b"y"
    with pytest.raises(StateError):
        KeyRing((NEW,)).open(old, BOUND)
    with pytest.raises(StateError):
        KeyRing((OLD,)).open(new, BOUND)


def test_keys_have_a_length_and_a_ring_without_any_is_its_own():
    with pytest.raises(ConfigurationError):
        KeyRing((b"short",))
    with pytest.raises(StateError):
        KeyRing(()).open(KeyRing(()).seal(b"x", BOUND), BOUND)


# -- what a state is bound to ------------------------------------------------------


CALL = {"name": "pay", "arguments": {"a": 1, "b": 2}}


@pytest.mark.parametrize(
    "foreign",
    [
        binding("other", "alice", "tools/call", CALL),
        binding("server", "bob", "tools/call", CALL),
        binding("server", None, "tools/call", CALL),
        binding("server", "alice", "prompts/get", CALL),
        binding("server", "alice", "tools/call", {**CALL, "name": "get"}),
        binding("server", "alice", "tools/call", {**CALL, "arguments": {"a": 1, "b": 3}}),
        binding("server", "alice", "tools/call", {**CALL, "more": 1}),
    ],
)
def test_a_state_is_of_no_use_elsewhere(foreign):
    state = asked(NAME).request_state
    with pytest.raises(InvalidParamsError) as caught:
        begin(state, bound=foreign)
    assert caught.value.rpc_code == -32602


def test_a_state_belongs_to_the_one_for_whom_the_handler_ran():
    def ask(state, *claims, of=NAME):
        book = begin(state)
        for subject in claims:
            book.claim(subject)
        assert book.enter(of)[1] is None
        return book.question(NOW).request_state

    nobody_yet = ask(None)
    anns = ask(None, "ann")
    # A round that ends before the caller is known takes the state away from nobody.
    for state in (anns, ask(anns, of=COLOR)):
        for other in ("bob", None, "null"):
            with pytest.raises(StateError):
                ask(state, other)
    for subject in (None, "null"):
        with pytest.raises(StateError):
            ask(ask(nobody_yet, subject), "ann")
    with pytest.raises(StateError):
        ask(None, "ann", "bob")


def test_what_differs_between_rounds_and_the_order_of_keys_is_not_bound():
    retried = {
        "arguments": {"b": 2, "a": 1},
        "name": "pay",
        "_meta": {"progressToken": 7},
        "inputResponses": {"x": 1},
        "requestState": "y",
    }
    assert binding("server", "alice", "tools/call", retried) == BOUND


def test_a_state_ends_with_its_time():
    state = asked(NAME).request_state
    begin(state, now=NOW + 59)
    with pytest.raises(InvalidParamsError, match="expired"):
        begin(state, now=NOW + 60)


# -- questions and answers ---------------------------------------------------------


def test_a_first_question_is_answered_with_and_without_its_state():
    result = asked(NAME)
    (key,) = result.input_requests
    assert result.input_requests[key] == {"method": NAME.method, "params": NAME.params}
    assert begin(result.request_state, {key: ANSWER}).enter(NAME) == (key, ANSWER)
    assert begin(None, {key: ANSWER}).enter(NAME) == (key, ANSWER)


def test_an_answer_is_replayed_from_the_state_ever_after():
    first = asked(NAME)
    (key,) = first.input_requests
    book = begin(first.request_state, {key: ANSWER})
    book.enter(NAME)
    assert book.enter(COLOR) == ("color", None)
    second = book.question(NOW)
    assert list(second.input_requests) == ["color"]
    assert second.request_state != first.request_state
    third = begin(second.request_state, {"color": {"action": "decline"}, key: {"action": "cancel"}})
    assert third.enter(NAME) == (key, ANSWER)
    assert third.enter(COLOR) == ("color", {"action": "decline"})


def test_a_question_that_changed_gets_no_old_answer():
    first = asked(NAME)
    (key,) = first.input_requests
    other = Ask(method=NAME.method, params={"message": "account number?"})
    assert begin(first.request_state, {key: ANSWER}).enter(other)[1] is None
    # Under a key of its own it is the same question whatever its text, but not of another kind.
    book = begin(asked(COLOR).request_state, {"color": ANSWER})
    assert book.enter(Ask(method=COLOR.method, params={"message": "hue?"}, key="color"))[1]
    book = begin(asked(COLOR).request_state, {"color": ANSWER})
    assert book.enter(Ask(method="roots/list", params={}, key="color"))[1] is None


def test_equal_questions_have_different_keys():
    keys = [*asked(NAME, NAME, NAME).input_requests]
    assert len(set(keys)) == 3
    clash = Ask(method=COLOR.method, params={}, key="color-2")
    assert {*asked(clash, COLOR, COLOR).input_requests} == {"color", "color-2", "color-3"}


@pytest.mark.parametrize(
    "responses", [None, {}, {"other": ANSWER}, {"color": ANSWER}, {"name": None}]
)
def test_a_missing_answer_is_asked_for_again_and_unknown_ones_are_ignored(responses):
    named = Ask(method=NAME.method, params=NAME.params, key="name")
    result = asked(named)
    book = begin(result.request_state, responses)
    assert book.enter(named) == ("name", None)
    assert list(book.question(NOW).input_requests) == ["name"]


def test_an_answer_of_the_wrong_shape_is_handed_over_to_be_refused():
    named = Ask(method=NAME.method, params=NAME.params, key="name")
    assert begin(None, {"name": 12345}).enter(named) == ("name", 12345)


def test_an_answer_to_what_this_run_did_not_reach_is_kept():
    first = asked(NAME, COLOR)
    (key,) = first.input_requests.keys() - {"color"}
    book = begin(first.request_state, {key: ANSWER, "color": ANSWER, "made up": ANSWER})
    book.enter(Ask(method="roots/list", params={}, key="roots"))
    second = begin(book.question(NOW).request_state)
    assert second.enter(NAME) == (key, ANSWER)
    assert second.enter(COLOR) == ("color", ANSWER)
    assert "made up" not in second.memory.answers


def test_a_question_taken_back_is_not_asked():
    book = begin()
    key, _ = book.enter(NAME)
    book.withdraw(key)
    result = book.question(NOW)
    assert result.input_requests is None
    assert result.request_state


def test_rounds_are_bounded():
    state = None
    for _ in range(3):
        state = asked(NAME, state=state).request_state
    with pytest.raises(MCPError, match="3 rounds"):
        asked(NAME, state=state)


def test_what_is_remembered_is_bounded():
    book = begin()
    book.memory.once["big"] = "x" * (1 << 20)
    book.enter(NAME)
    with pytest.raises(MCPError, match="fits"):
        book.question(NOW)


def test_side_effects_are_remembered():
    book = begin()
    book.memory.once["charge"] = {"id": 7}
    book.enter(NAME)
    assert begin(book.question(NOW).request_state).memory.once == {"charge": {"id": 7}}


@given(
    st.dictionaries(st.text(), st.text()),
    st.dictionaries(
        st.text(),
        st.tuples(st.text(), st.dictionaries(st.text(), st.none() | st.integers() | st.text())),
    ),
    st.dictionaries(st.text(), st.recursive(st.none() | st.text(), st.lists)),
)
def test_memory_is_written_and_read(questions, answers, once):
    memory = Memory(number=2, asked=questions, answers=answers, once=once)
    assert Memory.load(memory.dump(NOW + 1), NOW) == memory


# -- what may be asked -------------------------------------------------------------


def refusal(check, *args, **options):
    try:
        check(*args, **options)
    except MissingCapabilityError as error:
        return error.data["requiredCapabilities"]
    return None


def test_forms_and_pages_need_their_capability_and_their_revision():
    for revision in (R2025_06_18, R2025_11_25, R2026_07_28):
        assert refusal(check_form, {"elicitation": {}}, revision) is None
        assert refusal(check_form, {"elicitation": {"form": {}}}, revision) is None
        assert refusal(check_form, {}, revision) == {"elicitation": {}}
        assert refusal(check_form, {"elicitation": None}, revision) == {"elicitation": {}}
    assert refusal(check_form, {"elicitation": {}}, R2025_03_26) == {"elicitation": {}}
    only_pages = {"elicitation": {"url": {}}}
    assert refusal(check_form, only_pages, R2026_07_28) == {"elicitation": {"form": {}}}
    assert refusal(check_page, only_pages, R2026_07_28) is None
    assert refusal(check_page, only_pages, R2025_06_18) == only_pages
    assert refusal(check_page, {"elicitation": {}}, R2026_07_28) == only_pages


def test_sampling_and_roots_need_their_capability():
    for revision in REVISIONS:
        plain = {"tools": False, "context": False}
        assert refusal(check_sampling, {"sampling": {}}, revision, **plain) is None
        assert refusal(check_sampling, {}, revision, **plain) == {"sampling": {}}
        assert refusal(check_roots, {"roots": {}}) is None
        assert refusal(check_roots, {}) == {"roots": {}}
    for revision in (R2025_11_25, R2026_07_28):
        for detail in ("tools", "context"):
            wanted = {"tools": False, "context": False, detail: True}
            needed = {"sampling": {detail: {}}}
            assert refusal(check_sampling, {"sampling": {}}, revision, **wanted) == needed
            assert refusal(check_sampling, needed, revision, **wanted) is None
    tools = {"sampling": {"tools": {}}}
    assert refusal(check_sampling, tools, R2025_06_18, tools=True, context=False) == tools
    assert refusal(check_sampling, tools, R2025_06_18, tools=False, context=True) is None


@pytest.mark.parametrize(
    ("required", "code"),
    [
        ({"sampling": {}}, -32601),
        ({"roots": {}}, -32601),
        ({"sampling": {"tools": {}}}, -32602),
        ({"elicitation": {"url": {}}}, -32602),
    ],
)
def test_the_handshake_era_has_its_own_codes_for_it(required, code):
    error = MissingCapabilityError("no", data={"requiredCapabilities": required})
    fault = HandshakeEra().fault(error)
    assert (fault.rpc_code, fault.data["requiredCapabilities"]) == (code, required)
    other = InvalidParamsError("x")
    assert HandshakeEra().fault(other) is other


# -- forms -------------------------------------------------------------------------


FIELDS = {
    "plain": {"type": "string", "enum": ["a", "b"]},
    "titled": {
        "type": "string",
        "oneOf": [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}],
        "default": "a",
    },
    "named": {"type": "string", "enum": ["a"], "enumNames": ["A"]},
    "email": {"type": "string", "format": "email", "minLength": 3, "pattern": "@"},
    "odd": {"type": "string", "format": "uuid"},
    "age": {"type": "integer", "minimum": 1, "default": 30},
    "score": {"type": "number", "default": 95.5, "exclusiveMinimum": 0},
    "ok": {"type": "boolean", "default": True},
}
MANY = {
    "some": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "minItems": 1},
    "more": {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}},
}


def form(fields):
    return {"type": "object", "properties": fields, "required": list(fields)}


def test_a_form_is_sent_with_every_kind_of_choice_and_only_the_keywords_it_has():
    assert form_fault(form({**FIELDS, **MANY})) is None
    sent = form_on_wire(form({**FIELDS, **MANY}), R2025_11_25)["properties"]
    assert sent["titled"] == FIELDS["titled"]
    assert sent["some"] == MANY["some"]
    assert sent["more"] == MANY["more"]
    assert sent["email"] == {"type": "string", "format": "email", "minLength": 3}
    assert sent["odd"] == {"type": "string"}
    assert sent["score"] == {"type": "number", "default": 95.5}


UNTIDY = {
    "untitled": ({"type": "string", "oneOf": [{"const": "a"}]}, [{"const": "a", "title": "a"}]),
    "described": (
        {"type": "string", "oneOf": [{"const": "a", "title": "A", "description": "D"}]},
        [{"const": "a", "title": "A"}],
    ),
}


def test_options_are_sent_with_a_title_and_nothing_else():
    fields = {name: given for name, (given, _) in UNTIDY.items()}
    fields["many"] = {"type": "array", "items": {"type": "string", "anyOf": [{"const": "a"}]}}
    fields["bare"] = {"type": "array", "items": {"enum": ["a"], "title": "T"}, "uniqueItems": True}
    fields["long"] = {"type": "string", "enum": ["a"], "minLength": 1, "format": "email"}
    fields["both"] = {"type": "string", "enum": ["a"], "oneOf": [{"const": "a"}]}
    assert form_fault(form(fields)) is None
    sent = form_on_wire(form(fields), R2025_11_25)["properties"]
    for name, (_, options) in UNTIDY.items():
        assert sent[name] == {"type": "string", "oneOf": options}
    assert sent["many"] == {"type": "array", "items": {"anyOf": [{"const": "a", "title": "a"}]}}
    assert sent["bare"] == {"type": "array", "items": {"type": "string", "enum": ["a"]}}
    assert sent["long"] == sent["both"] == {"type": "string", "enum": ["a"]}
    first = form_on_wire(form({"one": UNTIDY["untitled"][0]}), R2025_06_18)["properties"]
    assert first["one"] == {"type": "string", "enum": ["a"], "enumNames": ["a"]}


def test_the_first_revision_with_forms_gets_what_it_can_show():
    sent = form_on_wire(form(FIELDS), R2025_06_18)["properties"]
    assert sent["titled"] == {"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]}
    assert sent["age"] == {"type": "integer", "minimum": 1}
    assert sent["ok"] == FIELDS["ok"]
    with pytest.raises(MissingCapabilityError):
        form_on_wire(form(MANY), R2025_06_18)


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"type": "object", "properties": {"a": 1}},
        form({"a": {"type": "object", "properties": {}}}),
        form({"a": {"$ref": "#/x"}}),
        form({"a": {"type": "array", "items": {"type": "string"}}}),
        form({"a": {"type": "array"}}),
        form({"a": {"type": "string", "enum": [1, 2]}}),
        form({"a": {"type": "string", "enum": "ab"}}),
        form({"a": {"type": "string", "oneOf": [{"pattern": "a"}]}}),
        form({"a": {"type": "string", "oneOf": [{"const": 1}]}}),
        form({"a": {"type": "string", "oneOf": {"const": "a"}}}),
        form({"a": {"type": "array", "items": {"anyOf": [{"const": None}]}}}),
        form({"a": {"type": "array", "items": {"enum": [1]}}}),
        form({"a": {"type": ["string", "null"]}}),
        form({"a": {"type": "string", "default": None}}),
        form({"a": {"type": "boolean", "default": 1}}),
        form({"a": {"type": "integer", "default": True}}),
        form({"a": {"type": "array", "items": {"enum": ["a"]}, "default": "a"}}),
    ],
)
def test_what_is_no_form_is_told(schema):
    assert form_fault(schema)
